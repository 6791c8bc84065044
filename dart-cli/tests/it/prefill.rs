//! Successes that were collected beforehand fill the experience pool of another run.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Value, json};

use crate::program::{run, stderr, succeed};

/// A run that is over as soon as reinforcement learning begins, or soon after.
const SMALL: &[&str] = &[
    "environment.families=[\"click-button\"]",
    "warm_start.max_steps=4",
    "curation.groups_per_batch=2",
    "curation.max_groups_per_batch=2",
    "rollout.environments=4",
    "evaluation.splits=[]",
    "training.max_steps=0",
];

fn arguments<'a>(run_dir: &'a str, settings: &[&'a str]) -> Vec<&'a str> {
    let begin = ["train", "--config", "configs/ci.toml", "--run-dir", run_dir];
    let settings = SMALL.iter().chain(settings);
    begin
        .into_iter()
        .chain(settings.flat_map(|setting| ["--set", setting]))
        .collect()
}

fn lines(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("trajectories.jsonl")).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn succeeded(line: &Value) -> bool {
    line["outcome"] == json!({"kind": "scored", "reward": 1.0})
}

/// The entries of the pool in the newest checkpoint, by seed of the task instance.
fn pool(run_dir: &Path) -> BTreeMap<u64, Vec<Value>> {
    let checkpoints = run_dir.join("checkpoints");
    let latest = fs::read_to_string(checkpoints.join("LATEST")).unwrap();
    let state = fs::read(checkpoints.join(latest.trim()).join("curator.json")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    let instances = state["pool"]["instances"]["sim.click-button"].as_object();
    instances
        .into_iter()
        .flatten()
        .map(|(seed, entries)| (seed.parse().unwrap(), entries.as_array().unwrap().clone()))
        .collect()
}

#[test]
fn collected_successes_enter_the_pool_without_their_hints() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (first, out, second, again) = (path("first"), path("out"), path("second"), path("again"));
    succeed(&arguments(&first, &["warm_start.pool_seeds=5"]));
    succeed(&["export", "--run-dir", &first, "--out", &out]);
    let mut collected = lines(Path::new(&out));
    assert_eq!(collected.iter().filter(|line| succeeded(line)).count(), 5);
    // The first was shown with help, the last has failed.
    let instruction = collected[0]["instruction"].as_str().unwrap().to_owned();
    collected[0]["instruction"] = json!(format!("{instruction} Hint: it is blue."));
    collected[4]["outcome"]["reward"] = json!(0.0);
    let text: Vec<String> = collected.iter().map(Value::to_string).collect();
    fs::write(
        Path::new(&out).join("trajectories.jsonl"),
        text.join("\n") + "\n",
    )
    .unwrap();

    let folders = format!("prefill.folders=[\"{out}\"]");
    let settings = [
        "warm_start.pool_seeds=0",
        "prefill.hint_marker=Hint:",
        &folders,
    ];
    succeed(&arguments(&second, &settings));
    let pooled = pool(Path::new(&second));
    let provenance = |line: &Value| {
        let entries = pooled.get(&line["seed"].as_u64().unwrap())?;
        assert_eq!(entries.len(), 1);
        entries[0]["provenance"].as_str()
    };
    assert_eq!(provenance(&collected[0]), Some("imported-without-hint"));
    for line in &collected[1..4] {
        assert_eq!(provenance(line), Some("imported"));
    }
    assert_eq!(
        provenance(&collected[4]),
        None,
        "a failure is no experience"
    );

    succeed(&["export", "--run-dir", &second, "--out", &again]);
    let stored = lines(Path::new(&again));
    let of = |line: &Value| {
        stored
            .iter()
            .find(|found| found["seed"] == line["seed"])
            .unwrap()
    };
    let unhinted = of(&collected[0]);
    assert_eq!(unhinted["instruction"], json!(instruction));
    assert_ne!(
        unhinted["id"], collected[0]["id"],
        "another run's identities are others"
    );
    let log_probs = &unhinted["steps"][0]["decision"]["rollout_log_probs"];
    assert!(
        log_probs
            .as_array()
            .unwrap()
            .iter()
            .any(|lp| lp.as_f64().unwrap() < 0.0)
    );
    let kept = of(&collected[1]);
    assert_eq!(
        kept["steps"], collected[1]["steps"],
        "without a hint nothing changes"
    );

    let off = ["curation.pool.enabled=false", &folders];
    let refused = run(&arguments(&path("third"), &off));
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("curation.pool.enabled"));
}
