//! What a run leaves behind survives its end, whatever the end is like.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use dart_testkit::{files::copy_folder, suite::gate};
use serde_json::Value;

use crate::program::{program, run, stderr, succeed};

/// A small run whose checkpoints are frequent and that never evaluates.
const SMALL: &[&str] = &[
    "environment.families=[\"click-button\"]",
    "warm_start.max_steps=12",
    "warm_start.pool_seeds=2",
    "curation.groups_per_batch=2",
    "curation.max_groups_per_batch=2",
    "rollout.environments=4",
    "evaluation.splits=[]",
    "training.checkpoint_every=2",
    "training.log_episodes=true",
    "training.max_seconds=3600",
];

pub(crate) fn begin(run_dir: &Path, settings: &[&str]) -> Vec<String> {
    let mut arguments: Vec<String> = ["train", "--config", "configs/ci.toml", "--run-dir"]
        .map(str::to_owned)
        .into();
    arguments.push(run_dir.to_str().unwrap().to_owned());
    for setting in SMALL.iter().chain(settings) {
        arguments.extend(["--set".to_owned(), (*setting).to_owned()]);
    }
    arguments
}

pub(crate) fn resume(run_dir: &Path, steps: u64) -> Vec<String> {
    let steps = format!("training.max_steps={steps}");
    let run_dir = run_dir.to_str().unwrap();
    ["train", "--resume", "--run-dir", run_dir, "--set", &steps]
        .map(str::to_owned)
        .into()
}

pub(crate) fn strs(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

pub(crate) fn newest(run_dir: &Path) -> PathBuf {
    let checkpoints = run_dir.join("checkpoints");
    let latest = fs::read_to_string(checkpoints.join("LATEST")).unwrap();
    checkpoints.join(latest.trim())
}

/// Scale document, reliability contract R2: resuming is bit-equal to never having stopped.
#[test]
fn twenty_steps_are_ten_and_ten_more() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base");
    // One rollout at a time and none beside the learner: nothing depends on timing.
    let settings = [
        "rollout.environments=1",
        "curation.max_in_flight=1",
        "curation.max_staleness=0",
        "training.checkpoint_every=10",
        "training.max_steps=0",
    ];
    succeed(&strs(&begin(&base, &settings)));
    let (straight, broken) = (folder.path().join("straight"), folder.path().join("broken"));
    copy_folder(&base, &straight).unwrap();
    copy_folder(&base, &broken).unwrap();
    succeed(&strs(&resume(&straight, 20)));
    succeed(&strs(&resume(&broken, 10)));
    succeed(&strs(&resume(&broken, 20)));
    let (straight, broken) = (newest(&straight), newest(&broken));
    assert_eq!(straight.file_name(), broken.file_name());
    for file in [
        "weights.safetensors",
        "optimizer.safetensors",
        "learner.json",
        "curator.json",
    ] {
        let same = fs::read(straight.join(file)).unwrap() == fs::read(broken.join(file)).unwrap();
        assert!(same, "{file} differs");
    }
    let base = fs::read(newest(&base).join("weights.safetensors")).unwrap();
    let learnt = fs::read(straight.join("weights.safetensors")).unwrap();
    assert!(base != learnt, "twenty steps change something");
}

fn events(run_dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run_dir.join("events.jsonl")).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn rows(run_dir: &Path) -> Vec<Value> {
    let run_dir = run_dir.to_str().unwrap();
    let lines = succeed(&["inspect", "--run-dir", run_dir, "--trajectories"]);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The short form of `cargo xtask crash`, which kills by the hundred.
#[test]
fn killed_at_any_point_it_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    let points = [
        "write.committed:5",
        "run.learner-saved:2",
        "checkpoint.renamed:2",
        "seal.uses-written:2",
        "run.pointer-written:1",
        "latest.written:2",
        "learner.stepped:3",
    ];
    for (index, point) in points.iter().enumerate() {
        let arguments = if index == 0 {
            begin(&run_dir, &[])
        } else {
            resume(&run_dir, 1_000_000)
        };
        let output = program(&strs(&arguments))
            .env("DART_FAULT", point)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), None, "{point}: {}", stderr(&output));
        assert!(
            stderr(&output).contains("fault point"),
            "{}",
            stderr(&output)
        );
    }
    let trained = events(&run_dir)
        .iter()
        .filter(|e| e["event"] == "commit")
        .count();
    succeed(&strs(&resume(&run_dir, trained as u64 + 1)));
    succeed(&[
        "inspect",
        "--run-dir",
        run_dir.to_str().unwrap(),
        "--verify",
    ]);
    let stored: BTreeSet<String> = rows(&run_dir)
        .iter()
        .map(|row| row["id"].as_str().unwrap().to_owned())
        .collect();
    let finished =
        |event: &&Value| event["event"] == "ingest" && event["outcome"]["kind"] != "aborted";
    let events = events(&run_dir);
    let acknowledged: Vec<_> = events.iter().filter(finished).collect();
    assert!(acknowledged.len() > 20);
    for event in acknowledged {
        assert!(
            stored.contains(event["trajectory"].as_str().unwrap()),
            "{event}"
        );
    }
}

