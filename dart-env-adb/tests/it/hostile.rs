//! Hostile servers, and devices behind servers that pass everything on: every attack ends in an error
//! of its kind, in time and in bounds.

use std::time::Duration;

use dart_core::{ErrorKind, Result};
use dart_env_adb::client::{AdbServer, AdbTarget, Timeouts, WaitFor};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// The deadline of every call here.
const LIMIT: Duration = Duration::from_millis(1_500);
/// The pause between bytes that come one by one: shorter than any deadline.
const DRIP: Duration = Duration::from_millis(100);

/// What a server does after its answers.
#[derive(Clone, Debug, PartialEq)]
enum Then {
    Closes,
    /// Says this for ever, as fast as it is read.
    Repeats(Vec<u8>),
    /// Says one of these bytes after another, each after a pause, for ever.
    Drips(Vec<u8>),
    /// Says nothing more, reads nothing more, and keeps the connection.
    Hangs,
}

/// What a server says after each request, and what it does then.
#[derive(Clone)]
struct Script {
    answers: Vec<Vec<u8>>,
    then: Then,
}

fn script(answers: &[&[u8]]) -> Script {
    Script {
        answers: answers.iter().map(|answer| answer.to_vec()).collect(),
        then: Then::Closes,
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
                match script.then {
                    Then::Closes => {}
                    Then::Repeats(bytes) => {
                        let many = bytes.repeat(65_536 / bytes.len() + 1);
                        while socket.write_all(&many).await.is_ok() {}
                    }
                    Then::Drips(bytes) => {
                        for byte in bytes.iter().cycle() {
                            tokio::time::sleep(DRIP).await;
                            if socket.write_all(&[*byte]).await.is_err() {
                                return;
                            }
                        }
                    }
                    Then::Hangs => std::future::pending().await,
                }
            });
        }
    });
    let millis = LIMIT.as_millis() as u64;
    let timeouts = Timeouts {
        connect_ms: 1_000,
        call_ms: millis,
        transfer_ms: millis,
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
        then: Then::Hangs,
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
        then: Then::Repeats(vec![b'x'; 1 << 16]),
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

/// A call of the client.
#[derive(Clone, Copy, Debug)]
enum Call {
    Devices,
    Exec,
    Forward,
    Framebuffer,
    List,
    Pull,
    Push,
    Reboot,
    Reverse,
    Root,
    Shell,
    Stat,
    State,
    Track,
    WaitFor,
}

impl Call {
    async fn on(self, server: &AdbServer) -> Result<()> {
        let target = server.target("x").unwrap();
        let mut output = Vec::new();
        match self {
            Self::Devices => server.devices().await.map(drop),
            Self::Exec => target.exec("x", &mut output, 1 << 20).await,
            Self::Forward => target.forward("tcp:0", "tcp:1").await.map(drop),
            Self::Framebuffer => target.framebuffer().await.map(drop),
            Self::List => target.list("/x").await.map(drop),
            Self::Pull => target.pull("/x", 1 << 12).await.map(drop),
            Self::Push => target.push(&vec![0; 32 << 20], "/x", 0o644).await,
            Self::Reboot => target.reboot(None).await,
            Self::Reverse => target.reverse("tcp:0", "tcp:1").await.map(drop),
            Self::Root => target.root().await.map(drop),
            Self::Shell => target.shell("x").await.map(drop),
            Self::Stat => target.stat("/x").await.map(drop),
            Self::State => target.state().await.map(drop),
            Self::Track => {
                let mut tracker = server.track_devices().await?;
                tracker.next(LIMIT).await.map(drop)
            }
            Self::WaitFor => target.wait_for(WaitFor::Device, LIMIT).await,
        }
    }
}

const EMPTY_OUTPUT: &[u8] = b"\x01\0\0\0\0";
const DOT: &[u8] = b"DENT\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0.";
const PIECE: &[u8] = b"DATA\x02\0\0\0hi";
const EMPTY_PIECE: &[u8] = b"DATA\0\0\0\0";

/// A call, what it is answered, what comes then, and how it has to end. Answers after the first
/// `OKAY` are those of the device.
type Row = (Call, &'static [&'static [u8]], Then, ErrorKind);

