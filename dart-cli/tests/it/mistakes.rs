//! Every mistake gets one clear line that names it and says what to do, and an exit code other than 0.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

use dart_testkit::suite::gate;

use crate::program::{program, run, stderr};

/// A mistake on the command line, and what the message must say.
type Mistake<'a> = (&'a [&'a str], &'a [&'a str]);

/// Runs `train --dry-run` as far as it goes with each of `mistakes`.
fn check(command: &[&str], mistakes: &[Mistake<'_>]) {
    for (arguments, expected) in mistakes {
        let all = [command, arguments].concat();
        let output = run(&all);
        let message = stderr(&output);
        let error = message
            .lines()
            .find(|line| line.starts_with("error: "))
            .unwrap_or_default();
        assert!(!output.status.success(), "{all:?} succeeded");
        assert!(
            !error.is_empty(),
            "{all:?} has no line `error: …`: {message}"
        );
        for part in *expected {
            assert!(error.contains(part), "{all:?}: `{part}` is not in: {error}");
        }
        assert!(!message.contains("panicked"), "{all:?}: {message}");
    }
}

#[test]
fn in_keys_of_the_config() {
    check(
        &["train", "--dry-run"],
        &[
            (&["--set", "sed=1"], &["`sed`", "did you mean `seed`?"]),
            (
                &["--set", "trainer.learning_rat=1"],
                &["`learning_rat`", "`learning_rate`"],
            ),
            (
                &["--set", "curation.groups_per_bach=1"],
                &["did you mean `groups_per_batch`?"],
            ),
            (
                &["--set", "warm_start.max_second=1"],
                &["did you mean `max_seconds`?"],
            ),
            (
                &["--set", "model.grammar.alowed=[]"],
                &["did you mean `allowed`?"],
            ),
            (&["--set", "seed"], &["--set seed", "KEY=VALUE"]),
            (&["--set", "seed.deep=1"], &["`seed` is a value"]),
            (
                &["--set", "environment.kind=simm"],
                &["simm", "did you mean `sim`?"],
            ),
            (
                &["--config", "configs/none.toml"],
                &["configs/none.toml", "--config"],
            ),
        ],
    );
}

#[test]
fn in_values_of_the_config() {
    check(
        &["train", "--dry-run"],
        &[
            (&["--set", "seed=soon"], &["seed", "soon"]),
            (
                &["--set", "training.max_seconds=-1"],
                &["training.max_seconds", "above 0"],
            ),
            (
                &["--set", "evaluation.episodes=0"],
                &["evaluation.episodes", "above 0"],
            ),
            (
                &["--set", "warm_start.perturb=2"],
                &["warm_start.perturb", "0 to 1"],
            ),
            (&["--set", "model.heads=5"], &["heads"]),
            (&["--set", "trainer.surrogate.low=-1"], &["surrogate.low"]),
            (
                &["--set", "trainer.importance.cap=0"],
                &["importance.cap", "above 0"],
            ),
            (
                &["--set", "trainer.importance.cap=nan"],
                &[
                    "--set trainer.importance.cap=nan",
                    "a finite number is needed",
                ],
            ),
            (
                &["--set", "trainer.importance.cap=lots"],
                &[
                    "--set trainer.importance.cap=lots",
                    "a number is needed, not the text `lots`",
                ],
            ),
            (
                &["--set", "trainer.importance.kap=1"],
                &["--set trainer.importance.kap=1", "did you mean `cap`?"],
            ),
            (
                &["--set", "store.retention={kind=\"all\",trajectories=1}"],
                &["--set store.retention=", "no key `trajectories`"],
            ),
            (
                &["--set", "store.max_megabytes=-1"],
                &[
                    "--set store.max_megabytes=-1",
                    "a whole number of 0 or more",
                ],
            ),
            (
                &["--set", "curation.max_groups_per_batch=1"],
                &["max_groups_per_batch"],
            ),
            (&["--set", "rollout.environments=0"], &["environments"]),
        ],
    );
}

/// Case: one key of a table with a kind used to need the kind beside it.
#[test]
fn one_key_of_a_kind_is_enough() {
    for (setting, expected) in [
        ("store.retention.trajectories=5", "trajectories = 5"),
        ("store.retention.kind=all", "kind = \"all\""),
        ("trainer.importance.cap=3", "cap = 3.0"),
        ("trainer.importance.kind=off", "kind = \"off\""),
    ] {
        let output = run(&["train", "--dry-run", "--set", setting]);
        let config = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{setting}: {}", stderr(&output));
        assert!(config.contains(expected), "{setting}: {config}");
    }
}

#[test]
fn in_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    let command = ["train", "--run-dir", run_dir.to_str().unwrap()];
    check(
        &command,
        &[
            (&["--set", "environment.families=[\"clik\"]"], &["clik"]),
            (
                &["--set", "environment.screen={width=8,height=8}"],
                &["screen"],
            ),
            (
                &["--set", "environment={kind=\"external\"}"],
                &["external", "docs/"],
            ),
            (
                &[
                    "--config",
                    "configs/miniwob.toml",
                    "--set",
                    "environment.pages_dir=nowhere",
                ],
                &["nowhere", "cargo xtask"],
            ),
        ],
    );
    assert!(!run_dir.join("config.toml").exists(), "nothing was started");
}

#[test]
fn in_files_and_folders() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("broken.toml"), "seed = 1\nname = \n").unwrap();
    fs::write(path("file"), "").unwrap();
    fs::create_dir(path("old")).unwrap();
    fs::write(Path::new(&path("old")).join("config.toml"), "seed = 1\n").unwrap();
    let (broken, inside_file, old, none) = (
        path("broken.toml"),
        path("file/run"),
        path("old"),
        path("none"),
    );
    check(
        &["train"],
        &[
            (&["--config", &broken], &["broken.toml:2"]),
            (
                &["--run-dir", &inside_file],
                &["cannot make the run folder", "--run-dir"],
            ),
            (&["--run-dir", &old], &["already holds a run", "--resume"]),
            (&["--run-dir", &none, "--resume"], &["holds no run"]),
        ],
    );
    check(
        &["eval"],
        &[
            (&["--checkpoint", &none], &["none", "no valid checkpoint"]),
            (&["--checkpoint", &old], &["old", "no valid checkpoint"]),
        ],
    );
    check(
        &["show"],
        &[
            (&["--run-dir", &none], &["holds no run"]),
            (&["--run-dir", &old], &["no trajectories"]),
            (&["--run-dir", &old, "zz"], &["32 hexadecimal digits"]),
        ],
    );
}

