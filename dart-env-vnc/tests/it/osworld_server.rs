//! Tasks through OSWorld's server, played by a small one: what is sent, how it is judged, and that
//! no fault ever becomes a score.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use dart_core::{Action, Environment, EnvironmentFactory, Error, ErrorKind, Split, Task};
use dart_env_vnc::osworld::{
    Guest, GuestConfig, HostExec, OsworldConfig, OsworldFactory, Query, ServerConfig, ServerGuest,
};
use serde_json::{Value, json};

use crate::{
    osworld_fake::{FakeOsworld, Trouble},
    rfb_server::{FakeServer, Quirk},
};

/// A server, a screen, and a folder of task files.
pub(crate) struct Bench {
    pub(crate) server: FakeOsworld,
    _screen: FakeServer,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) config: OsworldConfig,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let server = FakeOsworld::start().await;
        let screen = FakeServer::start(Quirk::None).await;
        let folder = tempfile::tempdir().unwrap();
        let machine = ServerConfig {
            address: server.address.to_string(),
            vnc: screen.config(),
            command_timeout_ms: 700,
            max_answer_bytes: 1 << 20,
            ..ServerConfig::default()
        };
        let config = OsworldConfig {
            tasks_dir: folder.path().join("tasks"),
            files_dir: Some(folder.path().join("files")),
            guest: GuestConfig::Servers {
                servers: vec![machine],
            },
            ..OsworldConfig::default()
        };
        for part in ["tasks", "files/t"] {
            std::fs::create_dir_all(folder.path().join(part)).unwrap();
        }
        Self {
            server,
            _screen: screen,
            folder,
            config,
        }
    }

    fn reference(&self, name: &str, content: &str) {
        std::fs::write(self.folder.path().join("files/t").join(name), content).unwrap();
    }

    fn write_task(&self, config: &Value, evaluator: &Value) {
        let task = json!({
            "id": "t", "instruction": "do it", "config": config, "evaluator": evaluator
        });
        std::fs::write(self.folder.path().join("tasks/t.json"), task.to_string()).unwrap();
    }

    /// The only task of the folder.
    pub(crate) fn task(
        &self,
        config: &Value,
        evaluator: &Value,
        host_exec: HostExec,
    ) -> Result<Task, Error> {
        self.write_task(config, evaluator);
        Ok(self.config.tasks(Split::Train, host_exec)?.remove(0))
    }

    async fn env(&self, host_exec: HostExec) -> Box<dyn Environment> {
        let factory = OsworldFactory::new(self.config.clone(), host_exec).unwrap();
        factory.create().await.unwrap()
    }

    /// The score of an episode in which the agent says at once that it is done.
    pub(crate) async fn judge(
        &self,
        config: &Value,
        evaluator: &Value,
        host: HostExec,
    ) -> Result<f64, Error> {
        let task = self.task(config, evaluator, host)?;
        let mut env = self.env(host).await;
        env.reset(&task, 0).await?;
        env.step(&Action::Done).await?;
        let score = env.score().await?.value();
        env.close().await?;
        Ok(score)
    }
}

fn rule(rules: &Value) -> Value {
    json!({ "type": "rule", "rules": rules })
}

pub(crate) fn file(path: &str) -> Value {
    json!({ "type": "vm_file", "path": path, "dest": path.rsplit('/').next().unwrap() })
}

fn contains(path: &str, text: &str) -> Value {
    json!({
        "func": "file_contains", "result": file(path), "expected": rule(&json!({ "expected": [text] }))
    })
}

