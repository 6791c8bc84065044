//! Folders, files, disks and readers that fail: what the user is told, and what goes on.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use dart_testkit::files::copy_folder;
use serde_json::Value;

use crate::{
    durable::{begin, interrupt, newest, resume, strs, wait_until},
    program::{program, run, stderr, succeed},
};

/// A run of a few steps whose screenshots are files.
fn short_run(run_dir: &Path) {
    let settings = ["training.max_steps=2", "store.inline_kilobytes=0"];
    succeed(&strs(&begin(run_dir, &settings)));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// It failed, with one line that has all of `parts`.
fn refused(output: &Output, parts: &[&str]) {
    let said = stderr(output);
    assert!(!output.status.success(), "it succeeded: {said}");
    let errors: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "{said}");
    for part in parts {
        assert!(
            errors[0].contains(part),
            "`{part}` is not in: {}",
            errors[0]
        );
    }
    assert!(
        errors[0].len() < 800 && !said.contains("CREATE TABLE"),
        "{said}"
    );
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn of_two_runs_in_one_new_folder_one_writes() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let run_dir = folder.path().join(format!("run-{round}"));
        let start = |seed: &str| {
            let mut arguments = begin(&run_dir, &["training.max_steps=0"]);
            arguments.extend(["--seed".to_owned(), seed.to_owned()]);
            let mut command = program(&strs(&arguments));
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let both = [start("1"), start("2")].map(|child| child.wait_with_output().unwrap());
        let winners: Vec<_> = both
            .iter()
            .filter(|output| output.status.success())
            .collect();
        assert_eq!(
            winners.len(),
            1,
            "{} {}",
            stderr(&both[0]),
            stderr(&both[1])
        );
        let winner = usize::from(both[1].status.success());
        let said = stderr(&both[1 - winner]);
        let clear =
            said.contains("is in use by the process") || said.contains("already holds a run");
        assert!(clear, "{said}");
        let config = fs::read_to_string(run_dir.join("config.toml")).unwrap();
        let seed = format!("seed = {}\n", winner + 1);
        assert!(
            config.contains(&seed),
            "the config is the winner's: {config}"
        );
    }
}

#[test]
fn a_lost_or_damaged_store_is_refused_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base");
    short_run(&base);
    let whole = newest(&base);
    let whole = whole.file_name().unwrap().to_str().unwrap();
    let broken = |name: &str, breaks: &dyn Fn(&Path)| -> PathBuf {
        let run_dir = folder.path().join(name);
        copy_folder(&base, &run_dir).unwrap();
        breaks(&run_dir.join("store"));
        run_dir
    };
    let without_journal = |store: &Path| {
        for end in ["-wal", "-shm"] {
            let _ = fs::remove_file(store.join(format!("trajectories.sqlite{end}")));
        }
    };
    let database = |store: &Path| store.join("trajectories.sqlite");

    let emptied = broken("emptied", &|store| fs::write(database(store), "").unwrap());
    let gone = broken("gone", &|store| {
        without_journal(store);
        fs::remove_file(database(store)).unwrap();
    });
    let garbled = broken("garbled", &|store| {
        // Everything is in the file: whoever opens it to write puts the journal there.
        let mut bytes = fs::read(database(store)).unwrap();
        without_journal(store);
        let third = bytes.len() / 3;
        bytes[third..2 * third].fill(0xff);
        fs::write(database(store), bytes).unwrap();
    });
    let no_database = broken("no-database", &|store| {
        without_journal(store);
        fs::write(database(store), vec![b'x'; 40_960]).unwrap();
    });
    for run_dir in [&emptied, &gone, &garbled, &no_database] {
        let output = run(&strs(&resume(run_dir, 4)));
        refused(
            &output,
            &["trajectories.sqlite", "import", "checkpoints", whole],
        );
        let verified = run(&["inspect", "--run-dir", text(run_dir), "--verify"]);
        refused(&verified, &["damaged"]);
        let listed = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert!(listed.contains(&format!("{whole}       whole")), "{listed}");
        let json = run(&["inspect", "--run-dir", text(run_dir), "--verify", "--json"]);
        assert!(!json.status.success());
        let found: Value = serde_json::from_slice(&json.stdout).unwrap();
        let audited = found["audit"]["problems"].as_array();
        assert!(found["problem"].is_string() || audited.is_some_and(|all| !all.is_empty()));
    }

    // Another store in its place.
    let replaced = broken("replaced", &|store| fs::remove_dir_all(store).unwrap());
    let output = run(&strs(&resume(&replaced, 4)));
    refused(&output, &["store", "lost or replaced", whole]);
}

#[test]
fn an_export_that_leaves_something_out_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    short_run(&run_dir);
    let out = |name: &str| text(&folder.path().join(name)).to_owned();
    let export = |name: &str, more: &[&str]| {
        run(&[
            &["export", "--run-dir", text(&run_dir), "--out", &out(name)],
            more,
        ]
        .concat())
    };
    let unknown = export("unknown", &["--task", "unknown"]);
    refused(&unknown, &["unknown", "there is", "click-button"]);
    assert!(!folder.path().join("unknown").exists(), "nothing was begun");
    assert!(export("whole", &[]).status.success());
    let lines = |name: &str| {
        let lines = fs::read_to_string(folder.path().join(name).join("trajectories.jsonl"));
        lines.unwrap().lines().count()
    };

    let shelves = fs::read_dir(run_dir.join("store/blobs")).unwrap();
    let shelves = shelves.map(|shelf| shelf.unwrap());
    let shelf = shelves
        .into_iter()
        .find(|shelf| shelf.file_name().len() == 2)
        .unwrap();
    let blob = fs::read_dir(shelf.path()).unwrap().next().unwrap().unwrap();
    fs::write(blob.path(), "torn").unwrap();
    let damaged = export("rest", &[]);
    refused(&damaged, &["damaged and left out", "inspect --verify"]);
    let left_out = lines("whole") - lines("rest");
    assert!(left_out > 0 && lines("rest") > 0);
    let count = format!("error: {left_out} trajectories");
    assert!(stderr(&damaged).contains(&count), "{}", stderr(&damaged));
}

