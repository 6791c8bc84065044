//! Records what a real ADB server and the simulated phone say, as seeds for the fuzz targets.
//!
//! ```text
//! cargo run -p dart-env-adb --example adb_record --features simulator -- dart-env-adb/fuzz/seeds
//! ```

#![allow(clippy::print_stdout, reason = "a program that prints")]

#[path = "common/still.rs"]
mod still;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dart_core::Size;
use dart_env_adb::{
    OwnServer,
    client::WaitFor,
    simulator::{Options, Simulator},
    wire::smart_socket::request,
};
use still::Still;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// So small that pictures are within the longest input.
const SCREEN: Size = Size::new(20, 12);
/// How long there may be nothing new before a conversation counts as over.
const QUIET: Duration = Duration::from_millis(300);

/// What passed through a proxy, to the phone and from it.
type Recording = Arc<Mutex<[Vec<u8>; 2]>>;

/// Passes a server's connection on to a phone and records both ways.
async fn proxy(listener: TcpListener, phone: String, recording: Recording) -> io::Result<()> {
    let (mut server, _) = listener.accept().await?;
    let mut phone = TcpStream::connect(phone).await?;
    let (mut here, mut there) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let (way, bytes) = tokio::select! {
            read = server.read(&mut here) => (0, &here[..read?]),
            read = phone.read(&mut there) => (1, &there[..read?]),
        };
        if bytes.is_empty() {
            return Ok(());
        }
        recording.lock().unwrap_or_else(PoisonError::into_inner)[way].extend_from_slice(bytes);
        match way {
            0 => phone.write_all(bytes).await?,
            _ => server.write_all(bytes).await?,
        }
    }
}

struct Recorder {
    port: u16,
    serial: String,
    folder: PathBuf,
}

impl Recorder {
    /// What the server says to `requests`, each but the last answered by `OKAY` alone, and to
    /// `words` after them.
    async fn said(&self, requests: &[&str], words: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let (last, before) = requests.split_last().ok_or("no request")?;
        for text in before {
            socket.write_all(&request(text)?).await?;
            let mut okay = [0; 4];
            socket.read_exact(&mut okay).await?;
        }
        socket.write_all(&request(last)?).await?;
        let mut said = Vec::new();
        let mut part = vec![0; 1 << 16];
        let mut words = Some(words).filter(|words| !words.is_empty());
        // Until the end, or until nothing more is said.
        while let Ok(read) = timeout(QUIET, socket.read(&mut part)).await {
            let read = read?;
            if read == 0 {
                break;
            }
            said.extend_from_slice(&part[..read]);
            if let Some(words) = words.take_if(|_| said.len() >= 4) {
                socket.write_all(words).await?;
            }
        }
        Ok(said)
    }

    /// What the phone's `service` says to `words`.
    async fn service(&self, service: &str, words: &[u8]) -> Result<Vec<u8>, Failure> {
        let transport = format!("host:transport:{}", self.serial);
        let said = self.said(&[&transport, service], words).await?;
        Ok(said
            .strip_prefix(b"OKAY")
            .ok_or("no such service")?
            .to_vec())
    }

    /// Writes a seed: `choice` are the bytes that a target reads before those of the peer.
    fn save(&self, target: &str, name: &str, choice: &[u8], bytes: &[u8]) -> Result<(), Failure> {
        let folder = self.folder.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(
            folder.join(format!("recorded-{name}")),
            [choice, bytes].concat(),
        )?;
        println!("{target}/recorded-{name}: {} bytes", bytes.len());
        Ok(())
    }

    async fn replies(&self) -> Result<(), Failure> {
        let missing = "host:transport:nosuch";
        for (name, kind, text) in [
            ("version", 1, "host:version"),
            ("devices", 1, "host:devices-l"),
            ("features", 1, "host:host-features"),
            ("missing", 0, missing),
        ] {
            let said = self.said(&[text], b"").await?;
            self.save("reply", name, &[3, kind], &said)?;
            if name == "devices" {
                self.save("devices", name, b"", &said[8..])?;
            }
        }
        let tracked = self.said(&["host:track-devices"], b"").await?;
        self.save(
            "reply",
            "track",
            &[9, 2],
            tracked.strip_prefix(b"OKAY").unwrap_or(&tracked),
        )
    }

    async fn services(&self) -> Result<(), Failure> {
        let shell = self.service("shell,v2,raw:echo hi; nonsense", b"").await?;
        self.save("shell", "echo", &[5], &shell)?;
        let push = b"SEND\x0f\0\0\0/sdcard/a,33188DATA\x05\0\0\0helloDONE\x07\0\0\0";
        self.save("sync", "push", &[4, 0], &self.service("sync:", push).await?)?;
        for (name, listing, words) in [
            ("list", 1, &b"LIST\x07\0\0\0/sdcard"[..]),
            ("stat", 0, b"STAT\x09\0\0\0/sdcard/a"),
            ("pull", 0, b"RECV\x09\0\0\0/sdcard/a"),
            ("missing", 0, b"RECV\x09\0\0\0/sdcard/b"),
        ] {
            let said = self.service("sync:", words).await?;
            self.save("sync", name, &[4, listing], &said)?;
        }
        for (name, kind, service) in [
            ("raw", 0, "exec:screencap"),
            ("png", 1, "exec:screencap -p"),
            ("framebuffer", 2, "framebuffer:"),
        ] {
            self.save("screen", name, &[kind], &self.service(service, b"").await?)?;
        }
        let dump = "exec:uiautomator dump /dev/tty";
        self.save("dump", "button", b"", &self.service(dump, b"").await?)
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = std::env::args()
        .nth(1)
        .ok_or("name the folder of the seeds")?;
    let phone = Simulator::start(Still::new(SCREEN)?, Options::default()).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let serial = listener.local_addr()?.to_string();
    let recording = Recording::default();
    tokio::spawn(proxy(listener, phone.serial(), Arc::clone(&recording)));
    let own = OwnServer::start(Path::new("adb")).await?;
    own.server().connect(&serial).await?;
    let target = own.server().target(serial.clone())?;
    target
        .wait_for(WaitFor::Device, Duration::from_secs(10))
        .await?;
    target.shell("echo hi").await?;
    target.push(b"hello", "/sdcard/a", 0o644).await?;
    let [to_phone, from_phone] = {
        let mut both = recording.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *both)
    };
    let (port, folder) = (own.server().port(), folder.into());
    let recorder = Recorder {
        port,
        serial,
        folder,
    };
    recorder.save("packet", "to-phone", b"", &to_phone)?;
    recorder.save("packet", "from-phone", b"", &from_phone)?;
    recorder.replies().await?;
    recorder.services().await?;
    own.stop().await?;
    Ok(())
}
