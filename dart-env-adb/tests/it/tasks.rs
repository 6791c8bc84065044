//! Tasks as data, on the simulated phone through a real server.

use async_trait::async_trait;
use dart_core::{
    Action, EnvironmentFactory, EpisodeEnd, ErrorKind, Result, Split, Task, TaskDriver,
};
use dart_env_adb::{
    AdbDevice,
    client::AdbTarget,
    simulator::Options,
    tasks::{AndroidConfig, AndroidDriver, AndroidFactory, load, parse},
};
use dart_testkit::{Settings, task_driver::TaskDriverHarness, task_driver_conformance};

use crate::{
    lab::{self, Lab, with_adb},
    pad::SCREEN,
};

const TASKS: &str = r#"
[[task]]
id = "setting"
instruction = "Set it to {level}."
parameters.level = { integer = [1, 255] }
setup = [{ setting = { namespace = "system", key = "level", value = "0" } }]
success = [{ setting = { namespace = "system", key = "level", value = { equals = "{level}" } } }]

[[task]]
id = "file"
instruction = "Make {name}."
parameters.name = { letters = 6 }
parameters.word = { choice = ["it's", "$HOME", "a b"] }
setup = [
    "go_home",
    { remove = "/sdcard/{name}.txt" },
    { put_file = { path = "/sdcard/old-{name}", content = "{word}" } },
    { shell = "echo {word} > /sdcard/echo" },
    { open_app = "settings" },
    { force_stop = "com.android.settings" },
    { clear_app = "com.android.settings" },
    { sleep_ms = 1 },
]
success = [
    { file_exists = { path = "/sdcard/{name}.txt", exists = true } },
    { file = { path = "/sdcard/{name}.txt", content = { contains = "{word}" } } },
    { file = { path = "/sdcard/echo", content = { equals = "{word}" } } },
    { shell = { command = "cat /sdcard/echo", output = { lacks = "nonsense" } } },
]
tear_down = [{ remove = "/sdcard/{name}.txt" }, { shell = "false" }, { remove = "/sdcard/echo" }]

[[task]]
id = "seen"
instruction = "Look."
ends_when_solved = true
success = [{ ui = { contains = "<b>" } }, { log = { contains = "reward 1" } }]

[[task]]
id = "data"
instruction = "Add {name}."
parameters.name = { choice = ["O'Hara", "a;b", "x\"y"] }
setup = [
    { remove = "/data/data/p/d.db" },
    { sqlite = { database = "/data/data/p/d.db", statement = "CREATE TABLE t (name TEXT); INSERT INTO t VALUES ('old')" } },
]
success = [
    { sqlite = { database = "/data/data/p/d.db", query = "SELECT name FROM t WHERE name = {name}", output = { equals = "{name}" } } },
    { log = { matches = "app: added [0-9]{2}-{name}$" } },
    { log = { lacks = "crash" } },
]

[[task]]
id = "answer"
instruction = "What is it?"
success = [{ answer = { equals_ignoring_case = "Forty Two" } }]
"#;

fn task(id: &str) -> Task {
    let tasks = parse(TASKS).unwrap();
    let task = tasks.iter().find(|task| task.id.to_string() == id);
    task.unwrap().task().unwrap()
}

async fn shell(target: &AdbTarget, line: &str) -> String {
    target.shell(line).await.unwrap().text()
}

#[test]
fn the_example_tasks_are_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let tasks = load(&folder.join("android-tasks.toml")).unwrap();
    assert_eq!(tasks.len(), 5);
    let config = AndroidConfig {
        tasks: folder.join("android-tasks.toml"),
        ..AndroidConfig::default()
    };
    assert_eq!(config.tasks(Split::Train).unwrap().len(), 5);
    assert!(config.tasks(Split::Words).unwrap().is_empty());
    let tasks = load(&folder.join("phone-tasks")).unwrap();
    let families: std::collections::BTreeSet<_> = tasks.iter().map(|task| &task.family).collect();
    assert!(families.len() >= 12, "{families:?}");
    assert!(tasks.iter().all(|task| !task.expert.is_empty()));
}

