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

use rustix::process::{Pid, Signal, kill_process_group};
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
    program: Process,
}

/// A process, told apart from a later one with the same id.
#[derive(Clone, Copy, Debug)]
struct Process {
    id: Pid,
    /// When it began; none if it had ended before that could be seen.
    born: Option<u64>,
}

impl Process {
    fn of(id: Pid) -> Self {
        Self {
            id,
            born: Self::birth(id),
        }
    }

    /// When the living process with this id began, in clock ticks (proc(5), fields 3 and 22).
    fn birth(id: Pid) -> Option<u64> {
        let path = format!("/proc/{}/stat", id.as_raw_nonzero());
        let line = std::fs::read_to_string(path).ok()?;
        // The name before may hold spaces and brackets.
        let (_, fields) = line.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let state = fields.next()?;
        let born = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(born)
    }

    fn lives(self) -> bool {
        self.born.is_some() && Self::birth(self.id) == self.born
    }

    /// Kills it and its group, unless the id is another's by now.
    fn kill_group(self) {
        if Self::birth(self.id).is_none_or(|born| Some(born) == self.born) {
            // The group may be gone already.
            let _gone = kill_process_group(self.id, Signal::KILL);
        }
    }
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
        let id = line.trim().parse().ok().and_then(Pid::from_raw);
        let process = id.map(Process::of);
        Ok(Self {
            name: program.name.to_owned(),
            directory: program.directory,
            supervisor,
            program: process
                .ok_or_else(|| failed(io::Error::other("the shell gave no process id")))?,
        })
    }

    /// Whether the program is still running.
    pub(super) fn is_running(&self) -> bool {
        self.program.lives()
    }

    /// The program's process id, which is also its session.
    pub(super) fn id(&self) -> u32 {
        self.program.id.as_raw_nonzero().get() as u32
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
            self.program.kill_group();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder is the label: another's would end with this one.
    fn start<'a>(command: &str, directory: &'a Path) -> Program<'a> {
        Program {
            name: "sh",
            arguments: vec!["-c".to_owned(), command.to_owned()],
            environment: Vec::new(),
            directory: directory.to_owned(),
            label: directory.to_str().unwrap(),
        }
    }

    #[tokio::test]
    async fn a_program_that_has_ended_is_not_running() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("program");
        std::fs::create_dir(&directory).unwrap();
        let mut ended = Supervised::start(start("exit 3", &directory))
            .await
            .unwrap();
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        while ended.is_running() && tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!ended.is_running());
        ended.stop(Duration::from_secs(10)).await;
        assert!(!directory.exists());
    }

    /// A process id comes round again; what has it then must neither count nor be killed.
    #[tokio::test]
    async fn a_later_process_with_the_same_id_is_a_stranger() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("program");
        std::fs::create_dir(&directory).unwrap();
        let mut program = Supervised::start(start("exec sleep 60", &directory))
            .await
            .unwrap();
        assert!(program.is_running());
        let born = program.program.born.unwrap();
        program.program.born = Some(born - 1);
        assert!(!program.is_running());
        program.program.kill_group();
        program.program.born = Some(born);
        assert!(program.is_running(), "a stranger is not killed");
        program.program.kill_group();
        program.stop(Duration::from_secs(10)).await;
        assert!(!program.is_running());
    }
}
