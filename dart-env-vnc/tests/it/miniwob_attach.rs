//! MiniWoB++ on desktops that are running already: what a user gets wrong is one line, and what was
//! attached to goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    net::TcpListener,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use dart_core::{Action, Demonstrate, EnvironmentFactory, ErrorKind, Split, StepStatus};
use dart_env_vnc::{
    AttachConfig, Desktop, DesktopConfig, MiniwobConfig, MiniwobFactory, VncConfig, cdp::Cdp,
};

use tokio::{io::copy_bidirectional, net::TcpStream, sync::watch};

use crate::{needs, rfb_xserver};

/// Set for the test that [`a_running_desktop_is_used_and_goes_on`] runs: `vnc devtools`.
const ADDRESSES: &str = "DART_TEST_ATTACH";
const PASSWORD: &str = "DART_TEST_ATTACH_PASSWORD";

fn config(pages: &Path, vnc: VncConfig, devtools: &str) -> MiniwobConfig {
    MiniwobConfig {
        pages_dir: pages.to_owned(),
        tasks: vec!["click-test".into()],
        command_timeout_ms: 2_000,
        attach: vec![AttachConfig {
            devtools: devtools.to_owned(),
            vnc,
        }],
        ..MiniwobConfig::default()
    }
}

/// What looks like the pages; no desktop gets as far as to load them.
fn pages() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["core/core.js", "miniwob/click-test.html"] {
        let file = folder.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
    }
    folder
}

/// The error that ends the first attempt.
async fn error_of(config: MiniwobConfig) -> dart_core::Error {
    let factory = match MiniwobFactory::new(config) {
        Ok(factory) => factory,
        Err(error) => return error,
    };
    factory.create().await.err().expect("no environment")
}

/// An address where nobody listens.
fn nobody() -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().to_string()
}

fn assert_says(error: &dart_core::Error, kind: ErrorKind, parts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(!error.is_retryable() && !text.contains('\n'), "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[tokio::test]
async fn an_unreachable_server_is_named_at_once() {
    let pages = pages();
    let endpoint = nobody();
    let error = error_of(config(
        pages.path(),
        VncConfig::new(&*endpoint),
        "127.0.0.1:1",
    ))
    .await;
    let remedy = "fix environment.attach.vnc.endpoint";
    assert_says(
        &error,
        ErrorKind::Config,
        &[
            "no VNC server answers",
            &endpoint,
            "(connection refused)",
            remedy,
        ],
    );

    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = silent.local_addr().unwrap().to_string();
    let vnc = VncConfig {
        handshake_timeout_ms: 300,
        ..VncConfig::new(&*endpoint)
    };
    let start = Instant::now();
    let error = error_of(config(pages.path(), vnc, "127.0.0.1:1")).await;
    assert_says(
        &error,
        ErrorKind::Config,
        &[&endpoint, "within 300 ms", "check that the server runs"],
    );
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );

    let vnc = VncConfig {
        password_env: Some("DART_TEST_NO_SUCH_VARIABLE".into()),
        ..VncConfig::new(&*endpoint)
    };
    let error = MiniwobFactory::new(config(pages.path(), vnc, "127.0.0.1:1")).unwrap_err();
    assert_says(
        &error,
        ErrorKind::Config,
        &[
            "environment.attach.vnc.password_env names DART_TEST_NO_SUCH_VARIABLE",
            "export it",
        ],
    );
}

#[tokio::test]
async fn what_a_real_server_refuses_is_named() {
    if let Some(why) = rfb_xserver::skipped() {
        println!("skipped: {why}");
        return;
    }
    let pages = pages();
    let locked = rfb_xserver::Server::locked("hunter2");
    let endpoint = locked.config().endpoint;
    // Every test has a HOME, and it is not the password.
    let wrong = VncConfig {
        password_env: Some("HOME".into()),
        ..locked.config()
    };
    let error = error_of(config(pages.path(), wrong, "127.0.0.1:1")).await;
    let remedy = "environment.attach.vnc.password_env";
    assert_says(
        &error,
        ErrorKind::Unauthorized,
        &[&endpoint, "does not accept the password", remedy],
    );
    let error = error_of(config(pages.path(), locked.config(), "127.0.0.1:1")).await;
    let asked = "the server asks for a password";
    assert_says(&error, ErrorKind::Config, &[&endpoint, asked, remedy]);

    let open = rfb_xserver::Server::open();
    let devtools = nobody();
    let error = error_of(config(pages.path(), open.config(), &devtools)).await;
    let port = devtools.rsplit(':').next().unwrap();
    let option = format!("--remote-debugging-port={port}");
    assert_says(
        &error,
        ErrorKind::Config,
        &[
            "no browser",
            &devtools,
            &option,
            "environment.attach.devtools",
        ],
    );
    let mut large = config(pages.path(), open.config(), &devtools);
    large.screen.width = 310;
    let error = error_of(large).await;
    assert_says(
        &error,
        ErrorKind::Config,
        &["320x240", "too small", "310x210"],
    );
}

/// Passes connections on to a server; each cut ends those that are open.
struct Wire {
    endpoint: String,
    cut: watch::Sender<u32>,
}

impl Wire {
    async fn to(server: &str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let (cut, cuts) = watch::channel(0);
        let server = server.to_owned();
        tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let mut there = TcpStream::connect(&server).await.unwrap();
                let mut cuts = cuts.clone();
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        _ended = copy_bidirectional(&mut here, &mut there) => {}
                        _cut = cuts.changed() => {}
                    }
                });
            }
        });
        Self { endpoint, cut }
    }

    fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