#[test]
fn mistakes_in_task_files_are_named() {
    let base =
        "[[task]]\nid = \"a\"\ninstruction = \"x\"\nsuccess = [{ answer = { equals = \"1\" } }]\n";
    assert!(parse(base).is_ok());
    for (more, named) in [
        ("colour = 1", "colour"),
        ("horizon = 0", "horizon"),
        ("setup = [{ shell = \"echo {nobody}\" }]", "nobody"),
        ("setup = [{ sleep_ms = 60001 }]", "60,000"),
        ("setup = [\"dance\"]", "dance"),
        ("expert = [{ tap = \"{nobody}\" }]", "nobody"),
        ("expert = [{ jump = \"x\" }]", "jump"),
        ("reward = { score = \"x\" }", "group"),
        ("reward = { rewards = [\"(\"] }", "pattern"),
        (
            "setup = [{ attempt = { step = \"go_home\", until = { package = \"p\" }, timeout_ms = 1, attempts = 0 } }]",
            "1 to 20",
        ),
        ("parameters.n = { integer = [2, 1] }", "parameter n"),
        ("parameters.n = { letters = 1000 }", "parameter n"),
        ("parameters.n = { choice = [] }", "parameter n"),
        (base, "two tasks"),
    ] {
        let error = parse(&format!("{base}{more}\n")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
    assert!(parse(&base.replace("\"x\"", "\"{who}\"")).is_err());
    let pattern = parse(&base.replace("equals = \"1\"", "matches = \"(\"")).unwrap_err();
    assert!(pattern.to_string().contains("pattern"), "{pattern}");
    let nothing = parse("[[task]]\nid = \"a\"\ninstruction = \"x\"\n").unwrap_err();
    assert!(nothing.to_string().contains("has to hold"), "{nothing}");
    assert!(parse(&base.replace("\"a\"", "\"../a\"")).is_err());
    assert!(load(std::path::Path::new("/nonexistent.toml")).is_err());
}

#[test]
fn settings_are_set_up_and_judged() {
    with_adb("setting tasks", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        let target = device.target().clone();
        let mut driver = AndroidDriver::default();
        let end = EpisodeEnd::default();

        let words = driver
            .set_up(&mut device, &task("setting"), 3)
            .await
            .unwrap();
        assert_eq!(
            words,
            driver
                .set_up(&mut device, &task("setting"), 3)
                .await
                .unwrap()
        );
        let level = words
            .trim_start_matches("Set it to ")
            .trim_end_matches('.')
            .to_owned();
        assert!(!driver.score(&mut device, &end).await.unwrap().is_success());
        shell(&target, &format!("settings put system level {level}")).await;
        assert!(driver.score(&mut device, &end).await.unwrap().is_success());
        driver
            .set_up(&mut device, &task("setting"), 3)
            .await
            .unwrap();
        assert!(!driver.score(&mut device, &end).await.unwrap().is_success());
    });
}

#[test]
fn files_are_set_up_judged_and_cleaned_up() {
    with_adb("file tasks", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        let target = device.target().clone();
        let mut driver = AndroidDriver::default();
        let end = EpisodeEnd::default();
        for seed in 0..4 {
            let words = driver
                .set_up(&mut device, &task("file"), seed)
                .await
                .unwrap();
            let name = words
                .trim_start_matches("Make ")
                .trim_end_matches('.')
                .to_owned();
            let word = shell(&target, &format!("cat /sdcard/old-{name}")).await;
            assert_eq!(shell(&target, "cat /sdcard/echo").await.trim(), word.trim());
            assert!(!driver.score(&mut device, &end).await.unwrap().is_success());
            let path = format!("/sdcard/{name}.txt");
            target
                .push(format!("<{word}>").as_bytes(), &path, 0o644)
                .await
                .unwrap();
            assert!(driver.score(&mut device, &end).await.unwrap().is_success());
            driver.tear_down(&mut device).await.unwrap();
            assert!(!target.stat(&path).await.unwrap().exists());
            assert!(!target.stat("/sdcard/echo").await.unwrap().exists());
        }
    });
}

