//! A machine that does not keep to HTTP or to OSWorld's format: each question ends within its
//! deadline with an error, nothing unbounded is kept, nobody else is asked, and no password is said.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use dart_core::{Error, ErrorKind};
use dart_env_vnc::osworld::{
    CommandText, Guest, GuestCommand, Output, Query, ServerConfig, ServerGuest,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::sleep,
};

const DEADLINE_MS: u64 = 1_500;
const LIMIT: usize = 1 << 16;

/// What is sent: at first, and then again and again with a pause, until the client leaves.
struct Script {
    first: Vec<u8>,
    again: Option<(Vec<u8>, Duration)>,
}

fn once(first: impl Into<Vec<u8>>) -> Script {
    Script {
        first: first.into(),
        again: None,
    }
}

fn again(first: &str, again: impl Into<Vec<u8>>, millis: u64) -> Script {
    Script {
        first: first.as_bytes().to_vec(),
        again: Some((again.into(), Duration::from_millis(millis))),
    }
}

async fn play(mut stream: TcpStream, script: Arc<Script>, hold: bool) {
    let mut asked = vec![0; 4096];
    // Whatever is asked.
    let _some = stream.read(&mut asked).await;
    let mut open = stream.write_all(&script.first).await.is_ok();
    while open && let Some((again, pause)) = &script.again {
        sleep(*pause).await;
        open = stream.write_all(again).await.is_ok();
    }
    if hold {
        sleep(Duration::from_mins(1)).await;
    }
}

/// Sends `script` to whoever connects. Closes after it if nothing is repeated and `hold` is false.
async fn peer(script: Script, hold: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(play(stream, Arc::clone(&script), hold));
        }
    });
    address
}

fn guest(address: SocketAddr) -> ServerGuest {
    ServerGuest::new(&ServerConfig {
        address: address.to_string(),
        command_timeout_ms: DEADLINE_MS,
        max_answer_bytes: LIMIT,
        ..ServerConfig::default()
    })
    .unwrap()
}

fn echo() -> GuestCommand {
    GuestCommand {
        command: CommandText::Words(vec!["echo".into()]),
        shell: false,
    }
}

/// The error of each kind of question.
async fn errors(address: SocketAddr) -> Vec<Error> {
    let mut guest = guest(address);
    let start = Instant::now();
    let errors = vec![
        guest.ask(&Query::Terminal).await.unwrap_err(),
        guest.run(&echo()).await.unwrap_err(),
        guest.read_file("/a").await.unwrap_err(),
    ];
    assert!(start.elapsed() < Duration::from_secs(20));
    errors
}

async fn is(name: &str, script: Script, hold: bool, kind: ErrorKind) {
    let address = peer(script, hold).await;
    for error in errors(address).await {
        assert_eq!(error.kind(), kind, "{name}: {error}");
        let said = format!("{error} {error:?}");
        assert!(said.len() < 2_000, "{name}: {} bytes", said.len());
    }
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_body_without_end_is_cut_off() {
    let chunk = [b"4000\r\n".to_vec(), vec![b' '; 0x4000], b"\r\n".to_vec()].concat();
    let large = ErrorKind::Protocol;
    is("chunks", again(CHUNKED, chunk, 0), true, large).await;
    let plain = "HTTP/1.1 200 OK\r\n\r\n";
    is(
        "until the end",
        again(plain, vec![b' '; 4096], 0),
        true,
        large,
    )
    .await;
    let claims = "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551614\r\n\r\n";
    is(
        "as long as it says",
        again(claims, vec![b'x'; 4096], 0),
        true,
        ErrorKind::Disconnected,
    )
    .await;
    let long = again("HTTP/1.1 200 OK\r\nX: ", vec![b'a'; 65_536], 0);
    is("a head without end", long, true, ErrorKind::Disconnected).await;
}

#[tokio::test]
async fn a_slow_or_silent_peer_runs_into_the_deadline() {
    let late = ErrorKind::Timeout;
    is("nothing", once(""), true, late).await;
    is(
        "a byte at a time",
        again("HTTP/1.1 200 OK\r\nX: ", "a", 100),
        true,
        late,
    )
    .await;
    is(
        "a chunk at a time",
        again(CHUNKED, "1\r\n \r\n", 100),
        true,
        late,
    )
    .await;
    let never = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}";
    is("less than it says", once(never), true, late).await;
    is("a body that never begins", once(CHUNKED), true, late).await;
    let wait = "HTTP/1.1 100 Continue\r\n\r\n";
    is("always: go on", again(wait, wait, 50), true, late).await;
}

