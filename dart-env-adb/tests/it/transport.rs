//! The simulated phone as servers newer than Debian's see it: this test is the server.

use std::time::Duration;

use dart_env_adb::{
    simulator::{Options, Simulator},
    wire::{
        packet::{Command, HEADER, Header, MAX_PAYLOAD, VERSION},
        window,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::pad::{Pad, SCREEN};

/// How long the phone may take to send what it sends, and how long it has to keep still.
const SOON: Duration = Duration::from_secs(5);
const STILL: Duration = Duration::from_millis(200);

struct Server(TcpStream);

impl Server {
    /// Connects and greets; gives the phone's greeting too.
    async fn greet(phone: &Simulator<Pad>, features: &str) -> (Self, Vec<u8>) {
        let mut server = Self(TcpStream::connect(phone.serial()).await.unwrap());
        let greeting = format!("host::features={features}");
        let numbers = (VERSION, MAX_PAYLOAD as u32);
        let greeted = server.send(Command::Connect, numbers, greeting.as_bytes());
        greeted.await;
        let (header, greeting) = server.packet().await.unwrap();
        assert_eq!(header.command, Command::Connect);
        (server, greeting)
    }

    async fn send(&mut self, command: Command, (arg0, arg1): (u32, u32), payload: &[u8]) {
        let header = Header::of(command, arg0, arg1, payload).unwrap();
        self.0.write_all(&header.encode()).await.unwrap();
        self.0.write_all(payload).await.unwrap();
    }

    async fn packet(&mut self) -> std::io::Result<(Header, Vec<u8>)> {
        let read = async {
            let mut bytes = [0; HEADER];
            self.0.read_exact(&mut bytes).await?;
            let header = Header::decode(&bytes).unwrap();
            let mut payload = vec![0; header.length];
            self.0.read_exact(&mut payload).await?;
            Ok((header, payload))
        };
        timeout(SOON, read).await.unwrap()
    }

    async fn open(&mut self, takes: u32, service: &str) -> (Header, Vec<u8>) {
        let service = format!("{service}\0");
        self.send(Command::Open, (7, takes), service.as_bytes())
            .await;
        self.packet().await.unwrap()
    }

    /// Whether nothing comes for a while.
    async fn is_still(&self) -> bool {
        timeout(STILL, self.0.peek(&mut [0])).await.is_err()
    }
}

async fn phone(delayed_ack: bool) -> Simulator<Pad> {
    let options = Options {
        delayed_ack,
        ..Options::default()
    };
    Simulator::start(Pad::new(SCREEN), options).await.unwrap()
}

#[tokio::test]
async fn with_delayed_acknowledgement_packets_go_out_as_far_as_the_balance_allows() {
    let phone = phone(true).await;
    let (mut server, greeting) = Server::greet(&phone, "shell_v2,delayed_ack").await;
    assert!(window::has_feature(&greeting, window::FEATURE));
    // `yes` sends a mebibyte at a time.
    let takes = 3 * MAX_PAYLOAD as u32 - 1;
    let (opened, grant) = server.open(takes, "exec:yes").await;
    assert_eq!((opened.command, opened.arg1), (Command::Okay, 7));
    assert!(i32::from_le_bytes(grant.try_into().unwrap()) > 0);
    for packet in 0..3 {
        let (header, payload) = server.packet().await.unwrap();
        assert_eq!(header.command, Command::Write, "{packet}");
        assert_eq!(payload.len(), MAX_PAYLOAD);
    }
    assert!(server.is_still().await, "one byte too many is under way");
    let okay = window::acknowledgement(1);
    server.send(Command::Okay, (7, opened.arg0), &okay).await;
    assert!(server.is_still().await, "and now none may be");
    server.send(Command::Okay, (7, opened.arg0), &okay).await;
    let (header, _) = server.packet().await.unwrap();
    assert_eq!(header.command, Command::Write);
    assert!(server.is_still().await);
    // An acknowledgement of the other kind breaks the stream off.
    server.send(Command::Okay, (7, opened.arg0), b"").await;
    let (header, _) = server.packet().await.unwrap();
    assert_eq!(header.command, Command::Close);
}

#[tokio::test]
async fn what_the_phone_takes_it_acknowledges_by_bytes() {
    let phone = phone(true).await;
    let (mut server, _) = Server::greet(&phone, "shell_v2,delayed_ack").await;
    let (opened, _) = server.open(1 << 20, "tcp:9").await;
    let numbers = (7, opened.arg0);
    // Three at once, none of them acknowledged yet.
    for length in [3, 5, 8] {
        server.send(Command::Write, numbers, &vec![1; length]).await;
    }
    let (mut acknowledged, mut echoed) = (0, 0);
    while acknowledged < 16 || echoed < 16 {
        let (header, payload) = server.packet().await.unwrap();
        match header.command {
            Command::Okay => acknowledged += i32::from_le_bytes(payload.try_into().unwrap()),
            _ => echoed += payload.len(),
        }
    }
    assert_eq!((acknowledged, echoed), (16, 16));
}

#[tokio::test]
async fn without_it_on_either_side_one_packet_is_under_way() {
    for (offers, features) in [(true, "shell_v2"), (false, "shell_v2,delayed_ack")] {
        let phone = phone(offers).await;
        let (mut server, greeting) = Server::greet(&phone, features).await;
        assert_eq!(window::has_feature(&greeting, window::FEATURE), offers);
        let (opened, grant) = server.open(0, "exec:yes").await;
        assert_eq!(opened.command, Command::Okay);
        assert!(grant.is_empty());
        assert_eq!(server.packet().await.unwrap().0.command, Command::Write);
        assert!(server.is_still().await);
        server.send(Command::Okay, (7, opened.arg0), b"").await;
        assert_eq!(server.packet().await.unwrap().0.command, Command::Write);
        assert!(server.is_still().await);
    }
}

#[tokio::test]
async fn an_opening_that_does_not_fit_the_greeting_is_refused() {
    let phone = phone(true).await;
    for (features, takes) in [("shell_v2", 1 << 20), ("delayed_ack", 0)] {
        let (mut server, _) = Server::greet(&phone, features).await;
        let (header, _) = server.open(takes, "exec:yes").await;
        assert_eq!((header.command, header.arg1), (Command::Close, 7));
    }
}

#[tokio::test]
async fn packets_are_no_longer_than_the_server_takes() {
    let phone = phone(true).await;
    let mut server = Server(TcpStream::connect(phone.serial()).await.unwrap());
    server
        .send(Command::Connect, (VERSION, 4096), b"host::")
        .await;
    server.packet().await.unwrap();
    server.open(0, "exec:yes").await;
    let (header, _) = server.packet().await.unwrap();
    assert_eq!(header.length, 4096);
}
