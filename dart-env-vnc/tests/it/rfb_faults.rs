//! Faults of a server, seen through the device: each is a typed error within its deadline that
//! names the server, or recovery.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::time::{Duration, Instant};

use dart_core::{Action, Device, Error, ErrorKind, ScreenPx};
use dart_env_vnc::{VncConfig, VncDevice, rfb::Password};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    rfb_server::{FakeServer, Mode, Quirk},
    rfb_stream::Stream,
};

/// A server that says this, with these pauses before, whatever it hears; then it stays silent, or
/// hangs up.
pub(crate) async fn scripted(script: Vec<(u64, Stream)>, hang_up: bool) -> VncConfig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let script = script.clone();
            tokio::spawn(async move {
                let (mut source, mut sink) = stream.into_split();
                let drain = tokio::spawn(async move {
                    let mut sink = [0; 1024];
                    while matches!(source.read(&mut sink).await, Ok(1..)) {}
                });
                for (pause, stream) in script {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    let _ = sink.write_all(&stream.0).await;
                }
                if hang_up {
                    drain.abort();
                } else {
                    let _ = drain.await;
                }
            });
        }
    });
    VncConfig {
        connect_timeout_ms: 500,
        handshake_timeout_ms: 300,
        update_timeout_ms: 300,
        settle_quiet_ms: 0,
        settle_max_ms: 0,
        ..VncConfig::new(endpoint)
    }
}

/// What becomes of connecting to a server that says this.
async fn connecting(bytes: Stream, hang_up: bool) -> Error {
    let config = scripted(vec![(0, bytes)], hang_up).await;
    let endpoint = config.endpoint.clone();
    let begun = Instant::now();
    let password = Some(Password::new("secret"));
    let error = VncDevice::connect_with(config, password).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(2), "{error}");
    assert!(error.to_string().contains(&endpoint), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    error
}

fn greeted() -> Stream {
    Stream::new().bytes(b"RFB 003.008\n")
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a table, one row a kind of server")]
async fn bad_servers_are_told_apart() {
    let lockout = b"Too many security failures";
    let table = [
        (
            ErrorKind::Timeout,
            "complete handshake",
            Stream::new(),
            false,
        ),
        (
            ErrorKind::Timeout,
            "complete handshake",
            Stream::new().bytes(b"RFB "),
            false,
        ),
        (
            ErrorKind::Timeout,
            "complete handshake",
            greeted().bytes(&[1, 1]),
            false,
        ),
        (
            ErrorKind::Timeout,
            "screen update",
            Stream::ready(4, 4),
            false,
        ),
        (
            ErrorKind::Timeout,
            "screen update",
            Stream::ready(4, 4).update(1),
            false,
        ),
        (
            ErrorKind::Disconnected,
            "closed the connection",
            Stream::new(),
            true,
        ),
        (
            ErrorKind::Disconnected,
            "closed the connection",
            greeted().bytes(&[1, 1]),
            true,
        ),
        (
            ErrorKind::Disconnected,
            "closed the connection",
            Stream::ready(4, 4).update(1),
            true,
        ),
        (
            ErrorKind::Disconnected,
            "busy",
            greeted().bytes(&[0]).u32(4).bytes(b"busy"),
            false,
        ),
        (
            ErrorKind::Protocol,
            "fix environment.endpoint",
            Stream::new().bytes(b"SSH-2.0-x\r\n"),
            false,
        ),
        (
            ErrorKind::Protocol,
            "framebuffer side",
            greeted().bytes(&[1, 1]).u32(0).init(65_535, 1, b""),
            false,
        ),
        (
            ErrorKind::Config,
            "security types [5]",
            greeted().bytes(&[1, 5]),
            false,
        ),
        (
            ErrorKind::Unauthorized,
            "environment.password_env",
            greeted()
                .bytes(&[1, 2])
                .bytes(&[5; 16])
                .u32(1)
                .u32(4)
                .bytes(b"nope"),
            false,
        ),
        (
            ErrorKind::Unauthorized,
            "Too many security failures",
            Stream::new()
                .bytes(b"RFB 003.003\n")
                .u32(0)
                .u32(lockout.len() as u32)
                .bytes(lockout),
            true,
        ),
    ];
    for (kind, word, stream, hang_up) in table {
        let error = connecting(stream, hang_up).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = VncDevice::connect(VncConfig::new(&endpoint))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    let expected = format!(
        "no VNC server answers at {endpoint} (connection refused): start one or fix environment.endpoint"
    );
    assert!(error.to_string().contains(&expected), "{error}");
}

#[tokio::test]
async fn a_password_is_asked_for_and_none_is_configured() {
    let config = scripted(vec![(0, greeted().bytes(&[1, 2]))], false).await;
    let error = VncDevice::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.to_string().contains("environment.password_env"),
        "{error}"
    );
}

#[tokio::test]
async fn one_byte_at_a_time_is_slow_but_right() {
    let server = FakeServer::start(Quirk::Bytewise).await;
    let config = VncConfig {
        update_timeout_ms: 10_000,
        ..server.config()
    };
    let mut device = VncDevice::connect(config).await.unwrap();
    device
        .perform(&Action::click(ScreenPx::new(9, 9)))
        .await
        .unwrap();
    let frame = device.screenshot().await.unwrap().frame;
    assert_eq!(frame.rgb(), server.rgb());
}

#[tokio::test]
async fn one_byte_a_second_is_a_timeout() {
    let server = FakeServer::start(Quirk::Dripping).await;
    let begun = Instant::now();
    let error = VncDevice::connect(server.config()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(4), "{error}");
}

#[tokio::test]
async fn a_half_open_connection_is_a_timeout_and_then_recovers() {
    let server = FakeServer::start(Quirk::None).await;
    let mut device = VncDevice::connect(server.config()).await.unwrap();
    server.set(Mode::Stall);
    let error = device.screenshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("127.0.0.1:"), "{error}");
    let error = device.recover().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    server.set(Mode::Serve);
    device.recover().await.unwrap();
    device.screenshot().await.unwrap();
}

