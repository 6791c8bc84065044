//! OSWorld-format tasks on a real desktop of this machine with real programs: each has a scripted
//! solution that scores 1 and a wrong one that scores 0.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use dart_core::{
    Action, Environment, EnvironmentFactory, ErrorKind, Split, StepStatus, StopReason, Task,
};
use dart_env_vnc::osworld::{
    Evaluator, GuestConfig, HostExec, LocalConfig, OsworldConfig, OsworldFactory, TaskFile,
};

use serde::Deserialize;

use crate::needs;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/osworld")
}

/// What `cargo xtask setup` installs is there.
fn installed(suite: &str, programs: &[&str]) -> bool {
    missing(programs).is_none_or(|why| needs::skip(suite, &why))
}

/// Programs are there that are too large for every machine.
fn installed_too(suite: &str, programs: &[&str]) -> bool {
    missing(programs).is_none_or(|why| needs::skip_unless_wanted(suite, &why))
}

/// Which of the programs that the tasks of `programs` need is not installed.
fn missing(programs: &[&str]) -> Option<String> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &&str| std::env::split_paths(&search).any(|dir| dir.join(name).is_file());
    let mut needed = ["Xtigervnc", "openbox", "wmctrl"].iter().chain(programs);
    let missing = needed.find(|name| !has(name))?;
    Some(format!("{missing} is not installed"))
}

fn config() -> OsworldConfig {
    OsworldConfig {
        tasks_dir: data().join("tasks"),
        files_dir: Some(data().join("files")),
        skip_unsupported: true,
        guest: GuestConfig::Local(LocalConfig {
            width: 1024,
            height: 768,
            ..LocalConfig::default()
        }),
        ..OsworldConfig::default()
    }
}

/// One line of a script: `type TEXT`, `keys A+B`, `wait MILLIS`, `done` or `fail`.
fn action(line: &str) -> Action {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    match verb {
        "type" => Action::Type {
            text: rest.to_owned(),
        },
        "keys" => Action::Hotkey {
            keys: rest.split('+').map(|key| key.parse().unwrap()).collect(),
        },
        "wait" => Action::Wait {
            millis: rest.parse().unwrap(),
        },
        "done" => Action::Done,
        "fail" => Action::Fail,
        other => panic!("{other} is no line of a script"),
    }
}

/// A task with what solves it and what does not.
#[derive(Deserialize)]
struct Script {
    task: String,
    right: Vec<String>,
    wrong: Vec<String>,
}

/// Writes the last frame where `DART_TEST_DUMP` says, to see what went wrong.
async fn dump(env: &mut dyn Environment, name: &str) {
    let Some(folder) = std::env::var_os("DART_TEST_DUMP") else {
        return;
    };
    let Ok(step) = env.step(&Action::Wait { millis: 1 }).await else {
        return;
    };
    let frame = step.observation.frame;
    let mut ppm = format!("P6 {} {} 255\n", frame.size().width, frame.size().height).into_bytes();
    ppm.extend(frame.rgb());
    std::fs::write(Path::new(&folder).join(format!("{name}.ppm")), ppm).unwrap();
}

async fn play(
    env: &mut dyn Environment,
    task: &Task,
    script: &[impl AsRef<str>],
    name: &str,
) -> f64 {
    let reset = env.reset(task, 0).await.unwrap();
    assert!(!reset.instruction.is_empty());
    for line in script.iter().map(AsRef::as_ref) {
        if matches!(line, "done" | "fail") {
            dump(env, name).await;
        }
        let step = env.step(&action(line)).await;
        let step = step.unwrap_or_else(|error| panic!("{name}: {line}: {error}"));
        let last = matches!(line, "done" | "fail");
        assert_eq!(
            step.status == StepStatus::Terminated,
            last,
            "{name}: {line}"
        );
    }
    let score = env
        .score()
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    // Asking again neither takes the last steps again nor changes the answer.
    assert_eq!(env.score().await.unwrap(), score, "{name}");
    score.value()
}

/// The tasks of the folder that are supported, by name.
fn tasks(config: &OsworldConfig, host_exec: HostExec) -> Vec<Task> {
    config.tasks(Split::Train, host_exec).unwrap()
}

