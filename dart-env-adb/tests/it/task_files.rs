//! AndroidEnv's tasks, experts and snapshots, on the simulated phone through a real server.

use std::{path::Path, time::Instant};

use dart_core::{Action, Demonstrator, EpisodeEnd, ErrorKind, Split, Task, TaskDriver};
use dart_env_adb::{
    AdbDevice,
    simulator::Options,
    tasks::{
        AndroidConfig, AndroidDriver, AndroidFactory, SnapshotHook, check_experts, load, parse,
        parse_textproto,
    },
};

use tokio::{io::AsyncWriteExt, net::TcpListener};

use crate::lab::{Lab, with_adb};

const GAME: &str = r#"
id: "game"
description: "Score {as much} as you can."
reset_steps {
  adb_request { start_activity { full_activity: "com.android.settings/.Main" } }
  success_condition { wait_for_app_screen { app_screen { activity: "com.android.settings/com.android.settings.Main" } timeout_sec: 1 } }
}
reset_steps { success_condition { check_install { package_name: "com.android.settings" timeout_sec: 1 } } }
reset_steps { adb_request { settings { name_space: GLOBAL put { key: "game" value: "{on}" } } } }
expected_app_screen { activity: "com.android.settings/.Main" }
max_episode_steps: 7
log_parsing_config {
  filters: "Game"
  log_regexps { score: "score=(\\d+\\.\\d+)" episode_end: "over" reward_event { event: "bonus" reward: 0.25 } }
}
"#;

fn game() -> Task {
    parse_textproto(GAME).unwrap().task().unwrap()
}

async fn worth(driver: &mut AndroidDriver, device: &mut AdbDevice) -> f64 {
    let end = EpisodeEnd::default();
    driver.score(device, &end).await.unwrap().value()
}

#[test]
fn a_task_of_android_env_is_played_by_its_log() {
    with_adb("textproto task", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        let mut driver = AndroidDriver::default();
        lab.phone.log("Game", "over");
        let told = driver.set_up(&mut device, &game(), 0).await.unwrap();
        assert_eq!(&*told, "Score {as much} as you can.");
        let system = lab.phone.system();
        assert_eq!(system.setting("global", "game").as_deref(), Some("{on}"));
        assert_eq!(worth(&mut driver, &mut device).await, 0.0);
        lab.phone.log("Game", "score=0.25");
        lab.phone.log("Other", "score=0.75");
        lab.phone.log("Game", "bonus!");
        assert_eq!(worth(&mut driver, &mut device).await, 0.5);
        assert!(!driver.ended(&mut device).await.unwrap());
        lab.phone.log("Game", "over");
        assert!(driver.ended(&mut device).await.unwrap());

        driver.set_up(&mut device, &game(), 0).await.unwrap();
        assert!(!driver.ended(&mut device).await.unwrap());
        dart_core::Device::perform(&mut device, &Action::NavigateHome)
            .await
            .unwrap();
        assert!(driver.ended(&mut device).await.unwrap(), "left the app");
    });
}

#[test]
fn a_step_that_never_works_is_an_error_in_time() {
    with_adb("failing steps", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        let mut driver = AndroidDriver::default();
        let text = GAME.replace("com.android.settings", "com.nobody");
        let task = parse_textproto(&text).unwrap().task().unwrap();
        let began = Instant::now();
        let error = driver.set_up(&mut device, &task, 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(began.elapsed().as_secs() < 30);
        let missing = "id: 'a' description: 'b' log_parsing_config { log_regexps { score: '(.)' } } setup_steps { adb_request { install_apk { } } success_condition { check_install { package_name: 'com.nobody' timeout_sec: 0.2 } } }";
        let task = parse_textproto(missing).unwrap().task().unwrap();
        let error = driver.set_up(&mut device, &task, 0).await.unwrap_err();
        assert!(
            error.to_string().contains("com.nobody is not installed"),
            "{error}"
        );
    });
}

