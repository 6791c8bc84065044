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

/// Five trajectories in an export: the first was shown with help, the last has failed. And the
/// first one's instruction without help.
fn collect(run_dir: &str, out: &str) -> (Vec<Value>, Value) {
    succeed(&arguments(run_dir, &["warm_start.pool_seeds=5"]));
    succeed(&["export", "--run-dir", run_dir, "--out", out]);
    let mut collected = lines(Path::new(out));
    assert_eq!(collected.iter().filter(|line| succeeded(line)).count(), 5);
    let instruction = collected[0]["instruction"].clone();
    let hinted = format!("{} Hint: it is blue.", instruction.as_str().unwrap());
    collected[0]["instruction"] = json!(hinted);
    collected[4]["outcome"]["reward"] = json!(0.0);
    let mut text = collected.iter().map(Value::to_string).collect::<Vec<_>>();
    text.push(String::new());
    fs::write(Path::new(out).join("trajectories.jsonl"), text.join("\n")).unwrap();
    (collected, instruction)
}

#[test]
fn collected_successes_enter_the_pool_without_their_hints() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (out, second, again) = (path("out"), path("second"), path("again"));
    let (collected, instruction) = collect(&path("first"), &out);
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
    let failed = provenance(&collected[4]);
    assert_eq!(failed, None, "a failure is no experience");

    succeed(&["export", "--run-dir", &second, "--out", &again]);
    let stored = lines(Path::new(&again));
    let of = |line: &Value| {
        let mut found = stored.iter().filter(|found| found["seed"] == line["seed"]);
        found.next().unwrap()
    };
    let unhinted = of(&collected[0]);
    assert_eq!(unhinted["instruction"], instruction);
    let (new, old) = (&unhinted["id"], &collected[0]["id"]);
    assert_ne!(new, old, "another run's identities are others");
    let log_probs = unhinted["steps"][0]["decision"]["rollout_log_probs"].as_array();
    let drawn = |lp: &Value| lp.as_f64().unwrap() < 0.0;
    assert!(log_probs.unwrap().iter().any(drawn));
    let kept = &of(&collected[1])["steps"];
    assert_eq!(
        *kept, collected[1]["steps"],
        "without a hint nothing changes"
    );
}

#[test]
fn a_pool_that_is_off_cannot_be_filled() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run").to_str().unwrap().to_owned();
    let off = [
        "curation.pool.enabled=false",
        "prefill.folders=[\"nowhere\"]",
    ];
    let refused = run(&arguments(&run_dir, &off));
    assert!(!refused.status.success());
    let said = stderr(&refused);
    assert!(said.contains("curation.pool.enabled"), "{said}");
}
