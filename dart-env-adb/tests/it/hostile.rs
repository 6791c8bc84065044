//! Hostile servers and devices: every attack ends in an error of its kind, in time and in bounds.

use std::time::Duration;

use dart_core::{ErrorKind, Result};
use dart_env_adb::{
    client::{AdbServer, AdbTarget, Timeouts},
    simulator::{Hostile, Options},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::lab::{Lab, with_adb};

/// What a server says after each request; with the last it goes on for ever if so told.
#[derive(Clone)]
struct Script {
    answers: Vec<Vec<u8>>,
    endless: bool,
    /// It says nothing more but keeps the connection.
    hangs: bool,
}

fn script(answers: &[&[u8]]) -> Script {
    Script {
        answers: answers.iter().map(|answer| answer.to_vec()).collect(),
        endless: false,
        hangs: false,
    }
}

async fn serve(script: Script, address: &str) -> AdbServer {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let script = script.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                for answer in &script.answers {
                    let _ = socket.read(&mut request).await;
                    let _ = socket.write_all(answer).await;
                }
                while script.endless && socket.write_all(&vec![b'x'; 1 << 16]).await.is_ok() {}
                if script.hangs {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    let timeouts = Timeouts {
        connect_ms: 1_000,
        call_ms: 1_500,
        transfer_ms: 1_500,
    };
    AdbServer::new(address, port).with_timeouts(timeouts)
}

async fn target(answers: &[&[u8]]) -> AdbTarget {
    let all = [&[&b"OKAY"[..]], answers].concat();
    serve(script(&all), "127.0.0.1").await.target("x").unwrap()
}

#[track_caller]
fn is<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
}

#[tokio::test]
async fn servers_that_are_none() {
    let (protocol, gone) = (ErrorKind::Protocol, ErrorKind::Disconnected);
    for (answer, kind) in [
        (&b"HTTP/1.1 400 Bad Request"[..], protocol),
        (b"OKAYzzzz", protocol),
        (b"OKAY+00f", protocol),
        (b"OKAY0004xyzw", protocol),
        (b"", gone),
        (b"OKAYffffabc", gone),
        (b"FAIL0003abc", ErrorKind::Unsupported),
    ] {
        let server = serve(script(&[answer]), "127.0.0.1").await;
        is(server.version().await, kind);
    }
    let server = serve(script(&[b"OKAY0005alone"]), "127.0.0.1").await;
    is(server.devices().await, protocol);
}

#[tokio::test]
async fn servers_on_ipv6_are_reached() {
    let server = serve(script(&[b"OKAY00040029"]), "::1").await;
    assert_eq!(server.version().await.unwrap(), 0x29);
    assert!(server.address().starts_with("[::1]:"));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_on() {
    let mute = Script {
        hangs: true,
        ..script(&[])
    };
    let server = serve(mute.clone(), "127.0.0.1").await;
    let started = std::time::Instant::now();
    is(server.version().await, ErrorKind::Timeout);
    is(
        server.target("x").unwrap().shell("true").await,
        ErrorKind::Timeout,
    );
    assert!(started.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn shells_that_lie() {
    for answer in [
        &b"OKAY\x09\x00\x00\x00\x00"[..],
        b"OKAY\x03\xff\xff\xff\xff",
        b"OKAY\x03\x01\0\0\0\0more",
    ] {
        let result = target(&[answer]).await.shell("x").await;
        is(
            result,
            if answer.ends_with(b"more") {
                ErrorKind::Misuse
            } else {
                ErrorKind::Protocol
            },
        );
    }
    for answer in [
        &b"OKAY"[..],
        b"OKAY\x01\xff\xff\xff\xffabc",
        b"OKAY\x01\x02\0\0\0hi",
    ] {
        is(
            target(&[answer]).await.shell("x").await,
            ErrorKind::Disconnected,
        );
    }
}

#[tokio::test]
async fn file_services_that_lie() {
    let (protocol, gone) = (ErrorKind::Protocol, ErrorKind::Disconnected);
    for (answer, kind) in [
        (&b"DATA\xff\xff\xff\xff"[..], protocol),
        (b"DATA\x01\x00\x01\x00", protocol),
        (b"FAIL\xff\xff\xff\x7f", protocol),
        (b"OKAY\0\0\0\0", protocol),
        (b"STAT", gone),
        (b"DATA\x04\0\0\0ab", gone),
        (b"FAIL\x02\0\0\0no", ErrorKind::Unsupported),
    ] {
        is(
            target(&[b"OKAY", answer]).await.pull("/a", 1 << 20).await,
            kind,
        );
    }
    let names: [&[u8]; 5] = [b"../../x", b"/etc/passwd", b"a/b", b"a\0b", b""];
    for name in names {
        let numbers = [1, 2, 3, name.len() as u32].map(u32::to_le_bytes).concat();
        let entry = [b"DENT", &numbers[..], name].concat();
        is(target(&[b"OKAY", &entry]).await.list("/a").await, protocol);
    }
    let long = [b"DENT", &[0; 12][..], &[0xff; 4]].concat();
    is(target(&[b"OKAY", &long]).await.list("/a").await, protocol);
}

#[tokio::test]
async fn framebuffers_that_lie() {
    let huge = [
        2_u32,
        32,
        0,
        8,
        u32::MAX,
        u32::MAX,
        0,
        8,
        16,
        8,
        8,
        8,
        24,
        8,
    ];
    let huge: Vec<u8> = huge.iter().flat_map(|n| n.to_le_bytes()).collect();
    for header in [&[9, 0, 0, 0][..], &huge] {
        let answer = [b"OKAY", header].concat();
        is(
            target(&[&answer]).await.framebuffer().await,
            ErrorKind::Protocol,
        );
    }
    is(
        target(&[b"OKAY\x01\0\0\0"]).await.framebuffer().await,
        ErrorKind::Disconnected,
    );
}

#[tokio::test]
async fn endless_output_is_cut_at_the_bound() {
    let endless = |answer: &[u8]| Script {
        endless: true,
        ..script(&[b"OKAY", answer])
    };
    let server = serve(endless(b"OKAY"), "127.0.0.1").await;
    let mut output = Vec::new();
    let done = server
        .target("x")
        .unwrap()
        .exec("yes", &mut output, 100_000)
        .await;
    is(done, ErrorKind::Protocol);
    assert!(output.len() <= 100_001);
    let server = serve(endless(b"OKAY\x01\xff\xff\xff\xff"), "127.0.0.1").await;
    is(
        server.target("x").unwrap().shell("yes").await,
        ErrorKind::Protocol,
    );
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
