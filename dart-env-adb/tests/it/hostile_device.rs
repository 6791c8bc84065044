//! Hostile devices behind a real ADB server: every attack ends in an error of its kind, in time and in
//! bounds.

use std::time::{Duration, Instant};

use dart_core::{ErrorKind, Result};
use dart_env_adb::{
    client::AdbTarget,
    simulator::{Hostile, Options},
};
use tokio::net::TcpListener;

use crate::lab::{Lab, SHORT, with_adb};

#[track_caller]
fn is<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
}

/// A call on a device.
#[derive(Clone, Copy, Debug)]
enum Call {
    Exec,
    Framebuffer,
    List,
    Pull,
    Shell,
}

impl Call {
    async fn on(self, target: &AdbTarget) -> Result<()> {
        let mut output = Vec::new();
        match self {
            Self::Exec => target.exec("echo x", &mut output, 1 << 20).await,
            Self::Framebuffer => target.framebuffer().await.map(drop),
            Self::List => target.list("/sdcard").await.map(drop),
            Self::Pull => target.pull("/sdcard/x", 1 << 20).await.map(drop),
            Self::Shell => target.shell("echo x").await.map(drop),
        }
    }
}

/// Attacks, and how calls end. With `None` the attack misses its aim and the call goes well.
const ROWS: &[(Hostile, Call, Option<ErrorKind>)] = &[
    (
        Hostile::PathTraversal,
        Call::List,
        Some(ErrorKind::Protocol),
    ),
    (Hostile::LongPieces, Call::Pull, Some(ErrorKind::Protocol)),
    (
        Hostile::BadPacket,
        Call::Framebuffer,
        Some(ErrorKind::Protocol),
    ),
    (Hostile::Flood, Call::Exec, Some(ErrorKind::Protocol)),
    (Hostile::Flood, Call::Shell, Some(ErrorKind::Protocol)),
    (Hostile::Flood, Call::Pull, Some(ErrorKind::Protocol)),
    (
        Hostile::BadHeader,
        Call::Shell,
        Some(ErrorKind::Disconnected),
    ),
    (
        Hostile::BadHeader,
        Call::Framebuffer,
        Some(ErrorKind::Disconnected),
    ),
    (Hostile::Stray, Call::Shell, None),
    (Hostile::Stray, Call::Pull, None),
];

#[test]
fn every_attack_of_a_device_ends_in_an_error_of_its_kind_in_time() {
    with_adb("hostile device", || async {
        for (attack, call, kind) in ROWS {
            let lab = Lab::new(Options::default()).await;
            lab.target().push(b"x", "/sdcard/x", 0o644).await.unwrap();
            lab.phone.faults().hostile = Some(*attack);
            let started = Instant::now();
            let ended = call.on(&lab.impatient()).await;
            let row = format!("{attack:?}, {call:?}: {ended:?}");
            assert_eq!(ended.err().map(|error| error.kind()), *kind, "{row}");
            let limit = Duration::from_millis(SHORT.call_ms) * 4;
            assert!(started.elapsed() < limit, "{row}: {:?}", started.elapsed());
            lab.phone.faults().hostile = None;
            if *kind != Some(ErrorKind::Disconnected) {
                // The connection to the device is not the worse for it.
                let said = lab.target().shell("exit 5").await;
                assert_eq!(said.unwrap().code, 5, "{row}");
            }
        }
    });
}

#[test]
fn a_device_that_sends_for_ever_is_cut_at_the_bound() {
    with_adb("endless device", || async {
        let lab = Lab::new(Options::default()).await;
        let mut output = Vec::new();
        is(
            lab.target().exec("yes", &mut output, 3 << 20).await,
            ErrorKind::Protocol,
        );
        is(lab.target().shell("yes").await, ErrorKind::Protocol);
        // The connection to the device is not the worse for it.
        assert_eq!(lab.target().shell("exit 5").await.unwrap().code, 5);
    });
}

#[test]
fn devices_that_name_files_elsewhere_are_refused() {
    with_adb("path traversal", || async {
        let lab = Lab::new(Options::default()).await;
        lab.target().push(b"x", "/sdcard/x", 0o644).await.unwrap();
        lab.phone.faults().hostile = Some(Hostile::PathTraversal);
        is(lab.target().list("/sdcard").await, ErrorKind::Protocol);
        lab.phone.faults().hostile = Some(Hostile::LongPieces);
        is(
            lab.target().pull("/sdcard/x", 1 << 20).await,
            ErrorKind::Protocol,
        );
        lab.phone.faults().hostile = Some(Hostile::BadPacket);
        is(lab.target().framebuffer().await, ErrorKind::Protocol);
        lab.phone.faults().hostile = None;
        assert_eq!(lab.target().pull("/sdcard/x", 9).await.unwrap(), b"x");
    });
}

/// A device asks for a connection to the server's machine although nobody asked for a reverse
/// forward. No connection is made. Debian's adb 29 ends itself at such a device; whatever a server
/// does, callers see an error that is retried or none.
#[test]
fn a_device_that_opens_connections_unasked_gets_none() {
    with_adb("open without reverse", || async {
        let victim = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = victim.local_addr().unwrap().port();
        let lab = Lab::apart(Options::default()).await;
        lab.phone.faults().hostile = Some(Hostile::OpenPort(port));
        let connected = lab.own.server().connect(&lab.phone.serial()).await;
        let retryable = |error: &dart_core::Error| error.is_retryable();
        assert!(
            connected.as_ref().err().is_none_or(retryable),
            "{connected:?}"
        );
        let reached = tokio::time::timeout(Duration::from_millis(300), victim.accept()).await;
        assert!(reached.is_err(), "a connection was made: {reached:?}");
        let output = lab.target().shell("true").await;
        assert!(output.as_ref().err().is_none_or(retryable), "{output:?}");
    });
}

#[test]
fn a_transfer_that_is_cut_is_retryable_and_leaves_nothing() {
    with_adb("cut transfer", || async {
        let lab = Lab::new(Options::default()).await;
        let target = lab.target();
        target
            .push(&vec![7; 5 << 20], "/sdcard/big", 0o644)
            .await
            .unwrap();
        lab.phone.faults().cut_after = Some(2 << 20);
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("big");
        let error = target
            .pull_to("/sdcard/big", &local, 9 << 20)
            .await
            .unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut output = Vec::new();
        lab.own.server().connect(&lab.phone.serial()).await.unwrap();
        let error = lab
            .impatient()
            .exec("cat /sdcard/big", &mut output, 9 << 20)
            .await;
        // The end of an exec cannot be told from a cut, but the device is seen to be gone.
        assert!(error.is_err() || output.len() < 5 << 20);
    });
}