#[test]
fn what_is_seen_logged_and_answered_is_judged() {
    with_adb("other tasks", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        let mut driver = AndroidDriver::default();
        lab.phone.log("app", "reward 1");
        driver.set_up(&mut device, &task("seen"), 0).await.unwrap();
        assert!(
            !driver.ended(&mut device).await.unwrap(),
            "the log began anew"
        );
        lab.phone.log("app", "reward 1");
        assert!(driver.ended(&mut device).await.unwrap());

        driver
            .set_up(&mut device, &task("answer"), 0)
            .await
            .unwrap();
        for (answer, right) in [
            (None, false),
            (Some("41"), false),
            (Some(" forty two"), true),
        ] {
            let answer = answer.map(str::to_owned);
            let end = EpisodeEnd {
                answer,
                ..EpisodeEnd::default()
            };
            assert_eq!(
                driver.score(&mut device, &end).await.unwrap().is_success(),
                right
            );
        }
    });
}

#[test]
fn databases_and_patterns_of_the_log_are_judged() {
    with_adb("data tasks", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        let mut driver = AndroidDriver::default();
        let end = EpisodeEnd::default();
        for seed in 0..6 {
            let words = driver
                .set_up(&mut device, &task("data"), seed)
                .await
                .unwrap();
            let name = words.trim_start_matches("Add ").trim_end_matches('.');
            assert!(!driver.score(&mut device, &end).await.unwrap().is_success());
            lab.phone
                .system()
                .edit_table(("/data/data/p/d.db", "t"), &["name"], |rows| {
                    assert_eq!(*rows, [["old"]]);
                    rows.push(vec![name.to_owned()]);
                });
            lab.phone.log("app", &format!("added x-{name}"));
            assert!(!driver.score(&mut device, &end).await.unwrap().is_success());
            lab.phone.log("app", &format!("added 42-{name}"));
            assert!(driver.score(&mut device, &end).await.unwrap().is_success());
            lab.phone.log("app", "a crash");
            assert!(!driver.score(&mut device, &end).await.unwrap().is_success());
        }
    });
}

#[test]
fn each_device_serves_one_environment_at_a_time() {
    with_adb("factory", || async {
        let lab = Lab::new(Options::default()).await;
        let config = AndroidConfig {
            devices: vec![lab.config()],
            wait_ms: 100,
            ..AndroidConfig::default()
        };
        let factory = AndroidFactory::new(config.clone()).unwrap();
        let mut first = factory.create().await.unwrap();
        let busy = factory.create().await.err().unwrap();
        assert_eq!(busy.kind(), ErrorKind::Exhausted);
        let reset = first.reset(&task("setting"), 1).await.unwrap();
        assert_eq!(reset.observation.frame.size(), SCREEN);
        first.close().await.unwrap();
        drop(first);
        factory.create().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tasks.toml");
        std::fs::write(&file, TASKS).unwrap();
        let unled = AndroidConfig {
            tasks: file,
            ..config.clone()
        };
        let unled = AndroidFactory::new(unled).unwrap();
        let experts = unled.create_demonstrator().await.err().unwrap();
        assert_eq!(experts.kind(), ErrorKind::Unsupported);
        assert!(experts.to_string().contains("setting"), "{experts}");
        for devices in [vec![], vec![lab.config(), lab.config()]] {
            let bad = AndroidConfig {
                devices,
                ..config.clone()
            };
            assert_eq!(
                AndroidFactory::new(bad).unwrap_err().kind(),
                ErrorKind::Config
            );
        }
    });
}

struct Tasks;

std::thread_local! {
    static LAB: std::cell::RefCell<Vec<Lab>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[async_trait]
impl TaskDriverHarness for Tasks {
    type Device = AdbDevice;
    type Driver = AndroidDriver;

    fn settings(&self) -> Settings {
        Settings {
            skipped: lab::skipped(),
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<(AdbDevice, AndroidDriver)> {
        let lab = Lab::new(Options::default()).await;
        let device = AdbDevice::connect(lab.config()).await?;
        LAB.with_borrow_mut(|labs| labs.push(lab));
        Ok((device, AndroidDriver::default()))
    }

    fn task(&self) -> Task {
        task("setting")
    }

    fn deterministic(&self) -> bool {
        false
    }

    async fn visible_action(
        &self,
        _device: &mut AdbDevice,
        _driver: &mut AndroidDriver,
    ) -> Result<Action> {
        Ok(Action::NavigateHome)
    }
}

task_driver_conformance!(mod android_task_driver, Tasks);