#[tokio::test]
async fn steps_are_sent_as_osworld_has_them() {
    let bench = Bench::new().await;
    bench.reference("local.txt", "from here");
    bench.server.with(|state| {
        state
            .files
            .insert("/home/user/.config/vlc/vlcrc".into(), b"x".to_vec());
    });
    let steps = json!([
        {"type": "download", "parameters": {"files": [
            {"url": "https://example.invalid/a", "path": "/home/user/a"},
            {"url": "https://example.invalid/l", "path": "/home/user/local.txt"}]}},
        {"type": "launch", "parameters": {"command": ["gimp", "~/a b"]}},
        {"type": "execute", "parameters": {
            "command": ["echo", "{SCREEN_WIDTH_HALF},{SCREEN_HEIGHT_HALF}", "{OTHER}"], "stdout": "o.out"}},
        {"type": "open", "parameters": {"path": "~/a"}},
        {"type": "sleep", "parameters": {"seconds": 0.01}},
        {"type": "activate_window", "parameters": {"window_name": "A", "strict": true}}
    ]);
    let evaluator = json!({
        "func": ["check_list", "file_contains"],
        "result": [{"type": "cache_file", "path": "o.out"}, {"type": "vlc_config", "dest": "vlcrc"}],
        "expected": [rule(&json!({"expect": ["^kept$"]})), rule(&json!({"expected": ["x"]}))],
        "postconfig": [{"type": "close_window", "parameters": {"window_name": "A"}}]
    });
    // The fake screen is small: half of it fills the placeholders.
    let screen = bench.env(HostExec::Denied).await.spec().screen;
    bench.server.with(|state| {
        let size = format!("{},{}", screen.width / 2, screen.height / 2);
        let command = json!(["echo", size, "{OTHER}"]).to_string();
        state.outputs.insert(command, "kept".into());
    });
    let score = bench
        .judge(&steps, &evaluator, HostExec::Denied)
        .await
        .unwrap();
    assert_eq!(score, 1.0);
    check_log(&bench.server.with(|state| state.log.clone()));
}

/// What the server was asked, in order.
fn check_log(log: &[(String, String)]) {
    let paths: Vec<&str> = log.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/setup/download_file",
            "/setup/upload",
            "/setup/launch",
            "/execute",
            "/setup/open_file",
            "/setup/activate_window",
            "/setup/close_window",
            "/file",
        ]
    );
    let body = |at: usize| serde_json::from_str::<Value>(&log[at].1).unwrap();
    assert_eq!(
        body(0),
        json!({"url": "https://example.invalid/a", "path": "/home/user/a"})
    );
    assert!(
        log[1]
            .1
            .contains("name=\"file_path\"\r\n\r\n/home/user/local.txt\r\n")
    );
    assert!(log[1].1.contains("\r\n\r\nfrom here\r\n--"));
    assert_eq!(
        body(2),
        json!({"command": ["gimp", "~/a b"], "shell": false})
    );
    assert_eq!(body(4), json!({"path": "/home/user/a"}));
    assert_eq!(
        body(5),
        json!({"window_name": "A", "strict": true, "by_class": false})
    );
}

#[tokio::test]
async fn several_scores_become_one() {
    let bench = Bench::new().await;
    bench.reference("gold.txt", "b\nc\nd\ne\n");
    bench.server.with(|state| {
        state
            .files
            .insert("/home/user/three-quarters".into(), b"a\nb\nc\nd\n".to_vec());
    });
    let similar = (
        file("/home/user/three-quarters"),
        json!({
            "type": "cloud_file", "path": "https://example.invalid/gold.txt", "dest": "gold.txt"
        }),
    );
    let lists = |texts: &[&str], conj: &str| {
        let mut evaluator = json!({
            "func": ["diff_text_file"], "conj": conj, "result": [similar.0], "expected": [similar.1]
        });
        for text in texts {
            let mut push =
                |key: &str, value: Value| evaluator[key].as_array_mut().unwrap().push(value);
            push("func", json!("file_contains"));
            push("result", file("/home/user/three-quarters"));
            push("expected", rule(&json!({"expected": [text]})));
        }
        evaluator
    };
    for (texts, conj, score) in [
        (vec![], "and", 0.75),
        (vec!["a"], "and", 0.875),
        (vec!["a", "zz"], "and", 0.0),
        (vec!["zz"], "or", 0.75),
        (vec!["zz", "a"], "or", 1.0),
    ] {
        let got = bench
            .judge(&json!([]), &lists(&texts, conj), HostExec::Denied)
            .await
            .unwrap();
        assert_eq!(got, score, "{texts:?} {conj}");
    }
}