#[test]
fn task_files_are_told_apart_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.textproto", GAME);
    write(
        "b.toml",
        "[[task]]\nid = \"b\"\ninstruction = \"x\"\nsuccess = [{ answer = { equals = \"1\" } }]\n",
    );
    write("notes.md", "no task");
    let ids = |path: &Path| -> Vec<String> {
        let tasks = load(path).unwrap();
        tasks.iter().map(|task| task.id.to_string()).collect()
    };
    assert_eq!(ids(folder.path()), ["game", "b"]);
    assert_eq!(ids(&folder.path().join("a.textproto")), ["game"]);
    let mut config = AndroidConfig {
        tasks: folder.path().join("a.textproto"),
        full_reward: Some(2048.0),
        ..AndroidConfig::default()
    };
    let game = &config.tasks(Split::Train).unwrap()[0];
    assert_eq!(game.params["reward"]["full"], 2048.0);
    config.full_reward = Some(0.0);
    assert!(config.tasks(Split::Train).is_err());
    write("c.pbtxt", "id: 'x' colour: 3");
    let error = load(folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("c.pbtxt"), "{error}");
    write("c.pbtxt", GAME);
    let error = load(folder.path()).unwrap_err();
    assert!(error.to_string().contains("two tasks"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    assert!(load(empty.path()).is_err());
}

#[test]
fn an_expert_does_its_moves_in_order() {
    const TASK: &str = r#"
[[task]]
id = "moves"
instruction = "x"
success = [{ answer = { equals = "1" } }]
expert = [{ tap = "a <b> & \"c\"" }, { type = "hi" }, "enter", { answer = "1" }, { tap = "nothing" }]
"#;
    with_adb("expert", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        let mut driver = AndroidDriver::default();
        let task = parse(TASK).unwrap()[0].task().unwrap();
        driver.set_up(&mut device, &task, 0).await.unwrap();
        let target = lab.phone.device().lock().await.target.center();
        for expected in [
            Some(Action::Tap { at: target }),
            Some(Action::Type { text: "hi".into() }),
            Some(Action::KeyboardEnter),
            Some(Action::Answer { text: "1".into() }),
            None,
        ] {
            // Asking changes nothing; a step does.
            for _ in 0..2 {
                let action = driver.expert_action(&mut device).await.unwrap();
                assert_eq!(action, expected);
            }
            assert!(!driver.ended(&mut device).await.unwrap());
        }
        // An action of somebody else: what cannot be seen is looked for from the home screen.
        assert!(!driver.ended(&mut device).await.unwrap());
        let action = driver.expert_action(&mut device).await.unwrap();
        assert_eq!(action, Some(Action::NavigateHome));
        assert!(!driver.ended(&mut device).await.unwrap());
        let tap = driver.expert_action(&mut device).await.unwrap();
        assert_eq!(tap, Some(Action::Tap { at: target }));
        assert!(!driver.ended(&mut device).await.unwrap());
        // Typing begins with the field.
        assert!(!driver.ended(&mut device).await.unwrap());
        assert_eq!(driver.expert_action(&mut device).await.unwrap(), tap);
    });
}

fn hook(address: Option<String>, token_file: Option<&Path>) -> SnapshotHook {
    SnapshotHook::Console {
        name: "clean".into(),
        address,
        token_file: token_file.map(Path::to_owned),
        limit_ms: 5_000,
    }
}

#[test]
fn a_snapshot_is_restored_before_each_episode() {
    with_adb("snapshots", || async {
        let lab = Lab::new(Options::default()).await;
        let system = lab.phone.system();
        system.put_setting("global", "stain", "0");
        system.write_file("/sdcard/a", b"old".to_vec()).unwrap();
        system.save("clean");
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "secret42\n").unwrap();
        let task = parse(
            "[[task]]\nid = \"t\"\ninstruction = \"x\"\nsuccess = [{ answer = { equals = \"1\" } }]",
        );
        let task = task.unwrap()[0].task().unwrap();
        for secret in [None, Some("secret42")] {
            let console = lab.phone.open_console(secret).await.unwrap();
            let address = Some(console.address().to_string());
            let mut driver = AndroidDriver::with_snapshot(hook(address.clone(), Some(&token)));
            let mut device = lab.device().await;
            system.put_setting("global", "stain", "1");
            system.remove_file("/sdcard/a");
            system.edit_table(("/data/d.db", "t"), &["x"], |rows| {
                rows.push(vec!["1".into()]);
            });
            driver.set_up(&mut device, &task, 0).await.unwrap();
            assert_eq!(system.setting("global", "stain").as_deref(), Some("0"));
            assert_eq!(system.read_file("/sdcard/a").as_deref(), Some(&b"old"[..]));
            assert_eq!(
                system.edit_table(("/data/d.db", "t"), &["x"], |rows| rows.len()),
                0
            );
        }
    });
}

