//! An own desktop on a real X server: it comes up, it shows a page, and nothing of it outlives its
//! owner.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use dart_core::{Action, Device, ErrorKind, Key, ScreenPx};
use dart_env_vnc::{
    Desktop, DesktopConfig, VncConfig, VncDevice, cdp::Cdp, pages::PageServer, rfb::Password,
};

use crate::needs;

const GONE_WITHIN: Duration = Duration::from_secs(10);

/// How long a busy machine may take to show something.
const SHOWN_WITHIN: Duration = Duration::from_mins(1);

const BLANK: &str = "about:blank";

/// Whether the process exists and is more than an entry that nobody has collected.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with('Z'))
}

/// Every living process with `label` in its environment, and the processes of `known`.
fn alive(label: &str, known: &[u32]) -> Vec<u32> {
    let labelled = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(label))
    };
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(|pid| known.contains(pid) || labelled(pid))
        .filter(|pid| is_alive(*pid))
        .collect()
}

fn label_of(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let label = text.split('\0').find(|v| v.starts_with("DART_DESKTOP="));
    label.unwrap().to_owned()
}

struct Traces {
    label: String,
    pids: Vec<u32>,
    ports: Vec<SocketAddr>,
    directory: String,
}

impl Traces {
    fn of(desktop: &Desktop) -> Self {
        let pids = desktop.process_ids();
        // The window manager's; Chromium overwrites its environment with its title.
        let label = label_of(pids[2]);
        let token = label.trim_start_matches("DART_DESKTOP=").to_owned();
        let directory = std::env::temp_dir().join(format!("dart-desktop-{token}"));
        Self {
            label,
            pids,
            ports: vec![desktop.vnc_address(), desktop.devtools_address()],
            directory: directory.display().to_string(),
        }
    }

    fn write(&self) -> String {
        let pids: Vec<_> = self.pids.iter().map(u32::to_string).collect();
        let ports: Vec<_> = self.ports.iter().map(SocketAddr::to_string).collect();
        let parts = [
            &*self.label,
            &pids.join(","),
            &ports.join(","),
            &self.directory,
        ];
        parts.join(";")
    }

    fn read(line: &str) -> Self {
        let parts: Vec<_> = line.trim().split(';').collect();
        Self {
            label: parts[0].to_owned(),
            pids: parts[1].split(',').map(|p| p.parse().unwrap()).collect(),
            ports: parts[2].split(',').map(|p| p.parse().unwrap()).collect(),
            directory: parts[3].to_owned(),
        }
    }

    fn assert_present(&self) {
        let living = alive(&self.label, &self.pids);
        // Chromium alone is several processes.
        assert!(living.len() > self.pids.len(), "{living:?}");
        for port in &self.ports {
            TcpStream::connect(port).unwrap();
        }
        assert!(Path::new(&self.directory).is_dir());
    }