/// Plays the scripts of `group` in `scripts.json`.
async fn run(group: &str, host_exec: HostExec) {
    let text = std::fs::read_to_string(data().join("scripts.json")).unwrap();
    let mut groups: BTreeMap<String, Vec<Script>> = serde_json::from_str(&text).unwrap();
    let scripts = groups.remove(group).unwrap();
    let config = config();
    let tasks = tasks(&config, host_exec);
    let factory = OsworldFactory::new(config, host_exec).unwrap();
    let mut env = factory.create().await.unwrap();
    for Script { task, right, wrong } in &scripts {
        let id = format!("osworld.{task}");
        let found = tasks.iter().find(|t| t.id.as_str() == id);
        let found = found.unwrap_or_else(|| panic!("{task} is not supported"));
        let solved = play(&mut *env, found, right, &format!("{task}.right")).await;
        assert_eq!(solved, 1.0, "{task}: the right script");
        let failed = play(&mut *env, found, wrong, &format!("{task}.wrong")).await;
        assert_eq!(failed, 0.0, "{task}: the wrong script");
    }
    env.close().await.unwrap();
    env.close().await.unwrap();
}

#[tokio::test]
async fn text_editor() {
    if installed("osworld-editor", &["mousepad"]) {
        run("editor", HostExec::Denied).await;
    }
}

/// A task with commands of its own runs only where the command line says so.
#[tokio::test]
async fn commands_on_this_machine() {
    if !installed("osworld-editor", &["mousepad"]) {
        return;
    }
    let denied = tasks(&config(), HostExec::Denied);
    assert!(
        denied
            .iter()
            .all(|task| task.id.as_str() != "osworld.count-lines")
    );
    run("commands", HostExec::Allowed).await;
}

#[tokio::test]
async fn browser() {
    if installed("osworld-browser", &["chromium"]) {
        run("browser", HostExec::Denied).await;
    }
}

#[tokio::test]
async fn image_editor() {
    if installed_too("osworld-gimp", &["gimp"]) {
        run("gimp", HostExec::Denied).await;
    }
}

/// VLC refuses to run as root, so this also shows that programs run as somebody else.
#[tokio::test]
async fn media_player() {
    if installed_too("osworld-vlc", &["vlc"]) {
        run("vlc", HostExec::Denied).await;
    }
}

#[tokio::test]
async fn office() {
    if installed_too("osworld-office", &["localc", "lowriter"]) {
        run("office", HostExec::Denied).await;
    }
}

/// Saying "it cannot be done" is right for nothing but what cannot be done; running out of steps is
/// not saying it.
#[tokio::test]
async fn giving_up_and_running_out_of_steps() {
    if !installed("osworld-editor", &["mousepad"]) {
        return;
    }
    let config = config();
    let tasks = tasks(&config, HostExec::Denied);
    let named = |name: &str| {
        tasks
            .iter()
            .find(|t| t.id.as_str() == name)
            .unwrap()
            .clone()
    };
    let factory = OsworldFactory::new(config, HostExec::Denied).unwrap();
    let mut env = factory.create().await.unwrap();
    let greeting = named("osworld.write-greeting");
    let solved_and_given_up = ["type hello world", "keys ctrl+s", "wait 300", "fail"];
    assert_eq!(
        play(&mut *env, &greeting, &solved_and_given_up, "given-up").await,
        0.0
    );

    let mut infeasible = named("osworld.fly-to-the-moon");
    infeasible.horizon = 2;
    env.reset(&infeasible, 0).await.unwrap();
    env.step(&action("wait 1")).await.unwrap();
    let step = env.step(&action("wait 1")).await.unwrap();
    assert_eq!(step.status, StepStatus::Truncated(StopReason::StepLimit));
    assert_eq!(env.score().await.unwrap().value(), 0.0);

    // A solved task counts although its steps ran out.
    let mut short = greeting.clone();
    short.horizon = 3;
    env.reset(&short, 0).await.unwrap();
    for line in ["type hello world", "keys ctrl+s", "wait 300"] {
        env.step(&action(line)).await.unwrap();
    }
    assert_eq!(env.score().await.unwrap().value(), 1.0);
    env.close().await.unwrap();
}

