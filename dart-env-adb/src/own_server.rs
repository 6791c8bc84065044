//! [`OwnServer`]: an ADB server on a private port.
//!
//! The usual way to end a process with the one that started it, a parent-death signal, needs unsafe
//! code between fork and exec. So a small shell script, `own_server.sh`, becomes the server and
//! leaves a watcher behind that holds a pipe from this process.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
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
/// Longest wait for the watcher to remove the folder.
const CLEANING: Duration = Duration::from_secs(5);
/// What becomes the server, and ends it with the owner.
const SCRIPT: &str = include_str!("own_server.sh");
/// Exit codes of a shell that cannot become a program.
const NO_PROGRAM: [i32; 2] = [126, 127];
/// Ports tried. Somebody may take one between the choice and the start.
const ATTEMPTS: usize = 5;

/// An ADB server that was started for its owner alone: on a free port of the loopback interface, with
/// keys of its own, looking for no USB devices and no emulators. It is ended, by its process id, when
/// this is dropped, and also when the owner ends without dropping anything, such as by SIGKILL; its
/// folder goes with it. A Ctrl-C at the terminal reaches the owner alone. The server that the
/// command `adb` uses is not touched.
#[derive(Debug)]
pub struct OwnServer {
    // Killed when dropped. Its standard input is the watcher's pipe and lasts as long.
    child: Child,
    server: AdbServer,
    /// Removed by the watcher.
    home: PathBuf,
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
        let mut command = Command::new("sh");
        command
            .args(["-c", SCRIPT, "dart-adb"])
            .arg(home.path())
            .arg(program)
            .args(["-P", &port.to_string(), "nodaemon", "server"])
            // A group of its own: Ctrl-C would end it before its owner is done with it.
            .process_group(0)
            .env("HOME", home.path())
            .env("ANDROID_USER_HOME", home.path())
            .env("TMPDIR", home.path())
            .env("ADB_EMU", "0")
            .env("ADB_MDNS", "0")
            .env("ADB_USB", "0")
            .env_remove("ADB_SERVER_SOCKET")
            .env_remove("ADB_VENDOR_KEYS")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        let spawned = command.spawn();
        let child = spawned.map_err(|error| not_started(program, &error.to_string()))?;
        let server = AdbServer::new("127.0.0.1", port);
        let mut own = Self {
            child,
            server,
            home: home.keep(),
        };
        own.answers(program).await?;
        Ok(own)
    }

    async fn answers(&mut self, program: &Path) -> Result<(), AdbError> {
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            if self.server.version().await.is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                if status.code().is_some_and(|code| NO_PROGRAM.contains(&code)) {
                    return Err(not_started(program, "there is no such program"));
                }
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

    /// Its process id; `None` once it is known to have ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The folder with its keys and its log, `server.log`; `HOME` for the command `adb` if it is to use this server.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Ends it and waits until it and its folder are gone.
    ///
    /// # Errors
    /// [`Disconnected`](dart_core::ErrorKind::Disconnected) if the system cannot end it.
    pub async fn stop(mut self) -> Result<()> {
        let killed = self.child.kill().await;
        killed.map_err(|error| AdbError::from(error).at("stop server"))?;
        let deadline = Instant::now() + CLEANING;
        while self.home.exists() && Instant::now() < deadline {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

fn not_started(program: &Path, why: &str) -> AdbError {
    let program = program.display();
    AdbError::Config(format!(
        "cannot start {program}: {why}; install the package adb"
    ))
}
