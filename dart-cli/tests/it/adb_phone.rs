//! Training on the simulated phone behind a real ADB server: however the trainer ends, the server
//! and its folder end with it.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use dart_testkit::suite::gate;
use serde_json::Value;

use crate::program::{program, stderr};

/// Settings that make a run short.
const SHORT: &[&str] = &[
    "environment.phone.families=[\"toggle-setting\"]",
    "evaluation.environments=2",
    "evaluation.episodes=2",
    "evaluation.splits=[\"layouts\"]",
    "evaluation.untrained_episodes=2",
    "rollout.environments=2",
    "warm_start.max_steps=3",
    "warm_start.pool_seeds=2",
    "curation.groups_per_batch=1",
    "curation.max_groups_per_batch=1",
];

/// A folder of one test: its run, and what else the trainer leaves there.
struct Place(tempfile::TempDir);

impl Place {
    /// Unless there is no `adb`, which is said.
    #[allow(clippy::print_stdout, reason = "a skip has to be seen")]
    fn new(test: &str) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|folder| folder.join("adb").is_file());
        let found = found.then_some(()).ok_or("adb is not installed".to_owned());
        if let Some(why) = gate("adb", found) {
            println!("skipped: {test}: {why} (DART_TEST_REQUIRE=adb insists)");
            return None;
        }
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.temporary()).unwrap();
        Some(place)
    }

    fn run(&self) -> PathBuf {
        self.0.path().join("run")
    }

    fn temporary(&self) -> PathBuf {
        self.0.path().join("temporary")
    }

    fn training(&self, more: &[&str]) -> Command {
        let run = self.run();
        let mut command = program(&["train", "--config", "configs/adb-sim.toml", "--run-dir"]);
        command.arg(run).env("TMPDIR", self.temporary());
        for setting in SHORT.iter().chain(more) {
            command.args(["--set", setting]);
        }
        command
    }

    /// A run that has begun to learn by itself, in a process group of its own.
    fn endless(&self, more: &[&str]) -> Child {
        let mut command = self.training(&[&["training.max_seconds=3600"], more].concat());
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.process_group(0).spawn().unwrap();
        eventually("training begins", || {
            assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
            self.learner_steps() > 0
        });
        child
    }

    fn learner_steps(&self) -> usize {
        let lines = fs::read_to_string(self.run().join("metrics.jsonl")).unwrap_or_default();
        lines.matches("policy-gradient").count()
    }

    /// Process ids and names of those whose home is in this folder: servers, and their watchers.
    fn processes(&self) -> Vec<(u32, String)> {
        let home = format!("HOME={}/dart-adb-", self.temporary().display());
        let mut processes = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let id = entry.file_name().to_str().and_then(|id| id.parse().ok());
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            if variables.any(|variable| variable.starts_with(home.as_bytes())) {
                let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                processes.extend(id.map(|id| (id, name.trim().to_owned())));
            }
        }
        processes
    }

    fn servers(&self) -> Vec<u32> {
        let all = self.processes().into_iter();
        all.filter_map(|(id, name)| (name == "adb").then_some(id))
            .collect()
    }

    fn nothing_is_left(&self) {
        eventually("the server is gone", || self.processes().is_empty());
        let left = || fs::read_dir(self.temporary()).unwrap().count();
        eventually("its folder is gone", || left() == 0);
    }

    fn summary(&self) -> Value {
        summary(&self.run())
    }
}

fn summary(run: &Path) -> Value {
    serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Sends a signal, as `kill` does: to a process, or with a minus to a group.
fn send(signal: &str, to: &str) {
    let killed = Command::new("kill").args([signal, "--", to]).status();
    assert!(killed.unwrap().success(), "kill {signal} {to}");
}

#[test]
fn a_run_goes_through_the_server_and_leaves_nothing() {
    let Some(place) = Place::new("adb phone") else {
        return;
    };
    let output = place.training(&["training.max_steps=2"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let summary = place.summary();
    assert_eq!(summary["learner_steps"], 2);
    for stage in ["untrained", "warm_start", "final"] {
        let found = &summary["held_out"][stage]["layouts"];
        assert_eq!(found["episodes"], 2, "{stage}: {summary}");
    }
    place.nothing_is_left();
}

#[test]
fn control_c_at_the_terminal_reaches_the_trainer_alone() {
    let Some(place) = Place::new("adb phone, SIGINT") else {
        return;
    };
    let mut child = place.endless(&[]);
    assert!(!place.servers().is_empty());
    send("-INT", &format!("-{}", child.id()));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(place.summary()["completed"], false);
    place.nothing_is_left();
}

#[test]
fn a_killed_trainer_leaves_no_server() {
    let Some(place) = Place::new("adb phone, SIGKILL") else {
        return;
    };
    let mut child = place.endless(&[]);
    assert!(!place.servers().is_empty());
    send("-KILL", &child.id().to_string());
    assert_eq!(child.wait().unwrap().code(), None);
    place.nothing_is_left();
}

#[test]
fn training_survives_the_death_of_the_server() {
    let Some(place) = Place::new("adb phone, server killed") else {
        return;
    };
    let mut child = place.endless(&["rollout.backoff_initial_ms=50"]);
    let before = place.servers();
    for id in &before {
        send("-KILL", &id.to_string());
    }
    eventually("another server is started", || {
        let now = place.servers();
        !now.is_empty() && now.iter().all(|id| !before.contains(id))
    });
    let steps = place.learner_steps();
    eventually("it goes on learning", || place.learner_steps() > steps + 2);
    send("-INT", &child.id().to_string());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    place.nothing_is_left();
}