#[test]
fn a_snapshot_that_cannot_be_loaded_is_an_error() {
    with_adb("snapshot faults", || async {
        let lab = Lab::new(Options::default()).await;
        let console = lab.phone.open_console(Some("right")).await.unwrap();
        let address = Some(console.address().to_string());
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        let task = game();
        let mut device = lab.device().await;
        for (text, named) in [
            ("wrong", "wrong token"),
            ("right", "no such snapshot"),
            ("a b", "no token"),
        ] {
            std::fs::write(&token, text).unwrap();
            let mut driver = AndroidDriver::with_snapshot(hook(address.clone(), Some(&token)));
            let error = driver.set_up(&mut device, &task, 0).await.unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
        drop(console);
        let closed = hook(address, Some(&token));
        let mut driver = AndroidDriver::with_snapshot(closed.clone());
        let error = driver.set_up(&mut device, &task, 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected);

        let config = AndroidConfig {
            devices: vec![lab.config()],
            ..AndroidConfig::default()
        };
        for bad in [
            hook(None, None),
            SnapshotHook::Console {
                name: "a\r\nkill".into(),
                address: Some("127.0.0.1:1".into()),
                token_file: None,
                limit_ms: 1,
            },
        ] {
            let snapshot = Some(bad);
            let config = AndroidConfig {
                snapshot,
                ..config.clone()
            };
            let error = AndroidFactory::new(config).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
        }
    });
}

#[test]
fn a_hostile_console_ends_in_an_error() {
    with_adb("hostile console", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        for (greeting, kind) in [
            (vec![b'x'; 1 << 20], ErrorKind::Disconnected),
            (b"x\r\n".repeat(1 << 18), ErrorKind::Disconnected),
            (b"KO: \xff\x1b[2J\r\n".to_vec(), ErrorKind::Unsupported),
            (b"hello\r\n".to_vec(), ErrorKind::Timeout),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let console = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                // The other side may go while this is written.
                let _ = stream.write_all(&greeting).await;
                std::future::pending::<()>().await;
            });
            let hook = SnapshotHook::Console {
                name: "clean".into(),
                address: Some(address),
                token_file: None,
                limit_ms: 500,
            };
            let mut driver = AndroidDriver::with_snapshot(hook);
            let error = driver.set_up(&mut device, &game(), 0).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(!error.to_string().contains('\x1b'));
            console.abort();
        }
    });
}

#[test]
fn a_command_of_the_device_may_restore_its_state() {
    with_adb("snapshot command", || async {
        let lab = Lab::new(Options::default()).await;
        let line = "settings put global stain 0".to_owned();
        let mut driver = AndroidDriver::with_snapshot(SnapshotHook::Shell(line));
        lab.phone.system().put_setting("global", "stain", "1");
        let mut device = lab.device().await;
        driver.set_up(&mut device, &game(), 0).await.unwrap();
        let stain = lab.phone.system().setting("global", "stain");
        assert_eq!(stain.as_deref(), Some("0"));
    });
}

#[test]
fn a_task_without_an_expert_is_named_before_demonstrations() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("game.textproto"), GAME).unwrap();
    let mut tasks = load(folder.path()).unwrap();
    let error = check_experts(&tasks).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("task game has no expert"),
        "{error}"
    );
    tasks[0].split = Split::Layouts;
    check_experts(&tasks).unwrap();
}