/// What an episode leaves behind is gone before the next, and nothing outlives the environment.
#[tokio::test]
async fn episodes_share_nothing() {
    if !installed("osworld-editor", &["mousepad"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    let GuestConfig::Local(local) = &mut config.guest else {
        panic!("a local guest");
    };
    local.directory = Some(folder.path().to_owned());
    let task = tasks(&config, HostExec::Denied);
    let task = task
        .iter()
        .find(|t| t.id.as_str() == "osworld.write-greeting")
        .unwrap();
    let factory = OsworldFactory::new(config, HostExec::Denied).unwrap();
    let mut env = factory.create().await.unwrap();
    let copied = [
        "type hello world",
        "keys ctrl+a",
        "keys ctrl+c",
        "keys ctrl+s",
        "wait 300",
    ];
    let locked = ["keys capslock", "done"];
    let solution = [&copied[..], &locked].concat();
    assert_eq!(play(&mut *env, task, &solution, "first").await, 1.0);
    // Untouched, the second one finds nothing of the first.
    assert_eq!(
        play(&mut *env, task, &["wait 1", "done"], "second").await,
        0.0
    );
    // Nor does the clipboard hold anything, although pasting works within an episode.
    let pasted = ["keys ctrl+v", "wait 300", "keys ctrl+s", "wait 300", "done"];
    assert_eq!(play(&mut *env, task, &pasted, "pasted").await, 0.0);
    let cut = ["type hello world", "keys ctrl+a", "keys ctrl+x", "wait 300"];
    let again = [&cut[..], &pasted].concat();
    assert_eq!(play(&mut *env, task, &again, "again").await, 1.0);
    let mut seen = Vec::new();
    for desktop in std::fs::read_dir(folder.path()).unwrap() {
        for entry in std::fs::read_dir(desktop.unwrap().path()).unwrap() {
            seen.push(entry.unwrap().file_name().display().to_string());
        }
    }
    let sessions = seen.iter().filter(|name| name.starts_with("s-")).count();
    assert_eq!(sessions, 1, "{seen:?}");
    env.close().await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let error = env.reset(task, 0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse);
}

/// A command gets no rights, and where this process is root it is not root; what it starts ends with
/// its episode, even out of its group, its session and its environment.
#[tokio::test]
async fn commands_are_confined() {
    if !installed("osworld-editor", &["mousepad"]) {
        return;
    }
    let config = config();
    let tasks = tasks(&config, HostExec::Allowed);
    let named = |t: &&Task| t.id.as_str() == "osworld.write-greeting";
    let mut task = tasks.iter().find(named).unwrap().clone();
    let command =
        |text: &str| serde_json::json!({"type": "vm_command_line", "command": text, "shell": true});
    // What a user of its own ran is known by its owner, and otherwise by its environment.
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let away = if root { "env -i setsid" } else { "setsid" };
    let checks = "grep -q 'NoNewPrivs:.1' /proc/self/status && [ \"$(ulimit -c)\" = 0 ] && \
        [ \"$(id -u)\" != 0 ] && [ \"$HOME\" = /home/user ] && [ -w /tmp ] && pwd | grep -qx /home/user \
        && AWAY sleep 271.25 >&- 2>&- & sleep 0.3; echo ended";
    let count = "grep -als '271[.]25' /proc/[0-9]*/cmdline | wc -l";
    task.params["config"] = serde_json::json!([]);
    task.params["evaluator"] = serde_json::json!({
        "func": ["exact_match", "exact_match"],
        "result": [command(&checks.replace("AWAY", away)), command(count)],
        "expected": [{"type": "rule", "rules": {"expected": "ended\n"}},
                     {"type": "rule", "rules": {"expected": "1\n"}}],
    });
    let factory = OsworldFactory::new(config, HostExec::Allowed).unwrap();
    let mut env = factory.create().await.unwrap();
    assert_eq!(play(&mut *env, &task, &["done"], "confined").await, 1.0);
    env.close().await.unwrap();
    let runs = std::fs::read_dir("/proc").unwrap().any(|entry| {
        let line = std::fs::read(entry.unwrap().path().join("cmdline"));
        line.is_ok_and(|line| line == b"sleep\x00271.25\0")
    });
    assert!(!runs, "it is still running");
}

/// The X server of the desktop in `folder`.
fn x_server(folder: &Path) -> u32 {
    let folder = folder.display().to_string();
    let is_server = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&line);
        // Its supervisor's command line has the same words, and is a shell's.
        text.starts_with("Xtigervnc") && text.contains(&folder)
    };
    let all = std::fs::read_dir("/proc").unwrap();
    let mut pids = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.find(is_server).unwrap()
}