#[allow(clippy::too_many_lines, reason = "a table, one row a class of fault")]
fn rows() -> Vec<Row> {
    use ErrorKind::{Disconnected, Protocol, Timeout, Unsupported};
    let repeats = |bytes: &[u8]| Then::Repeats(bytes.to_vec());
    let drips = |bytes: &[u8]| Then::Drips(bytes.to_vec());
    let opened: &[&[u8]] = &[b"OKAY", b"OKAY"];
    vec![
        // Bytes that count for nothing, for ever and at once: only the clock ends it.
        (Call::Shell, opened, repeats(EMPTY_OUTPUT), Timeout),
        (Call::Pull, opened, repeats(EMPTY_PIECE), Timeout),
        // Endless, and bounded by what it is.
        (Call::Pull, opened, repeats(PIECE), Protocol),
        (Call::List, opened, repeats(DOT), Protocol),
        (Call::Exec, opened, repeats(b"y"), Protocol),
        (Call::Root, opened, repeats(b"y"), Protocol),
        (Call::Reboot, opened, repeats(b"y"), Protocol),
        (Call::Devices, &[b"OKAYffff"], repeats(b"y"), Protocol),
        (Call::Track, &[b"OKAY"], repeats(b"0001y"), Protocol),
        // One byte at a time: the deadline is that of the call, not of a read.
        (Call::Shell, opened, drips(b"\x01\xff\0\0\0y"), Timeout),
        (Call::Exec, opened, drips(b"y"), Timeout),
        (Call::Pull, opened, drips(PIECE), Timeout),
        (Call::List, opened, drips(DOT), Timeout),
        (Call::Framebuffer, opened, drips(b"\x01\0\0\0"), Timeout),
        (Call::State, &[], drips(b"OKAYffffy"), Timeout),
        // Silence at every stage.
        (Call::State, &[], Then::Hangs, Timeout),
        (Call::Shell, &[b"OKAY"], Then::Hangs, Timeout),
        (Call::Stat, opened, Then::Hangs, Timeout),
        (Call::Push, opened, Then::Hangs, Timeout),
        (Call::WaitFor, &[b"OKAY"], Then::Hangs, Timeout),
        (Call::Forward, &[b"OKAY"], Then::Hangs, Timeout),
        (Call::Track, &[b"OKAY"], Then::Hangs, Timeout),
        (Call::State, &[b"OKAY0010"], Then::Hangs, Timeout),
        // The end in the middle of something.
        (
            Call::Stat,
            &[b"OKAY", b"OKAY", b"STAT\0"],
            Then::Closes,
            Disconnected,
        ),
        (Call::Push, &[b"OKAY", b"OKAY"], Then::Closes, Disconnected),
        (Call::WaitFor, &[b"OKAY"], Then::Closes, Disconnected),
        (Call::Reverse, opened, Then::Closes, Disconnected),
        // Answers to another question.
        (
            Call::Stat,
            &[b"OKAY", b"OKAY", b"OKAY\0\0\0\0"],
            Then::Closes,
            Protocol,
        ),
        (
            Call::Stat,
            &[b"OKAY", b"OKAY", PIECE],
            Then::Closes,
            Protocol,
        ),
        (
            Call::List,
            &[b"OKAY", b"OKAY", PIECE],
            Then::Closes,
            Protocol,
        ),
        (
            Call::Stat,
            &[b"OKAY", b"OKAY", b"FAIL\x02\0\0\0no"],
            Then::Closes,
            Unsupported,
        ),
        // Ports that are none.
        (
            Call::Forward,
            &[b"OKAYOKAY0005x1234"],
            Then::Closes,
            Protocol,
        ),
        (
            Call::Forward,
            &[b"OKAYOKAY000599999"],
            Then::Closes,
            Protocol,
        ),
        (
            Call::Reverse,
            &[b"OKAY", b"OKAYOKAYOKAY0002-1"],
            Then::Closes,
            Protocol,
        ),
        (
            Call::Reverse,
            &[b"OKAY", b"OKAYFAIL0003no!"],
            Then::Closes,
            Unsupported,
        ),
    ]
}

