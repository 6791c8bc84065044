//! [`SnapshotHook`]: state that is restored before each episode, where the device can do that.
//!
//! An emulator keeps snapshots and loads them by an order on its console, a line-based service on a port of
//! its own machine, which is what `adb emu avd snapshot load NAME` speaks as well.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use dart_core::{Device, Result};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::steps::run;
use crate::{
    device::AdbDevice,
    error::{Adb, AdbError, excerpt},
};

/// Longest greeting or answer, bytes.
const MAX_ANSWER: u64 = 1 << 16;
/// Longest token, bytes.
const MAX_TOKEN: usize = 256;
/// Where an emulator leaves its token, in the user's folder.
const TOKEN_FILE: &str = ".emulator_console_auth_token";

/// How the state of a device is restored before each episode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SnapshotHook {
    /// By a snapshot of an emulator, which was saved there before.
    Console {
        /// Its name: letters, digits, `.`, `_` and `-`.
        name: String,
        /// `host:port` of the console. Default: for a serial `emulator-5554` it is
        /// `127.0.0.1:5554`; other devices need it.
        #[serde(default)]
        address: Option<String>,
        /// The file with the console's token. Default: `.emulator_console_auth_token` in the user's
        /// folder, where emulators write it; for a console of this machine alone.
        #[serde(default)]
        token_file: Option<PathBuf>,
        /// How long loading may take, milliseconds. Default 60,000.
        #[serde(default = "limit")]
        limit_ms: u64,
    },
    /// By a command line of the device's shell, which has to succeed.
    Shell(String),
}

const fn limit() -> u64 {
    60_000
}

impl SnapshotHook {
    /// Whether it is possible for the device `serial`.
    pub(super) fn check(&self, serial: &str) -> Adb<()> {
        match self {
            Self::Console { name, .. } => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                if !(1..=64).contains(&name.len()) || !name.chars().all(plain) {
                    let message =
                        format!("environment.snapshot: {name:?} is no name of a snapshot");
                    return Err(AdbError::Config(message));
                }
                self.console(serial).map(drop)
            }
            Self::Shell(_) => Ok(()),
        }
    }

    /// The console's address.
    fn console(&self, serial: &str) -> Adb<String> {
        if let Self::Console {
            address: Some(address),
            ..
        } = self
        {
            return Ok(address.clone());
        }
        let port = serial.strip_prefix("emulator-");
        let port = port.and_then(|port| port.parse::<u16>().ok());
        port.map(|port| format!("127.0.0.1:{port}")).ok_or_else(|| {
            let message = format!("environment.snapshot.console.address is needed for {serial:?}");
            AdbError::Config(message)
        })
    }

    /// Restores the state and makes the device usable again.
    pub(super) async fn restore(&self, device: &mut AdbDevice) -> Result<()> {
        let serial = device.target().serial().to_owned();
        match self {
            Self::Shell(line) => run(device.target(), line).await.map(drop),
            Self::Console {
                name,
                token_file,
                limit_ms,
                ..
            } => {
                let loaded = async {
                    self.check(&serial)?;
                    let address = self.console(&serial)?;
                    let mut console = Console::connect(&address, token_file.as_ref()).await?;
                    console.order(&format!("avd snapshot load {name}")).await
                };
                let limit = Duration::from_millis(*limit_ms);
                let late = |_| Err(AdbError::Late(limit.as_millis()));
                let loaded = timeout(limit, loaded).await.unwrap_or_else(late);
                loaded.map_err(|error| error.at("snapshot").with("device", &serial))?;
                // The connection to a device that was set back is not what it was.
                device.recover().await
            }
        }
    }
}

struct Console {
    stream: BufReader<TcpStream>,
}

impl Console {
    /// Connects, and shows the token if one is asked for.
    async fn connect(address: &str, token_file: Option<&PathBuf>) -> Adb<Self> {
        let stream = TcpStream::connect(address).await.map_err(|error| {
            AdbError::Broken(format!(
                "no emulator's console answers at {address}: {error}"
            ))
        })?;
        let is_near = stream.peer_addr().is_ok_and(|peer| is_loopback(peer.ip()));
        let mut console = Self {
            stream: BufReader::new(stream),
        };
        let greeting = console.answer().await?;
        if greeting.contains("Authentication required") {
            let token = token(token_file, is_near)?;
            console.order(&format!("auth {token}")).await?;
        }
        Ok(console)
    }

    async fn order(&mut self, line: &str) -> Adb<()> {
        let line = format!("{line}\r\n");
        self.stream.get_mut().write_all(line.as_bytes()).await?;
        self.answer().await.map(drop)
    }

    /// What is said until `OK`.
    async fn answer(&mut self) -> Adb<String> {
        let mut limited = (&mut self.stream).take(MAX_ANSWER);
        let mut all = Vec::new();
        loop {
            let start = all.len();
            if limited.read_until(b'\n', &mut all).await? == 0 {
                return Err(AdbError::Ended("an answer of the emulator's console"));
            }
            let line = all[start..].trim_ascii();
            if line == b"OK" {
                return Ok(String::from_utf8_lossy(&all).into_owned());
            }
            if line.starts_with(b"KO") {
                let said = excerpt(line, 200);
                return Err(AdbError::Refused(format!(
                    "the emulator's console says {said}"
                )));
            }
        }
    }
}

const fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}

/// The token in a file; one that is not on this machine gets only a token that was named for it.
fn token(file: Option<&PathBuf>, is_near: bool) -> Adb<String> {
    let usual = || {
        let home = std::env::var_os("HOME").filter(|_| is_near)?;
        Some(PathBuf::from(home).join(TOKEN_FILE))
    };
    let Some(path) = file.cloned().or_else(usual) else {
        let message = "environment.snapshot.console.token_file is needed: the console asks for it";
        return Err(AdbError::Config(message.into()));
    };
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|e| AdbError::Config(format!("{}: {e}", path.display())))?;
    let token = text.trim();
    if token.is_empty() || token.len() > MAX_TOKEN || !token.chars().all(|c| c.is_ascii_graphic()) {
        let message = format!("{}: this is no token of a console", path.display());
        return Err(AdbError::Config(message));
    }
    Ok(token.to_owned())
}