/// Run by [`a_running_desktop_is_used_and_goes_on`], for the password is in the environment.
#[tokio::test]
#[ignore = "a child process of the test that attaches from outside"]
async fn attached() {
    let addresses = std::env::var(ADDRESSES).unwrap();
    let (endpoint, devtools) = addresses.split_once(' ').unwrap();
    let wire = Wire::to(endpoint).await;
    let vnc = VncConfig {
        password_env: Some(PASSWORD.to_owned()),
        ..VncConfig::new(&*wire.endpoint)
    };
    let config = config(&needs::pages(), vnc, devtools);
    let task = config.tasks(Split::Train).unwrap().remove(0);
    let factory = MiniwobFactory::new(config).unwrap();
    let solve = async |env: &mut dyn Demonstrate, seed| {
        env.reset(&task, seed).await.unwrap();
        let action = env.expert_action().await.unwrap().unwrap();
        let step = env.step(&action).await.unwrap();
        assert_eq!(step.status, StepStatus::Terminated, "seed {seed}");
        assert!(env.score().await.unwrap().is_success(), "seed {seed}");
    };
    let mut first = factory.create_demonstrator().await.unwrap();
    for seed in 0..5 {
        solve(first.as_mut(), seed).await;
    }
    // A lost connection is an interruption, and is made anew.
    first.reset(&task, 5).await.unwrap();
    wire.cut();
    let error = first.step(&Action::Wait { millis: 1 }).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    solve(first.as_mut(), 5).await;
    // There is one desktop, and it is in use.
    let error = factory.create().await.err().unwrap();
    assert_says(
        &error,
        ErrorKind::Config,
        &["are in use", "rollout.environments"],
    );
    first.close().await.unwrap();
    drop(first);
    // The next environment finds the browser as the first has left it.
    let mut second = factory.create_demonstrator().await.unwrap();
    for seed in 5..8 {
        solve(second.as_mut(), seed).await;
    }
    drop(second);
    println!("\nall solved");
}

#[tokio::test]
async fn a_running_desktop_is_used_and_goes_on() {
    let own = MiniwobConfig {
        pages_dir: needs::pages(),
        ..MiniwobConfig::default()
    };
    let factory = MiniwobFactory::new(own).map(drop);
    let gate = dart_testkit::suite::gate("miniwob", factory.map_err(|e| e.to_string()));
    if gate.is_some_and(|why| !needs::skip("miniwob", &why)) {
        return;
    }
    let desktop = Desktop::start(&DesktopConfig::default(), "about:blank")
        .await
        .unwrap();
    let addresses = format!("{} {}", desktop.vnc_address(), desktop.devtools_address());
    let password = desktop.vnc_password().to_owned();
    let attached = tokio::task::spawn_blocking(move || {
        Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "miniwob_attach::attached",
                "--ignored",
                "--nocapture",
            ])
            .env(ADDRESSES, addresses)
            .env(PASSWORD, password)
            .output()
            .unwrap()
    });
    let output = attached.await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("all solved"),
        "{text}{errors}"
    );
    assert!(desktop.is_running());
    let mut cdp = Cdp::connect(desktop.devtools_address(), Duration::from_secs(10))
        .await
        .unwrap();
    assert_eq!(cdp.evaluate("6 * 7").await.unwrap(), 42);
    desktop.stop().await;
}