#[test]
fn readers_may_leave() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    short_run(&run_dir);
    let commands: [&[&str]; 4] = [
        &["show", "--list", "--run-dir", text(&run_dir)],
        &["inspect", "--run-dir", text(&run_dir)],
        &["inspect", "--trajectories", "--run-dir", text(&run_dir)],
        &["train", "--dry-run"],
    ];
    for arguments in commands {
        let mut command = program(arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert_eq!(stderr(&output), "", "{arguments:?}");
    }
    // A run goes on when nobody reads what it says.
    let mut command = program(&strs(&resume(&run_dir, 3)));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert!(child.wait().unwrap().success());
    let state = fs::read(newest(&run_dir).join("run.json")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    assert_eq!(state["ring"]["steps"], 3);

    let listed = succeed(&["show", "--list", "--run-dir", text(&run_dir)]);
    assert!(
        listed.contains(", success, ") || listed.contains(", failure, "),
        "{listed}"
    );
    assert!(!listed.contains("Scored"), "{listed}");
    let page = succeed(&["show", "--run-dir", text(&run_dir)]);
    let page = fs::read_to_string(page.trim()).unwrap();
    assert!(page.contains("<td>outcome<td>"), "it has an outcome");
    for code in [
        "Scored {",
        "Click {",
        "Completed",
        "StepLimit",
        "PolicyFault",
    ] {
        assert!(!page.contains(code), "`{code}` is on the page");
    }
}

/// Metrics are not worth a run.
#[test]
fn a_run_outlives_its_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    fs::create_dir(&run_dir).unwrap();
    for name in ["metrics.jsonl", "events.jsonl"] {
        symlink("/dev/full", run_dir.join(name)).unwrap();
    }
    let output = run(&strs(&begin(&run_dir, &["training.max_steps=2"])));
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    for name in ["metrics.jsonl", "events.jsonl"] {
        let warnings = said
            .lines()
            .filter(|line| line.contains("WARN") && line.contains(name));
        assert_eq!(warnings.count(), 1, "{name}: {said}");
    }
    // Somebody may keep it in a file, where colours are noise.
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn the_time_of_an_interrupted_warm_start_counts() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    let settings = ["warm_start.max_steps=100000", "warm_start.max_seconds=3600"];
    let mut command = program(&strs(&begin(&run_dir, &settings)));
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the warm start begins", || {
        let lines = fs::read_to_string(run_dir.join("metrics.jsonl")).unwrap_or_default();
        lines.matches("imitation").count() >= 2
    });
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(interrupt(&mut child), 130);
    let seconds = |json: &Value| json["train_seconds"].as_f64().unwrap();
    let state = fs::read(newest(&run_dir).join("run.json")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    let before = seconds(&state["summary"]);
    assert!(before >= 2.0, "{before}");
    let mut arguments = resume(&run_dir, 0);
    arguments.extend(["--set".to_owned(), "warm_start.max_steps=1".to_owned()]);
    succeed(&strs(&arguments));
    let summary = fs::read(run_dir.join("summary.json")).unwrap();
    let after = seconds(&serde_json::from_slice(&summary).unwrap());
    assert!(after > before, "{after} is not more than {before}");
}

#[test]
fn an_import_refuses_what_training_could_not_use() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    short_run(&run_dir);
    let out = folder.path().join("out");
    succeed(&[
        "export",
        "--run-dir",
        text(&run_dir),
        "--out",
        text(&out),
        "--limit",
        "3",
    ]);
    let file = out.join("trajectories.jsonl");
    let lines = fs::read_to_string(&file).unwrap();
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let cases: [(&str, Value, &str); 8] = [
        (
            "/steps/0/decision/token_ids/0",
            u32::MAX.into(),
            "4294967295",
        ),
        (
            "/steps/0/decision/prompt/token_ids/0",
            1_000_000.into(),
            "prompt.token_ids",
        ),
        ("/task/horizon", 0.into(), "task.horizon"),
        ("/steps", Value::Array(Vec::new()), "no steps"),
        (
            "/steps/0/decision/temperature",
            (-1.0).into(),
            "temperature",
        ),
        (
            "/steps/0/decision/rollout_log_probs/0",
            0.5.into(),
            "log-probs",
        ),
        (
            "/steps/0/decision/prompt/images/0/image",
            7.into(),
            "image 7",
        ),
        ("/steps/0/act_ms", (-1.0).into(), "act_ms"),
    ];
    for (place, value, named) in cases {
        let mut odd = first.clone();
        odd["outcome"] = serde_json::json!({"kind": "scored", "reward": 0.0});
        *odd.pointer_mut(place).unwrap() = value;
        fs::write(&file, format!("{odd}\n")).unwrap();
        let output = run(&["import", "--run-dir", text(&run_dir), "--from", text(&out)]);
        refused(&output, &["trajectories.jsonl:1", named]);
    }
    fs::write(&file, lines).unwrap();
    succeed(&["import", "--run-dir", text(&run_dir), "--from", text(&out)]);
}