#[test]
fn in_the_usage() {
    for arguments in [
        &["trian"][..],
        &["train", "--sed", "1"],
        &["train", "--seed", "one"],
        &["train", "--resume"],
        &["eval"],
    ] {
        let output = run(arguments);
        let message = stderr(&output);
        assert!(!output.status.success(), "{arguments:?} succeeded");
        assert!(message.starts_with("error: "), "{arguments:?}: {message}");
    }
}

/// The setting that names what looks like the pages of one task.
fn pages(folder: &Path) -> String {
    let pages = folder.join("pages");
    for file in ["core/core.js", "miniwob/click-test.html"] {
        let file = pages.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    format!("environment.pages_dir={}", pages.display())
}

/// A VNC server that wants a password which nobody knows.
struct Locked {
    server: Child,
    endpoint: String,
}

impl Locked {
    fn start(folder: &Path) -> Self {
        let file = folder.join("password");
        // Eight bytes, whichever they are, are the encrypted form of some password.
        fs::write(&file, [0x5a; 8]).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut server = Command::new("Xtigervnc")
            .args(["-displayfd", "1", "-localhost", "-nolisten", "tcp"])
            .args(["-SecurityTypes", "VncAuth", "-PasswordFile"])
            .arg(file)
            .args(["-rfbport", &address.port().to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The number of its display: it is up.
        let mut display = String::new();
        let stdout = server.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut display).unwrap();
        let endpoint = address.to_string();
        Self { server, endpoint }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Not killed: it takes its display's files along.
        let pid = self.server.id().to_string();
        let _ended = Command::new("kill").arg(pid).status();
        let _code = self.server.wait();
    }
}

#[test]
fn in_the_desktop() {
    let folder = tempfile::tempdir().unwrap();
    let pages = pages(folder.path());
    let check = |name: &str, vnc: &str, expected: &[&str]| {
        let run_dir = folder.path().join(name).display().to_string();
        let vnc = format!("environment.attach.vnc={vnc}");
        let command = ["train", "--config", "configs/miniwob.toml"];
        let tasks = "environment.tasks=[\"click-test\"]";
        let settings = ["--set", &pages, "--set", tasks, "--set", &vnc];
        let arguments = [&settings[..], &["--run-dir", &run_dir]].concat();
        check(&command, &[(&arguments, expected)]);
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap().to_string();
    drop(free);
    check(
        "nobody",
        &format!("{{endpoint=\"{nobody}\"}}"),
        &[
            "no VNC server answers",
            &nobody,
            "(connection refused)",
            "environment.attach.vnc.endpoint",
        ],
    );
    check("typo", "{endpiont=\"\"}", &["did you mean `endpoint`?"]);
    check(
        "unset",
        "{password_env=\"DART_TEST_NO_SUCH_VARIABLE\"}",
        &["DART_TEST_NO_SUCH_VARIABLE", "not set"],
    );
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).any(|dir| dir.join("Xtigervnc").is_file());
    let missing =
        || "Xtigervnc is not installed (apt-get install tigervnc-standalone-server)".into();
    if let Some(why) = gate("vnc", installed.then_some(()).ok_or_else(missing)) {
        println!("skipped: {why}");
        return;
    }
    let locked = Locked::start(folder.path());
    let endpoint = &locked.endpoint;
    check(
        "wrong",
        // Every test has a HOME, and it is not the password.
        &format!("{{endpoint=\"{endpoint}\",password_env=\"HOME\"}}"),
        &[
            endpoint,
            "does not accept the password",
            "environment.attach.vnc.password_env",
        ],
    );
}

#[test]
fn a_missing_browser_is_named_with_its_package() {
    let folder = tempfile::tempdir().unwrap();
    let pages = pages(folder.path());
    let run_dir = folder.path().join("run");
    let arguments = [
        "train",
        "--config",
        "configs/miniwob.toml",
        "--run-dir",
        run_dir.to_str().unwrap(),
        "--set",
        &pages,
        "--set",
        "environment.tasks=[\"click-test\"]",
    ];
    let output = program(&arguments)
        .env("PATH", folder.path())
        .output()
        .unwrap();
    let message = stderr(&output);
    assert!(!output.status.success());
    assert!(
        message.contains("not found") || message.contains("not installed"),
        "{message}"
    );
    assert!(message.contains("apt-get install"), "{message}");
}