#[tokio::test]
async fn what_the_agent_has_not_made_scores_nothing() {
    let bench = Bench::new().await;
    let score = bench
        .judge(
            &json!([]),
            &contains("/home/user/none", "x"),
            HostExec::Denied,
        )
        .await;
    assert_eq!(score.unwrap(), 0.0);
    assert_eq!(bench.server.paths(), ["/file"]);
}

#[tokio::test]
async fn no_fault_becomes_a_score() {
    let bench = Bench::new().await;
    bench.server.with(|state| {
        state.files.insert("/home/user/a".into(), b"x".to_vec());
    });
    let steps = json!([{"type": "launch", "parameters": {"command": "gimp"}}]);
    let evaluator = json!({
        "func": ["file_contains", "exact_match", "check_json"],
        "result": [file("/home/user/a"), {"type": "vm_command_line", "command": "c"},
                   {"type": "list_directory", "path": "~"}],
        "expected": [rule(&json!({"expected": ["x"]})), rule(&json!({"expected": ""})), rule(&json!({}))]
    });
    let judge = || bench.judge(&steps, &evaluator, HostExec::Denied);
    assert_eq!(judge().await.unwrap(), 1.0);
    let all = [
        Trouble::Slow,
        Trouble::Broken,
        Trouble::Large,
        Trouble::HangUp,
    ];
    let mut faults: Vec<(&str, Trouble)> =
        ["/setup/launch", "/file", "/execute", "/list_directory"]
            .iter()
            .flat_map(|path| all.map(|trouble| (*path, trouble)))
            .collect();
    for path in ["/execute", "/list_directory"] {
        faults.extend([(path, Trouble::Nonsense), (path, Trouble::OtherShape)]);
    }
    for (path, trouble) in faults {
        bench
            .server
            .with(|state| state.trouble = Some((path, trouble)));
        let start = Instant::now();
        let error = judge().await.expect_err(&format!("{path} {trouble:?}"));
        let kind = match trouble {
            Trouble::Slow => ErrorKind::Timeout,
            Trouble::HangUp => ErrorKind::Disconnected,
            _ => ErrorKind::Protocol,
        };
        assert_eq!(error.kind(), kind, "{path} {trouble:?}: {error}");
        assert!(error.is_retryable());
        assert!(error.to_string().contains(path), "{error}");
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{path} {trouble:?}"
        );
    }
    // The environment that has failed is as good as new.
    bench.server.with(|state| state.trouble = None);
    assert_eq!(judge().await.unwrap(), 1.0);
}

#[tokio::test]
async fn a_dead_server_is_a_fault() {
    let mut bench = Bench::new().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let GuestConfig::Servers { servers } = &mut bench.config.guest else {
        panic!("servers");
    };
    servers[0].address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let score = bench
        .judge(&json!([]), &contains("/home/user/a", "x"), HostExec::Denied)
        .await;
    assert_eq!(score.unwrap_err().kind(), ErrorKind::Disconnected);
}

#[tokio::test]
async fn a_window_that_is_gone_matters_before_and_not_after() {
    let bench = Bench::new().await;
    bench.server.with(|state| {
        state.windows = false;
        state.files.insert("/home/user/a".into(), b"x".to_vec());
    });
    let window = json!([{"type": "activate_window", "parameters": {"window_name": "A"}}]);
    let error = bench
        .judge(&window, &contains("/home/user/a", "x"), HostExec::Denied)
        .await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Protocol);
    let mut evaluator = contains("/home/user/a", "x");
    evaluator["postconfig"] = window;
    let score = bench.judge(&json!([]), &evaluator, HostExec::Denied).await;
    assert_eq!(score.unwrap(), 1.0);
}

