//! Programs that cannot outlive the process that started them.
//!
//! The usual means, a parent-death signal, needs unsafe code between fork and exec and does not
//! reach grandchildren. So each program runs under a small shell script, `supervise.sh`, that holds
//! a pipe from this process. However this process ends, the pipe ends with it, and the script ends
//! the program's whole session and removes its directory.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use super::fault::Fault;

const SCRIPT: &str = include_str!("supervise.sh");

/// How long the shell may take to start. It only has to fork twice.
const SHELL_DEADLINE: Duration = Duration::from_secs(10);

/// What to run, and with what around it.
#[derive(Debug)]
pub(super) struct Program<'a> {
    /// Looked up on the search path.
    pub(super) name: &'a str,
    pub(super) arguments: Vec<String>,
    /// Added to the environment of this process.
    pub(super) environment: Vec<(&'static str, String)>,
    /// Exists and is empty; the program's home, gone once the program has ended.
    pub(super) directory: PathBuf,
    /// Marks the program and all that it starts, in the variable `DART_DESKTOP`.
    pub(super) label: &'a str,
}

/// A running program. Dropping it begins its end; [`stop`](Self::stop) waits for it.
#[derive(Debug)]
pub(super) struct Supervised {
    name: String,
    directory: PathBuf,
    supervisor: Child,
    program: Pid,
}

impl Supervised {
    /// Starts `program`. Cancel safe: a dropped future drops the pipe.
    pub(super) async fn start(program: Program<'_>) -> Result<Self, Fault> {
        let mut command = Command::new("sh");
        command
            .args(["-c", SCRIPT, "dart-supervise"])
            .arg(&program.directory)
            .args([program.label, program.name])
            .args(&program.arguments)
            .envs(program.environment)
            // A group of its own: Ctrl-C at the terminal must not stop it before it has cleaned up.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let failed = |cause: io::Error| Fault::Spawn {
            program: program.name.to_owned(),
            cause,
        };
        let mut supervisor = command.spawn().map_err(failed)?;
        let stdout = supervisor
            .stdout
            .take()
            .ok_or_else(|| failed(io::Error::other("no standard output")))?;
        let mut line = String::new();
        let mut reader = BufReader::new(stdout.take(32));
        match timeout(SHELL_DEADLINE, reader.read_line(&mut line)).await {
            Ok(result) => result.map_err(failed)?,
            Err(_) => return Err(failed(io::ErrorKind::TimedOut.into())),
        };
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        Ok(Self {
            name: program.name.to_owned(),
            directory: program.directory,
            supervisor,
            program: pid.ok_or_else(|| failed(io::Error::other("the shell gave no process id")))?,
        })
    }

    /// Whether the program is still running.
    pub(super) fn is_running(&self) -> bool {
        test_kill_process(self.program).is_ok()
    }

    /// The program's process id, which is also its session.
    pub(super) fn id(&self) -> u32 {
        self.program.as_raw_nonzero().get() as u32
    }

    /// The supervisor's process id.
    pub(super) fn supervisor_id(&self) -> Option<u32> {
        self.supervisor.id()
    }

    /// The error for a program that does not come up, with the end of what it said.
    pub(super) fn failed(&self, what: &'static str) -> Fault {
        Fault::Start {
            program: self.name.clone(),
            what,
            said: tail(&self.directory.join("stderr")),
        }
    }

    /// Lets the program go.
    pub(super) fn release(&mut self) {
        drop(self.supervisor.stdin.take());
    }

    /// Ends the program and waits until it is gone, by force after `deadline`.
    pub(super) async fn stop(&mut self, deadline: Duration) {
        self.release();
        if timeout(deadline, self.supervisor.wait()).await.is_err() {
            tracing::warn!(program = self.name, "does not end: killed");
            // Both are groups that this process made; they may be gone already.
            let _gone = kill_process_group(self.program, Signal::KILL);
            let _gone = self.supervisor.start_kill();
            let _reaped = timeout(deadline, self.supervisor.wait()).await;
            let _gone = std::fs::remove_dir_all(&self.directory);
            let _others_remain = self.directory.parent().map(std::fs::remove_dir);
        }
    }
}

/// The last lines of a log, at most about 600 bytes, on one line.
fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let end = String::from_utf8_lossy(&text[text.len().saturating_sub(600)..]).into_owned();
    let lines: Vec<_> = end
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    if lines.is_empty() {
        return "it said nothing".to_owned();
    }
    lines[lines.len().saturating_sub(4)..].join(" | ")
}