    /// Waits until nothing is left; returns how long that took.
    fn assert_gone(&self) -> Duration {
        let start = Instant::now();
        loop {
            let living = alive(&self.label, &self.pids);
            let open: Vec<_> = self
                .ports
                .iter()
                .filter(|port| TcpStream::connect(port).is_ok())
                .collect();
            let directory = Path::new(&self.directory).exists();
            if living.is_empty() && open.is_empty() && !directory {
                return start.elapsed();
            }
            assert!(
                start.elapsed() < GONE_WITHIN,
                "left after {GONE_WITHIN:?}: processes {living:?}, ports {open:?}, directory: {directory}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[tokio::test]
async fn a_desktop_shows_a_page_and_leaves_nothing_behind() {
    if !needs::desktop("vnc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.html"), "<title>ä</title>").unwrap();
    let pages = PageServer::start(folder.path(), &[]).await.unwrap();
    let config = DesktopConfig::default();
    let desktop = Desktop::start(&config, &pages.url("/a.html"))
        .await
        .unwrap();
    let traces = Traces::of(&desktop);
    traces.assert_present();
    assert!(desktop.is_running());
    let shown = format!("{desktop:?}");
    assert!(!shown.contains(desktop.vnc_password()), "{shown}");

    let devtools = desktop.devtools_address();
    let mut cdp = Cdp::connect(devtools, Duration::from_secs(10))
        .await
        .unwrap();
    // The blank page that comes first goes away under whatever is evaluated in it.
    let start = Instant::now();
    while cdp.evaluate("document.title").await.ok() != Some("ä".into()) {
        assert!(start.elapsed() < SHOWN_WITHIN, "the page does not load");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Kiosk mode: the page begins at the top left pixel of the screen.
    let place = "[screenX, screenY, innerHeight, devicePixelRatio].join()";
    let expected = format!("0,0,{},1", config.height);
    assert_eq!(cdp.evaluate(place).await.unwrap(), expected.as_str());

    let raised = cdp
        .evaluate("throw new Error('no\\nway')")
        .await
        .unwrap_err();
    assert_eq!(raised.kind(), ErrorKind::Protocol);
    assert!(raised.to_string().contains("no way"), "{raised}");

    desktop.stop().await;
    traces.assert_gone();
    let error = cdp.evaluate("1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_script_that_never_ends_meets_its_deadline() {
    if !needs::desktop("vnc") {
        return;
    }
    let desktop = Desktop::start(&DesktopConfig::default(), BLANK)
        .await
        .unwrap();
    // Long enough for an answer on a machine that is busy.
    let deadline = Duration::from_secs(2);
    let devtools = desktop.devtools_address();
    let mut cdp = Cdp::connect(devtools, Duration::from_secs(10))
        .await
        .unwrap();
    assert_eq!(cdp.evaluate("6 * 7").await.unwrap(), 42);
    let mut cdp = Cdp::connect(devtools, deadline).await.unwrap();
    let error = cdp.evaluate("new Promise(() => {})").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    // The late answer of the abandoned command is not taken for the next one's.
    assert_eq!(cdp.evaluate("'next'").await.unwrap(), "next");
    desktop.stop().await;
}

#[tokio::test]
async fn a_dropped_desktop_leaves_nothing_behind() {
    if !needs::desktop("vnc") {
        return;
    }
    let desktop = Desktop::start(&DesktopConfig::default(), BLANK)
        .await
        .unwrap();
    let traces = Traces::of(&desktop);
    drop(desktop);
    traces.assert_gone();
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing_behind() {
    if !needs::desktop("vnc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = DesktopConfig {
        directory: Some(folder.path().to_owned()),
        ..DesktopConfig::default()
    };
    let start = Desktop::start(&config, BLANK);
    let given_up = tokio::time::timeout(Duration::from_millis(150), start).await;
    assert!(given_up.is_err(), "no desktop starts that fast");
    let made = std::fs::read_dir(folder.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let name = made.file_name().display().to_string();
    Traces {
        label: name.replace("dart-desktop-", "DART_DESKTOP="),
        pids: vec![],
        ports: vec![],
        directory: made.path().display().to_string(),
    }
    .assert_gone();
}

#[tokio::test]
async fn a_browser_that_fails_is_reported_with_what_it_said() {
    if !needs::desktop("vnc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let browser = folder.path().join("browser");
    std::fs::write(&browser, "#!/bin/sh\necho out of order >&2\nexit 1\n").unwrap();
    let mut rights = std::fs::metadata(&browser).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut rights, 0o755);
    std::fs::set_permissions(&browser, rights).unwrap();
    let config = DesktopConfig {
        browser: Some(browser),
        ..DesktopConfig::default()
    };
    let error = Desktop::start(&config, BLANK).await.unwrap_err();
    assert!(error.is_retryable());
    assert!(error.to_string().contains("out of order"), "{error}");
}

/// Run by the next test in a process of its own: starts a desktop, says what it consists of, and
/// waits to be killed.
#[tokio::test]
#[ignore = "a helper process of a_killed_owner_leaves_nothing_behind"]
async fn owner() {
    let desktop = Desktop::start(&DesktopConfig::default(), BLANK)
        .await
        .unwrap();
    println!("\ntraces {}", Traces::of(&desktop).write());
    tokio::time::sleep(Duration::from_mins(1)).await;
}

fn killed_owner(signal: &str) {
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "desktop::owner", "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let line = lines
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("traces ").map(str::to_owned))
        .expect("the owner's desktop is up");
    let traces = Traces::read(&line);
    traces.assert_present();
    let pid = owner.id().to_string();
    let killed = Command::new("kill").args([signal, &pid]).status().unwrap();
    assert!(killed.success());
    owner.wait().unwrap();
    let took = traces.assert_gone();
    eprintln!("after {signal} everything was gone in {took:?}");
}

#[test]
fn a_killed_owner_leaves_nothing_behind() {
    if needs::desktop("vnc") {
        killed_owner("-KILL");
    }
}

#[test]
fn an_interrupted_owner_leaves_nothing_behind() {
    if needs::desktop("vnc") {
        killed_owner("-INT");
        killed_owner("-TERM");
    }
}

/// Text of any script is pasted and copied through the server's clipboard.
#[tokio::test]
async fn the_clipboard_goes_both_ways() {
    const PAGE: &str = "<!doctype html><meta charset=utf-8><textarea id=t autofocus \
        style='position:fixed;inset:0'></textarea>";
    if !needs::desktop("vnc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.html"), PAGE).unwrap();
    let pages = PageServer::start(folder.path(), &[]).await.unwrap();
    let desktop = Desktop::start(&DesktopConfig::default(), &pages.url("/a.html"))
        .await
        .unwrap();
    let mut cdp = Cdp::connect(desktop.devtools_address(), GONE_WITHIN)
        .await
        .unwrap();
    let config = VncConfig::new(desktop.vnc_address().to_string());
    let password = Some(Password::new(desktop.vnc_password()));
    let mut device = VncDevice::connect_with(config, password).await.unwrap();
    let hotkey = |key: &str| Action::Hotkey {
        keys: vec!["ctrl".parse::<Key>().unwrap(), key.parse().unwrap()],
    };
    let text = "\u{e9} \u{4f60}\u{597d}\n\u{20ac} \u{1f600}";
    let start = Instant::now();
    // Until the page is there and has the focus.
    loop {
        let field = Action::click(ScreenPx::new(50, 50));
        device.perform(&field).await.unwrap();
        device.set_clipboard(text).await.unwrap();
        device.perform(&hotkey("a")).await.unwrap();
        device.perform(&hotkey("v")).await.unwrap();
        if cdp.evaluate("t.value").await.ok() == Some(text.into()) {
            break;
        }
        assert!(start.elapsed() < SHOWN_WITHIN, "nothing is pasted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let theirs = "\u{3b1}\u{3b2}\n\u{df}";
    let fill = format!("t.value = {theirs:?}; t.focus(); t.select(); 1");
    cdp.evaluate(&fill).await.unwrap();
    let start = Instant::now();
    while device.clipboard().as_deref() != Some(theirs) {
        assert!(start.elapsed() < SHOWN_WITHIN, "{:?}", device.clipboard());
        device.perform(&hotkey("c")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The next episode does not find what this one has copied. The key after the paste comes after
    // it in the page as well.
    device.clear_clipboard().await.unwrap();
    assert_eq!(device.clipboard(), None);
    cdp.evaluate("t.value = ''; t.focus(); 1").await.unwrap();
    device.perform(&hotkey("v")).await.unwrap();
    let text = "x".to_owned();
    device.perform(&Action::Type { text }).await.unwrap();
    while cdp.evaluate("t.value").await.unwrap() == "" {
        assert!(start.elapsed() < SHOWN_WITHIN, "the key does not arrive");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(cdp.evaluate("t.value").await.unwrap(), "x");
    device.close().await.unwrap();
    desktop.stop().await;
}
