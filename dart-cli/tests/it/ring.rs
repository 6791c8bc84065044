//! The whole ring, small: trains, resumes, evaluates, shows; and repeats itself on the simulated clock.

use std::{
    fs,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::program::{program, run, stderr, succeed};

/// Settings that make a run short.
const SHORT: &[&str] = &[
    "--config",
    "configs/ci.toml",
    "--set",
    "environment.families=[\"click-button\",\"slider\"]",
    "--set",
    "warm_start.max_steps=3",
    "--set",
    "warm_start.pool_seeds=2",
    "--set",
    "curation.groups_per_batch=2",
    "--set",
    "curation.max_groups_per_batch=2",
    "--set",
    "evaluation.episodes=4",
    "--set",
    "evaluation.untrained_episodes=2",
    "--set",
    "training.checkpoint_every=1",
];

fn summary(run_dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(run_dir.join("summary.json")).unwrap()).unwrap()
}

fn train(run_dir: &Path, more: &[&str]) -> Vec<String> {
    let mut arguments = vec!["train", "--run-dir", run_dir.to_str().unwrap()];
    arguments.extend(SHORT);
    arguments.extend(more);
    arguments
        .iter()
        .map(|argument| (*argument).to_owned())
        .collect()
}

fn as_strs(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// The table of an evaluation has a line for each task, and `tasks.json` the same numbers.
fn check_task_table(table: &str, eval_dir: &Path) {
    let text = fs::read_to_string(eval_dir.join("tasks.json")).unwrap();
    let tasks: Value = serde_json::from_str(&text).unwrap();
    let layouts = &tasks["splits"]["layouts"];
    let scores = layouts["tasks"].as_object().unwrap();
    assert!(scores.len() >= 2, "{tasks}");
    let mut judged = 0;
    for (task, score) in scores {
        let line = table
            .lines()
            .find(|line| line.trim_start().starts_with(&format!("{task} ")));
        let line = line.unwrap_or_else(|| panic!("no line for {task}: {table}"));
        let success = format!("{:.3}", score["success"].as_f64().unwrap());
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            cells[1..3],
            [score["episodes"].to_string(), success],
            "{line}"
        );
        let episodes = score["episodes"].as_u64().unwrap();
        let failed = score["failures"].as_object().unwrap().values();
        let failed: u64 = failed.map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(
            episodes,
            score["successes"].as_u64().unwrap() + failed,
            "{score}"
        );
        judged += episodes;
    }
    assert_eq!(layouts["total"]["episodes"], judged);
    assert_eq!(layouts["episodes"].as_array().unwrap().len() as u64, judged);
    assert!(
        table.contains(&format!("all {} tasks", scores.len())),
        "{table}"
    );
}

#[test]
fn trains_resumes_evaluates_and_shows() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    let table = succeed(&as_strs(&train(
        &run_dir,
        &["--set", "training.max_steps=2"],
    )));
    assert!(
        table.contains("click-button") && table.contains("mean of families"),
        "{table}"
    );
    let first = summary(&run_dir);
    assert_eq!(first["learner_steps"], 2);
    assert!(first["trajectories"].as_u64().unwrap() >= 2);
    for stage in ["untrained", "warm_start", "final"] {
        assert!(
            first["held_out"][stage]["layouts"]["overall"].is_f64(),
            "{stage}: {first}"
        );
    }
    for file in ["config.toml", "metrics.jsonl", "events.jsonl"] {
        assert!(run_dir.join(file).is_file(), "{file}");
    }

    // The checkpoint evaluates to what the run found, and the run goes on from it.
    let eval_dir = folder.path().join("eval");
    let (run_text, eval_text) = (run_dir.to_str().unwrap(), eval_dir.to_str().unwrap());
    let table = succeed(&["eval", "--checkpoint", run_text, "--run-dir", eval_text]);
    check_task_table(&table, &eval_dir);
    let evaluated = summary(&eval_dir);
    assert_eq!(
        evaluated["held_out"]["final"]["layouts"],
        first["held_out"]["final"]["layouts"]
    );
    succeed(&[
        "train",
        "--run-dir",
        run_text,
        "--resume",
        "--set",
        "training.max_steps=3",
    ]);
    assert_eq!(summary(&run_dir)["learner_steps"], 3);

    let page = succeed(&["show", "--run-dir", run_text]);
    let page = fs::read_to_string(page.trim()).unwrap();
    assert!(
        page.contains("data:image/png;base64,"),
        "the page holds its pictures"
    );
    assert!(
        succeed(&["show", "--run-dir", run_text, "--list"])
            .lines()
            .count()
            >= 2
    );
}