#[tokio::test]
async fn what_is_not_http_is_an_error() {
    let gone = ErrorKind::Disconnected;
    is("nothing", once(""), false, gone).await;
    is("rubbish", once("\u{0}\u{1}rubbish\r\n\r\n"), false, gone).await;
    is(
        "half a head",
        once("HTTP/1.1 200 OK\r\nContent-Le"),
        false,
        gone,
    )
    .await;
    let short = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}";
    is("less than it says", once(short), false, gone).await;
    for length in ["-1", "1, 2", "x", "99999999999999999999999"] {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{{}}");
        is(length, once(head), false, gone).await;
    }
    let broken = format!("{CHUNKED}zz\r\n{{}}\r\n0\r\n\r\n");
    is("a chunk of no size", once(broken), false, gone).await;
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}";
    is("two lengths", once(two), false, gone).await;
}

#[tokio::test]
async fn nobody_else_is_asked() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = other.local_addr().unwrap();
    for status in [301, 302, 303, 307, 308] {
        let moved = format!(
            "HTTP/1.1 {status} Moved\r\nLocation: http://{there}/\r\nContent-Length: 0\r\n\r\n"
        );
        is("elsewhere", once(moved), false, ErrorKind::Protocol).await;
    }
    for status in [
        "204 No Content",
        "206 Partial",
        "401 No",
        "500 Broken",
        "999 Odd",
    ] {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        let mut guest = guest(peer(once(answer), false).await);
        let error = guest.ask(&Query::Terminal).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{status}: {error}");
    }
    let nobody = tokio::time::timeout(Duration::from_millis(100), other.accept()).await;
    assert!(nobody.is_err(), "it was asked");
}

fn answer(body: &str) -> Script {
    let length = body.len();
    once(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

#[tokio::test]
async fn json_of_another_shape_is_an_error() {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    for body in [
        "",
        "null",
        "[]",
        "{}",
        "{\"status\": \"success\", \"output\": {}}",
        "{\"status\": \"success\", \"returncode\": 1e99}",
        "{\"directory_tree\": 3, \"output\": 1}",
        "\u{feff}{}",
        &deep,
        &format!("{{\"output\": {deep}, \"directory_tree\": {deep}}}"),
    ] {
        let address = peer(answer(body), false).await;
        let mut guest = guest(address);
        for error in [
            guest.ask(&Query::Terminal).await.unwrap_err(),
            guest.ask(&Query::Directory("~".into())).await.unwrap_err(),
            guest.ask(&Query::Accessibility).await.unwrap_err(),
            guest.run(&echo()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
            assert!(error.to_string().len() < 600, "{error}");
        }
    }
    let whole = "{\"status\": \"success\", \"output\": \"o\", \"error\": \"e\", \"returncode\": 3}";
    let mut guest = guest(peer(answer(whole), false).await);
    let output = Output {
        stdout: "o".into(),
        stderr: "e".into(),
        code: 3,
    };
    assert_eq!(guest.run(&echo()).await.unwrap(), output);
}

/// OSWorld's server says a command that it could not run again, with the password in it.
#[tokio::test]
async fn a_password_that_the_machine_says_again_is_not_shown() {
    // Every process has it, and no test sets it.
    let password = std::env::var("PATH").unwrap();
    let said = serde_json::Value::from(format!("cannot run echo {password} | sudo -S x"));
    let body = format!("{{\"status\": \"error\", \"message\": {said}, \"output\": \"\"}}");
    let refused = format!("HTTP/1.1 500 No\r\n\r\n{body}");
    let twice = format!("{{\"status\": {said}}} {{");
    for script in [answer(&body), once(refused), answer(&twice)] {
        let mut guest = ServerGuest::new(&ServerConfig {
            address: peer(script, false).await.to_string(),
            password_env: Some("PATH".into()),
            ..ServerConfig::default()
        })
        .unwrap();
        let error = guest.run(&echo()).await.unwrap_err();
        let text = format!("{error} {error:?} {guest:?}");
        assert!(!text.contains(&password), "{text}");
        assert!(!text.contains(&password[..20]), "{text}");
    }
}