#[tokio::test]
async fn a_restarted_server_is_waited_for() {
    let server = FakeServer::start(Quirk::None).await;
    let mut device = VncDevice::connect(server.config()).await.unwrap();
    server.set(Mode::Cut);
    let error = device.screenshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    let healing = server.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        healing.set(Mode::Serve);
    });
    device.recover().await.unwrap();
    device.screenshot().await.unwrap();
    assert!(server.connections() > 2);
}

/// A frame is published only at update boundaries: half an update is never seen.
#[tokio::test]
async fn half_an_update_is_never_seen() {
    // Colours change row by row, in two halves with a pause between; each half is an answer.
    let mut script = vec![(0, Stream::ready(4, 4).update(1).fill([0, 0, 4, 4], [0; 3]))];
    for level in 1..=60 {
        let head = Stream::new().update(2).fill([0, 0, 4, 2], [level; 3]);
        script.push((5, head));
        script.push((5, Stream::new().fill([0, 2, 4, 2], [level; 3])));
    }
    let mut device = VncDevice::connect(scripted(script, false).await)
        .await
        .unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..10 {
        let frame = device.screenshot().await.unwrap().frame;
        let level = frame.rgb()[0];
        assert_eq!(frame.rgb(), [level; 48]);
        seen.insert(level);
    }
    assert!(seen.len() > 3, "{seen:?}");
}

#[tokio::test]
async fn a_server_that_never_sends_pixels_is_a_timeout_and_no_busy_loop() {
    let server = FakeServer::start(Quirk::OnlyPseudo).await;
    let error = VncDevice::connect(server.config()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn a_screen_that_never_settles_is_not_waited_for_for_ever() {
    let server = FakeServer::start(Quirk::Restless).await;
    let config = VncConfig {
        settle_quiet_ms: 100,
        settle_max_ms: 300,
        ..server.config()
    };
    let mut device = VncDevice::connect(config).await.unwrap();
    let begun = Instant::now();
    device
        .perform(&Action::click(ScreenPx::new(9, 9)))
        .await
        .unwrap();
    let taken = begun.elapsed();
    assert!(taken >= Duration::from_millis(300), "{taken:?}");
    assert!(taken < Duration::from_millis(900), "{taken:?}");
    device.screenshot().await.unwrap();
}

#[tokio::test]
async fn a_late_reaction_is_seen_if_it_comes_within_the_quiet_time() {
    let server = FakeServer::start(Quirk::Lazy(Duration::from_millis(40))).await;
    let config = VncConfig {
        settle_quiet_ms: 150,
        settle_max_ms: 1_000,
        ..server.config()
    };
    let mut device = VncDevice::connect(config).await.unwrap();
    let before = device.screenshot().await.unwrap().frame;
    device
        .perform(&Action::click(ScreenPx::new(9, 9)))
        .await
        .unwrap();
    let after = device.screenshot().await.unwrap().frame;
    assert_ne!(before, after);
    assert_eq!(after.rgb(), server.rgb());
}

/// SIGKILL of the client is out of its hands; a dropped device is not.
#[tokio::test]
async fn a_dropped_device_holds_nothing_and_leaves_no_task() {
    let server = FakeServer::start(Quirk::None).await;
    let mut device = VncDevice::connect(server.config()).await.unwrap();
    let hold = Action::KeyDown {
        key: dart_core::Key::Char('x'),
    };
    device.perform(&hold).await.unwrap();
    assert_eq!(server.held(), 1);
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    drop(device);
    for _ in 0..100 {
        if server.held() == 0 && tasks() + 3 <= before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!(
        "{} keys held, {} of {before} tasks left",
        server.held(),
        tasks()
    );
}