/// A desktop that dies in the middle of an episode is an error and never a score; the next reset
/// has another one.
#[tokio::test]
async fn a_desktop_that_dies_is_replaced() {
    if !installed("osworld-editor", &["mousepad"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    let GuestConfig::Local(local) = &mut config.guest else {
        panic!("a local guest");
    };
    local.directory = Some(folder.path().to_owned());
    let tasks = tasks(&config, HostExec::Denied);
    let task = tasks
        .iter()
        .find(|t| t.id.as_str() == "osworld.write-greeting")
        .unwrap();
    let factory = OsworldFactory::new(config, HostExec::Denied).unwrap();
    let mut env = factory.create().await.unwrap();
    env.reset(task, 0).await.unwrap();
    let pid = x_server(folder.path()).to_string();
    let killed = std::process::Command::new("kill")
        .args(["-9", &pid])
        .status();
    assert!(killed.unwrap().success());
    let error = env.step(&action("type hello world")).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(env.score().await.is_err());
    let solution = ["type hello world", "keys ctrl+s", "wait 300", "done"];
    assert_eq!(play(&mut *env, task, &solution, "replaced").await, 1.0);
    env.close().await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// What a task file asks for is refused before anything is started.
#[tokio::test]
async fn a_hostile_task_file_reaches_nothing() {
    if !installed("osworld-editor", &["mousepad"]) {
        return;
    }
    let config = config();
    let mut task = tasks(&config, HostExec::Denied).remove(0);
    let factory = OsworldFactory::new(config, HostExec::Denied).unwrap();
    let mut env = factory.create().await.unwrap();
    let marker = std::env::temp_dir().join(format!("dart-hostile-{}", std::process::id()));
    let touch = format!("touch {}", marker.display());
    for step in [
        serde_json::json!({"type": "execute", "parameters": {"command": touch.clone(), "shell": true}}),
        serde_json::json!({"type": "execute", "parameters": {"command": touch.clone()}}),
        serde_json::json!({"type": "launch", "parameters": {"command": touch.clone()}}),
        serde_json::json!({"type": "launch", "parameters": {"command": ["mousepad", "/etc/passwd"]}}),
        serde_json::json!({"type": "launch", "parameters": {"command": "mousepad", "shell": true}}),
        serde_json::json!({"type": "open", "parameters": {"path": "/home/user/../../etc/a.txt"}}),
    ] {
        task.params["config"] = serde_json::json!([step]);
        let error = env.reset(&task, 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{step}");
        assert!(!error.is_retryable());
    }
    assert!(!marker.exists());
    env.close().await.unwrap();
}

#[test]
fn the_tasks_of_this_suite_cover_every_native_metric_but_two() {
    let files = TaskFile::read_all(&data().join("tasks")).unwrap();
    assert!(files.len() >= 12, "{}", files.len());
    let mut metrics: Vec<String> = files
        .iter()
        .flat_map(|file| match &file.task.evaluator {
            Evaluator::Infeasible => vec!["infeasible".to_owned()],
            Evaluator::Checks { checks, .. } => checks.iter().map(|c| c.func.clone()).collect(),
        })
        .collect();
    metrics.sort();
    metrics.dedup();
    // Without check_direct_json_object and match_in_list.
    assert_eq!(metrics.len(), 13, "{metrics:?}");
}
