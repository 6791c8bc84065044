//! The apps of the simulated phone: every task in `configs/phone-tasks` is solved by its expert and
//! not solved by a wrong way, through AdbDevice, a real ADB server and the simulator.

use std::{collections::BTreeMap, path::Path, time::Duration};

use dart_cli::{World, adb_phone::AdbPhoneConfig, config::EnvironmentConfig};
use dart_core::{Action, Demonstrate, ScreenPx, Split, StepStatus, Task};
use dart_env_adb::tasks::{AndroidTask, Move, load};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What somebody does who has misread the instruction, by task.
const WRONG: &str = r#"
"apps.open" = [{ tap = "Recorder" }]
"settings.wifi-off" = [{ tap = "Settings" }, { tap = "Bluetooth" }]
"settings.dark-mode" = [{ tap = "Settings" }, { tap = "Dark mode" }, { tap = "Dark mode" }]
"settings.volume" = [{ tap = "Settings" }, { tap = "0" }]
"settings.about" = [{ tap = "Settings" }]
"settings.name" = [{ answer = "dart phone" }]
"contacts.add" = [{ tap = "Contacts" }, { tap = "New contact" }, { tap_field = 1 }, { type = "{name}" }, { tap_field = 0 }, { type = "{number}" }, { tap = "Save" }]
"contacts.delete" = [{ tap = "Contacts" }, { long_press = "ann" }, { tap = "Delete" }, { long_press = "bob" }, { tap = "Delete" }]
"contacts.number" = [{ tap = "Contacts" }, { tap = "mia" }, { answer = "77" }]
"contacts.call" = [{ tap = "Contacts" }, { tap = "mia" }, { tap = "Call" }]
"phone.dial" = [{ tap = "Phone" }, { tap_field = 0 }, { type = "{number}1" }, { tap = "Call" }]
"messages.send" = [{ tap = "Messages" }, { tap = "New message" }, { tap_field = 0 }, { type = "{number}" }, { tap_field = 1 }, { type = "{text}!" }, { tap = "Send" }]
"notes.write" = [{ tap = "Notes" }, { tap = "New note" }, { tap_field = 0 }, { type = "{title}" }, { tap = "Save" }]
"files.delete" = [{ tap = "Files" }, { long_press = "keep.txt" }, { tap = "Delete" }]
"files.rename" = [{ tap = "Files" }, { tap = "{name}.txt" }, { tap_field = 0 }, { type = "{new}" }, { tap = "Rename" }]
"clock.alarm" = [{ tap = "Clock" }, { tap = "New alarm" }, { tap_field = 0 }, { type = "09:30" }, { tap = "Add" }]
"clock.alarm-off" = [{ tap = "Clock" }, { tap = "06:00" }, { tap = "07:00" }]
"clock.timer" = [{ tap = "Clock" }, { tap = "Timer" }, { tap_field = 0 }, { type = "1{minutes}" }, { tap = "Start" }]
"camera.picture" = [{ tap = "Camera" }, { tap = "Take picture" }, { tap = "Take picture" }]
"recorder.record" = [{ tap = "Recorder" }, { tap_field = 0 }, { type = "{name}x" }, { tap = "Record" }]
"tasks.add" = [{ tap = "Tasks" }, { tap_field = 0 }, { type = "{title}" }]
"tasks.done" = [{ tap = "Tasks" }, { tap = "pay rent" }, { tap = "buy milk" }, { tap = "call dad" }]
"#;

fn wrong() -> BTreeMap<String, Vec<Move>> {
    let table: toml::Table = toml::from_str(WRONG).unwrap();
    let moves = |(id, moves): (String, toml::Value)| (id, moves.try_into().unwrap());
    table.into_iter().map(moves).collect()
}

fn config() -> AdbPhoneConfig {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    AdbPhoneConfig {
        tasks: Some(folder.join("phone-tasks")),
        ..AdbPhoneConfig::default()
    }
}

fn tasks() -> Vec<AndroidTask> {
    load(&config().tasks.unwrap()).unwrap()
}

fn find_adb() -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join("adb").is_file());
    found.then_some(()).ok_or("adb is not installed".to_owned())
}