async fn check((number, (call, answers, then, kind)): (usize, Row)) {
    let row = format!("row {number}: {call:?}, then {then:.40?}");
    let script = Script {
        then,
        ..script(answers)
    };
    let server = serve(script, "127.0.0.1").await;
    let started = std::time::Instant::now();
    let ended = tokio::time::timeout(4 * LIMIT, call.on(&server)).await;
    let error = ended.expect(&row).expect_err(&row);
    assert_eq!(error.kind(), kind, "{row}: {error}");
    let (took, late) = (started.elapsed(), error.kind() == ErrorKind::Timeout);
    assert!(!late || took >= LIMIT, "{row}: {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attack_ends_in_an_error_of_its_kind_in_time() {
    let is_late = |(_, row): &(usize, Row)| row.3 == ErrorKind::Timeout;
    let (late, other): (Vec<_>, Vec<_>) = rows().into_iter().enumerate().partition(is_late);
    for row in other {
        check(row).await;
    }
    // Those that only the clock ends wait side by side.
    let mut all = tokio::task::JoinSet::new();
    for row in late {
        all.spawn(check(row));
    }
    while let Some(ended) = all.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn any_limit_is_a_limit() {
    let server = serve(script(&[b"OKAY", b"OKAYhello"]), "127.0.0.1").await;
    let mut output = Vec::new();
    let target = server.target("x").unwrap();
    target.exec("x", &mut output, usize::MAX).await.unwrap();
    assert_eq!(output, b"hello");
}

#[tokio::test]
async fn what_a_device_would_cut_is_never_sent() {
    let target = target(&[b"OKAY", b"OKAY"]).await;
    is(target.shell("rm /a\0b").await, ErrorKind::Misuse);
    is(target.stat("/a\0b").await, ErrorKind::Misuse);
    is(target.push(b"", "/a\0b", 0o644).await, ErrorKind::Misuse);
    let long = "x".repeat(1025);
    is(target.pull(&long, 1).await, ErrorKind::Misuse);
}

#[tokio::test]
async fn reasons_of_a_peer_cannot_write_to_a_terminal() {
    let reason = b"FAIL\x0b\0\0\0\x1b[2J\x07secret";
    let error = target(&[b"OKAY", reason]).await.stat("/x").await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("\\u{1b}[2J\\u{7}secre"), "{text}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

#[tokio::test]
async fn a_list_that_comes_in_parts_is_not_lost_when_the_time_runs_out() {
    let parts = Script {
        then: Then::Drips(b"0009a device\n".to_vec()),
        ..script(&[b"OKAY"])
    };
    let server = serve(parts, "127.0.0.1").await;
    let mut tracker = server.track_devices().await.unwrap();
    is(
        tracker.next(Duration::from_millis(250)).await,
        ErrorKind::Timeout,
    );
    let again = tracker.next(Duration::from_secs(5)).await.unwrap();
    assert_eq!(again[0].serial, "a");
}

/// A pipe that nobody writes to has no end.
#[cfg(unix)]
#[tokio::test]
async fn only_files_with_an_end_are_pushed() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let target = target(&[b"OKAY"]).await;
    is(
        target.push_file(&pipe, "/x", 0o644).await,
        ErrorKind::Storage,
    );
    let pushed = target.push_file(folder.path(), "/x", 0o644).await;
    is(pushed, ErrorKind::Storage);
}