#[test]
fn a_signal_ends_training_cleanly_and_it_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    let arguments = train(&run_dir, &["--set", "training.max_seconds=3600"]);
    let mut child = program(&as_strs(&arguments))
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_mins(4);
    let trained = || {
        fs::read_to_string(run_dir.join("metrics.jsonl"))
            .is_ok_and(|lines| lines.contains("policy-gradient"))
    };
    while !trained() {
        assert!(Instant::now() < deadline, "training never began");
        assert!(
            child.try_wait().unwrap().is_none(),
            "training ended by itself"
        );
        thread::sleep(Duration::from_millis(100));
    }
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let asked = Instant::now();
    let status = child.wait().unwrap();
    assert!(
        asked.elapsed() < Duration::from_mins(1),
        "it took {:?}",
        asked.elapsed()
    );
    println!("stopped {:?} after SIGINT", asked.elapsed());
    assert_eq!(status.code(), Some(130));
    assert_eq!(summary(&run_dir)["completed"], false);
    let steps = summary(&run_dir)["learner_steps"].as_u64().unwrap();
    let more = format!("training.max_steps={}", steps + 1);
    let run_text = run_dir.to_str().unwrap();
    succeed(&["train", "--run-dir", run_text, "--resume", "--set", &more]);
    assert_eq!(summary(&run_dir)["learner_steps"], steps + 1);
    assert_eq!(summary(&run_dir)["completed"], true);
}

#[test]
fn the_simulated_clock_repeats_itself() {
    let folder = tempfile::tempdir().unwrap();
    let events = |name: &str, seed: &str| {
        let run_dir = folder.path().join(name);
        let config = ["--config", "configs/simulated-clock.toml", "--seed", seed];
        let arguments = [
            &["train", "--run-dir", run_dir.to_str().unwrap()],
            &config[..],
        ]
        .concat();
        let output = run(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        fs::read_to_string(run_dir.join("events.jsonl")).unwrap()
    };
    let first = events("first", "7");
    assert!(first.lines().count() > 50, "{first}");
    assert!(first.contains("learner-step"), "{first}");
    assert_eq!(first, events("second", "7"));
    assert_ne!(first, events("other", "8"));
}

#[test]
fn a_budget_of_environment_steps_ends_a_run_and_makes_a_curve() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    let mut arguments = vec!["train", "--run-dir", run_dir.to_str().unwrap()];
    arguments.extend(["--config", "configs/simulated-clock.toml"]);
    for setting in [
        "clock.latencies={ step_median_ms = 10.0, reset_median_ms = 10.0 }",
        "training.max_steps=1000",
        "training.max_environment_steps=120",
        "evaluation.every_environment_steps=40",
    ] {
        arguments.extend(["--set", setting]);
    }
    let output = run(&arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    let summary = summary(&run_dir);
    let steps = summary["environment_steps"].as_u64().unwrap();
    let trajectories = summary["trajectories"].as_u64().unwrap();
    assert!(steps >= 120 && steps >= trajectories, "{summary}");
    assert!(summary["learner_steps"].as_u64().unwrap() < 1000);
    let curve = summary["curve"].as_array().unwrap();
    let at: Vec<u64> = curve
        .iter()
        .map(|point| point["environment_steps"].as_u64().unwrap() / 40)
        .collect();
    assert!(at.windows(2).all(|pair| pair[0] < pair[1]), "{curve:?}");
    assert!(at.len() <= 3 + 1 && at.last() >= Some(&3), "{curve:?}");
    for point in curve {
        assert!(point["held_out"]["layouts"]["overall"].is_f64(), "{point}");
    }
}
