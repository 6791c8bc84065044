//! [`OwnServer`]: an ADB server on a private port.

use std::{
    net::TcpListener,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use dart_core::Result;
use tokio::{
    process::{Child, Command},
    time::sleep,
};

use crate::{
    client::{AdbServer, Timeouts},
    error::AdbError,
};

/// Longest start of the server; it makes a key first.
const START: Duration = Duration::from_secs(20);
/// Ports tried. Somebody may take one between the choice and the start.
const ATTEMPTS: usize = 5;

/// An ADB server that was started for its owner alone: on a free port of the loopback interface, with
/// keys of its own, looking for no USB devices and no emulators. It is ended, by its process id, when
/// this is dropped. The server that the command `adb` uses is not touched.
#[derive(Debug)]
pub struct OwnServer {
    // Killed when dropped.
    child: Child,
    server: AdbServer,
    home: tempfile::TempDir,
}

impl OwnServer {
    /// Starts the program `adb` (a path or a name to look up) as a server.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if it cannot be started,
    /// [`Timeout`](dart_core::ErrorKind::Timeout) if it does not answer.
    ///
    /// # Cancel safety
    /// A server that was started dies with the future.
    pub async fn start(program: &Path) -> Result<Self> {
        let mut last = AdbError::Config("no port is free".into());
        for _ in 0..ATTEMPTS {
            match Self::try_start(program).await {
                Ok(server) => return Ok(server),
                Err(error @ (AdbError::Ended(_) | AdbError::Broken(_))) => last = error,
                Err(error) => return Err(error.at("start server")),
            }
        }
        Err(last.at("start server"))
    }

    async fn try_start(program: &Path) -> Result<Self, AdbError> {
        let home = tempfile::Builder::new().prefix("dart-adb-").tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = std::fs::File::create(home.path().join("server.log"))?;
        let mut command = Command::new(program);
        command
            .args(["-P", &port.to_string(), "nodaemon", "server"])
            .env("HOME", home.path())
            .env("ANDROID_USER_HOME", home.path())
            .env("TMPDIR", home.path())
            .env("ADB_EMU", "0")
            .env("ADB_MDNS", "0")
            .env("ADB_USB", "0")
            .env_remove("ADB_SERVER_SOCKET")
            .env_remove("ADB_VENDOR_KEYS")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        let child = command.spawn().map_err(|error| {
            let program = program.display();
            AdbError::Config(format!(
                "cannot start {program}: {error}; install the package adb"
            ))
        })?;
        let server = AdbServer::new("127.0.0.1", port);
        let mut own = Self {
            child,
            server,
            home,
        };
        own.answers().await?;
        Ok(own)
    }

    async fn answers(&mut self) -> Result<(), AdbError> {
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            if self.server.version().await.is_ok() {
                return Ok(());
            }
            if self.child.try_wait()?.is_some() {
                return Err(AdbError::Ended("its start: is the port taken?"));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Err(AdbError::Late(START.as_millis()))
    }

    /// Its client.
    pub const fn server(&self) -> &AdbServer {
        &self.server
    }

    /// Its client, with other deadlines.
    pub fn with_timeouts(&self, timeouts: Timeouts) -> AdbServer {
        self.server.clone().with_timeouts(timeouts)
    }

    /// The folder with its keys and its log, `server.log`; `HOME` for the command `adb` if it is to use this server.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Ends it and waits until it is gone.
    ///
    /// # Errors
    /// [`Disconnected`](dart_core::ErrorKind::Disconnected) if the system cannot end it.
    pub async fn stop(mut self) -> Result<()> {
        let killed = self.child.kill().await;
        killed.map_err(|error| AdbError::from(error).at("stop server"))
    }
}