pub(crate) fn interrupt(child: &mut std::process::Child) -> i32 {
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(killed.unwrap().success());
    child.wait().unwrap().code().unwrap()
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(3);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Case: a signal during the warm start used to lose it.
#[test]
fn a_warm_start_is_resumed_and_a_live_run_can_be_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    let run_text = run_dir.to_str().unwrap();
    let settings = ["warm_start.max_steps=100000", "warm_start.max_seconds=3600"];
    let start = |arguments: &[String]| {
        let mut command = program(&strs(arguments));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let imitated = || {
        let lines = fs::read_to_string(run_dir.join("metrics.jsonl")).unwrap_or_default();
        lines.matches("imitation").count()
    };
    let mut child = start(&begin(&run_dir, &settings));
    wait_until("the warm start begins", || imitated() >= 5);
    assert_eq!(interrupt(&mut child), 130);
    let before = imitated();
    let state: Value =
        serde_json::from_slice(&fs::read(newest(&run_dir).join("run.json")).unwrap()).unwrap();
    assert_eq!(state["warm_start"]["steps"].as_u64(), Some(before as u64));
    // Twelve more steps, then reinforcement learning.
    let steps = format!("warm_start.max_steps={}", before + 12);
    let mut arguments = resume(&run_dir, 1_000_000);
    arguments.extend(["--set".to_owned(), steps]);
    let mut child = start(&arguments);
    wait_until("a trajectory is stored", || {
        events(&run_dir)
            .iter()
            .any(|event| event["event"] == "ingest")
    });
    assert_eq!(imitated(), before + 12);
    let page = succeed(&["show", "--run-dir", run_text]);
    assert!(Path::new(page.trim()).is_file());
    let said = succeed(&["inspect", "--run-dir", run_text]);
    assert!(
        said.contains("trajectories") && said.contains("pointer"),
        "{said}"
    );
    assert!(child.try_wait().unwrap().is_none(), "it goes on meanwhile");
    assert_eq!(interrupt(&mut child), 130);
}

#[test]
fn what_is_exported_can_be_imported() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (first, second) = (path("first"), path("second"));
    succeed(&strs(&begin(Path::new(&first), &["training.max_steps=2"])));
    succeed(&strs(&begin(Path::new(&second), &["training.max_steps=0"])));
    let (out, again) = (path("out"), path("again"));
    let form = ["--format", "safetensors", "--limit", "30"];
    succeed(&[&["export", "--run-dir", &first, "--out", &out], &form[..]].concat());
    let lines = fs::read_to_string(folder.path().join("out/trajectories.jsonl")).unwrap();
    let exported: Vec<Value> = lines
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert!(exported.len() > 10);
    let refused = run(&["export", "--run-dir", &first, "--out", &out]);
    assert_eq!(refused.status.code(), Some(2), "it overwrites nothing");

    let said = succeed(&["import", "--run-dir", &second, "--from", &out]);
    assert!(
        said.starts_with(&format!("{} trajectories stored", exported.len())),
        "{said}"
    );
    let said = succeed(&["import", "--run-dir", &second, "--from", &out]);
    assert!(said.starts_with("0 trajectories stored"), "{said}");
    let limit = (exported.len() + 1000).to_string();
    succeed(&[
        "export",
        "--run-dir",
        &second,
        "--out",
        &again,
        "--limit",
        &limit,
    ]);
    let imported = fs::read_to_string(folder.path().join("again/trajectories.jsonl")).unwrap();
    let imported: BTreeSet<&str> = imported.lines().collect();
    assert!(
        lines.lines().all(|line| imported.contains(line)),
        "bit for bit the same"
    );

    arrays_agree(&folder.path().join("out"), &exported);
    let (image, refused) = import_with_a_wrong_image(folder.path(), &exported, &second);
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains(&image), "{}", stderr(&refused));
}