#[tokio::test]
async fn what_is_not_supported_is_named_before_the_run() {
    let mut bench = Bench::new().await;
    let steps = json!([
        {"type": "login", "parameters": {"platform": "googledrive", "settings_file": "x"}},
        {"type": "googledrive", "parameters": {}},
        {"type": "replay", "parameters": {}},
        {"type": "execute", "parameters": {"command": "echo {CLIENT_PASSWORD} | sudo -S x", "shell": true}}
    ]);
    let evaluator = json!({
        "func": "compare_table", "result": {"type": "page_info", "url": "x"},
        "expected": {"type": "cloud_file", "path": "https://example.invalid/g", "dest": "g"}, "novel": 1
    });
    let error = bench
        .task(&steps, &evaluator, HostExec::Denied)
        .unwrap_err();
    let text = error.to_string();
    for part in [
        "a login to googledrive",
        "step googledrive",
        "step replay",
        "{CLIENT_PASSWORD}",
        "metric compare_table",
        "getter page_info",
        "reference file g",
        "evaluator key novel",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    bench.config.skip_unsupported = true;
    // Left out, and there is nothing else.
    let none = bench.config.tasks(Split::Train, HostExec::Denied);
    assert!(
        none.unwrap_err()
            .to_string()
            .contains("no task is supported")
    );
    // A program of this machine that resets the virtual one needs the flag, too.
    let GuestConfig::Servers { servers } = &mut bench.config.guest else {
        panic!("servers");
    };
    servers[0].reset = vec!["true".into()];
    let error = OsworldFactory::new(bench.config.clone(), HostExec::Denied).unwrap_err();
    assert!(error.to_string().contains("--allow-host-exec"), "{error}");
}

#[tokio::test]
async fn a_machine_is_put_back_before_each_episode() {
    let mut bench = Bench::new().await;
    bench.server.with(|state| {
        state.files.insert("/home/user/a".into(), b"x".to_vec());
    });
    let marker = bench.folder.path().join("resets");
    let GuestConfig::Servers { servers } = &mut bench.config.guest else {
        panic!("servers");
    };
    servers[0].reset = ["sh", "-c", "echo >> \"$0\"", &marker.display().to_string()]
        .map(str::to_owned)
        .to_vec();
    let evaluator = contains("/home/user/a", "x");
    for episodes in 1..=2 {
        let score = bench.judge(&json!([]), &evaluator, HostExec::Allowed).await;
        assert_eq!(score.unwrap(), 1.0);
        assert_eq!(std::fs::read(&marker).unwrap().len(), episodes);
    }
    assert_eq!(bench.server.paths()[0], "/platform");
}

#[tokio::test]
async fn questions_to_the_guest() {
    let server = FakeOsworld::start().await;
    let mut guest = ServerGuest::new(&ServerConfig {
        address: server.address.to_string(),
        ..ServerConfig::default()
    })
    .unwrap();
    assert_eq!(guest.ask(&Query::Terminal).await.unwrap(), "user@vm:~$ ls");
    assert_eq!(
        guest.ask(&Query::Accessibility).await.unwrap(),
        "<desktop-frame/>"
    );
    let tree = guest.ask(&Query::Directory("~/x".into())).await.unwrap();
    assert_eq!(tree["children"][0]["name"], "a");
    assert_eq!(guest.read_file("~/none").await.unwrap(), None);
    let odd = "/home/user/a b&c=ä.txt";
    server.with(|state| state.files.insert(odd.into(), vec![0, 255]));
    assert_eq!(guest.read_file(odd).await.unwrap().unwrap(), [0, 255]);
    // A browser that the agent has closed has no pages; a machine that is gone is a fault.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    for (address, there) in [
        (server.address.to_string(), true),
        (format!("127.0.0.1:{port}"), false),
    ] {
        let config = ServerConfig {
            address,
            devtools_port: port,
            ..ServerConfig::default()
        };
        let mut guest = ServerGuest::new(&config).unwrap();
        let tabs = guest.ask(&Query::Tabs).await;
        assert_eq!(tabs.ok(), there.then(|| json!([])));
    }
    for bad in ["", "localhost", ":5000", "host:0"] {
        let config = ServerConfig {
            address: bad.into(),
            ..ServerConfig::default()
        };
        assert_eq!(
            ServerGuest::new(&config).unwrap_err().kind(),
            ErrorKind::Config,
            "{bad}"
        );
    }
}