/// Runs `test` with the phone, unless there is no `adb`.
#[allow(clippy::print_stdout, reason = "a skip has to be seen")]
fn with_phone(name: &str, test: impl AsyncFnOnce(&mut dyn Demonstrate)) {
    if let Some(why) = dart_testkit::suite::gate("adb", find_adb()) {
        println!("skipped: {name}: {why}");
        return;
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::of(&EnvironmentConfig::AdbPhone(config()), false).unwrap();
        let mut phone = world.factory.create_demonstrator().await.unwrap();
        let tested = tokio::time::timeout(Duration::from_mins(3), test(&mut *phone));
        tested.await.unwrap();
        phone.close().await.unwrap();
    });
}

/// Follows the moves of the task to its end; gives what that is worth.
async fn play(phone: &mut dyn Demonstrate, task: &Task, seed: u64) -> f64 {
    phone.reset(task, seed).await.unwrap();
    loop {
        let action = phone.expert_action().await.unwrap();
        let action = action.unwrap_or_else(|| panic!("{}: the expert is lost", task.id));
        let done = action == Action::Done;
        let outcome = phone.step(&action).await.unwrap();
        if outcome.status != StepStatus::Running {
            assert!(done, "{}: {:?} before the end", task.id, outcome.status);
            return phone.score().await.unwrap().value();
        }
    }
}

#[test]
fn every_family_is_solved_by_its_expert() {
    with_phone("experts", async |phone| {
        for task in tasks() {
            for seed in 0..3 {
                let worth = play(phone, &task.task().unwrap(), seed).await;
                assert_eq!(worth, 1.0, "{} with seed {seed}", task.id);
            }
        }
    });
}

#[test]
fn experts_find_back_after_taps_that_were_not_theirs() {
    with_phone("disturbed experts", async |phone| {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let (mut solved, mut all) = (0, 0);
        for task in tasks() {
            let horizon = 3 * task.horizon;
            let task = AndroidTask { horizon, ..task }.task().unwrap();
            for seed in 0..3 {
                phone.reset(&task, seed).await.unwrap();
                all += 1;
                solved += u32::from(disturbed(phone, &mut rng).await);
            }
        }
        assert!(4 * solved >= 3 * all, "{solved} of {all}");
    });
}

/// Whether the expert solves the task although one action in five is a tap anywhere.
async fn disturbed(phone: &mut dyn Demonstrate, rng: &mut ChaCha8Rng) -> bool {
    loop {
        let size = phone.spec().screen;
        let (x, y) = (
            rng.random_range(0..size.width),
            rng.random_range(0..size.height),
        );
        let at = ScreenPx::new(x as i32, y as i32);
        let action = if rng.random_bool(0.2) {
            Some(Action::Tap { at })
        } else {
            phone.expert_action().await.unwrap()
        };
        let Some(action) = action else { return false };
        let outcome = phone.step(&action).await.unwrap();
        if outcome.status != StepStatus::Running {
            return phone.score().await.unwrap().is_success();
        }
    }
}

#[test]
fn no_family_is_solved_by_doing_nothing_or_something_else() {
    with_phone("wrong ways", async |phone| {
        let mut wrong = wrong();
        for mut task in tasks() {
            let moves = wrong.remove(task.id.as_str());
            let moves = moves.unwrap_or_else(|| panic!("{} has no wrong way", task.id));
            // Going home changes nothing that counts.
            for moves in [vec![Move::GoHome], moves] {
                task.expert = moves;
                for seed in 0..2 {
                    let worth = play(phone, &task.task().unwrap(), seed).await;
                    assert_eq!(worth, 0.0, "{} with seed {seed}", task.id);
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    });
}

#[test]
fn every_kind_of_check_is_used() {
    let checks = tasks().into_iter().flat_map(|task| task.success);
    let text = serde_json::to_string(&checks.collect::<Vec<_>>()).unwrap();
    for kind in [
        "answer",
        "file",
        "file_exists",
        "log",
        "setting",
        "shell",
        "sqlite",
        "ui",
    ] {
        assert!(text.contains(&format!("{{\"{kind}\":")), "{kind}");
    }
    let families: std::collections::BTreeSet<_> = tasks().into_iter().map(|t| t.family).collect();
    assert!(families.len() >= 12, "{families:?}");
    assert!(!config().tasks(Split::Train).unwrap().is_empty());
    assert!(config().tasks(Split::Words).unwrap().is_empty());
}