/// The arrays say the same as the lines.
fn arrays_agree(out: &Path, exported: &[Value]) {
    let bytes = fs::read(out.join("trajectories.safetensors")).unwrap();
    let arrays = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let steps: usize = exported
        .iter()
        .map(|t| t["steps"].as_array().unwrap().len())
        .sum();
    assert_eq!(arrays.tensor("version").unwrap().shape(), [steps]);
    assert_eq!(arrays.tensor("reward").unwrap().shape(), [exported.len()]);
    let tokens = arrays.tensor("tokens").unwrap().shape()[0];
    assert_eq!(arrays.tensor("log_probs").unwrap().shape(), [tokens]);
    assert_eq!(arrays.tensor("entropies").unwrap().shape(), [tokens]);
}

/// Puts one image in the place of another, and imports: the name of the damaged file, what came.
fn import_with_a_wrong_image(
    folder: &Path,
    exported: &[Value],
    into: &str,
) -> (String, std::process::Output) {
    let image = exported[0]["steps"][0]["image"].as_str().unwrap();
    let out = folder.join("out");
    let other = exported.iter().flat_map(|t| t["steps"].as_array().unwrap());
    let mut others = other.filter_map(|step| step["image"].as_str());
    let other = others.find(|other| *other != image).unwrap();
    fs::copy(out.join(other), out.join(image)).unwrap();
    let from = out.to_str().unwrap();
    let refused = run(&["import", "--run-dir", into, "--from", from]);
    (image.to_owned(), refused)
}

/// Starts training on a small file system that something else fills, then makes room.
const FULL_DISK: &str = r#"
mount -t tmpfs -o size=24m none "$1" || exit 77
cp "$2" "$1/checkpoint-needs-more-than-is-left"
free=$(( $(stat -f -c '%a * %S' "$1") ))
head -c $(( free - 1000000 )) /dev/zero > "$1/ballast" || exit 78
shift 2
"$@" 2> "$HOLD/said" > /dev/null &
child=$!
for _ in $(seq 600); do
    grep -q 'is full; waiting for room' "$HOLD/said" && break
    kill -0 $child || break
    sleep 0.2
done
rm "$DISK/ballast" "$DISK/checkpoint-needs-more-than-is-left"
wait $child
"#;

#[test]
fn a_checkpoint_waits_for_room_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, hold) = (folder.path().join("disk"), folder.path().join("hold"));
    fs::create_dir_all(&disk).unwrap();
    fs::create_dir_all(&hold).unwrap();
    let filler = hold.join("filler");
    fs::write(&filler, vec![1; 1 << 20]).unwrap();
    let train = begin(&disk.join("run"), &["training.max_steps=1"]);
    let train = program(&strs(&train));
    let child = std::process::Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            FULL_DISK,
            "sh",
        ])
        .args([&disk, &filler])
        .arg(train.get_program())
        .args(train.get_args())
        .current_dir(train.get_current_dir().unwrap())
        .envs([("DISK", &disk), ("HOLD", &hold)])
        .output();
    let available = match &child {
        Err(error) => Err(format!("unshare cannot be started: {error}")),
        Ok(output) => {
            let said = stderr(output);
            let refused = output.status.code() == Some(77) || said.contains("unshare:");
            let why = format!("no file system can be mounted here: {}", said.trim());
            if refused { Err(why) } else { Ok(()) }
        }
    };
    if let Some(why) = gate("tmpfs", available) {
        println!("skipped: a full disk; {why} (DART_TEST_REQUIRE=tmpfs insists)");
        return;
    }
    let output = child.unwrap();
    let said = fs::read_to_string(hold.join("said")).unwrap_or_default();
    assert!(output.status.success(), "{said} {}", stderr(&output));
    assert!(said.contains("is full; waiting for room"), "{said}");
}
