//! Running a program of this machine to its end: an argument vector, a clean environment, a
//! deadline, a bounded output, and nothing of it left afterwards.

use std::{io, path::Path, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::timeout,
};

use crate::osworld::{error::Fault, guest::Output};

/// What to run.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    /// Program and arguments.
    pub(crate) words: &'a [String],
    /// Its whole environment.
    pub(crate) environment: &'a [(&'static str, String)],
    /// Where it runs.
    pub(crate) folder: &'a Path,
    /// Its standard input.
    pub(crate) input: Vec<u8>,
    /// Longest run.
    pub(crate) deadline: Duration,
    /// Longest output, bytes, of each of the two streams.
    pub(crate) limit: usize,
    /// Whether it may say more than that on its standard error; the rest is not kept.
    pub(crate) talkative: bool,
}

/// Ends the program's group when the run ends in whatever way.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Gone already if all of it has ended.
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs it. Cancel safe: what was started ends with the future.
///
/// # Errors
/// [`Fault::Spawn`], [`Fault::Deadline`] or [`Fault::TooLarge`]; a bad exit status is none.
pub(crate) async fn to_end(job: Job<'_>) -> Result<Output, Fault> {
    let program = job.words.first().cloned().unwrap_or_default();
    let failed = |cause: io::Error| Fault::Spawn {
        program: program.clone(),
        cause,
    };
    let mut child = Command::new(&program)
        .args(job.words.iter().skip(1))
        .env_clear()
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(job.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let group = child.id().and_then(|id| Pid::from_raw(id as i32));
    let _group = Group(group);
    let late = |_| Fault::Deadline {
        what: program.clone(),
        within: job.deadline,
    };
    let finished = finish(&mut child, job.input, job.limit, job.talkative);
    let finished = timeout(job.deadline, finished).await.map_err(late)?;
    finished.map_err(failed)?.ok_or(Fault::TooLarge {
        what: program.clone(),
        limit: job.limit,
    })
}

/// Feeds the program and collects what it says; `None` if that is too much.
async fn finish(
    child: &mut Child,
    input: Vec<u8>,
    limit: usize,
    talkative: bool,
) -> io::Result<Option<Output>> {
    let (mut to, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut to) = to.take() {
            // A program need not read what it is given.
            let _unread = to.write_all(&input).await;
        }
    };
    let rest = if talkative { u64::MAX } else { 0 };
    let ((), out, err) = tokio::join!(feed, collect(out, limit, 0), collect(err, limit, rest));
    let (out, err) = (out?, err?);
    if out.len() > limit || (err.len() > limit && !talkative) {
        return Ok(None);
    }
    let status = child.wait().await?;
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let code = status
        .code()
        .map_or_else(|| -i64::from(signal.unwrap_or(1)), i64::from);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Some(Output {
        stdout: text(&out),
        stderr: text(&err),
        code,
    }))
}

/// Reads at most one byte more than `limit`, and drops at most `rest` further bytes.
async fn collect(
    from: Option<impl AsyncRead + Unpin>,
    limit: usize,
    rest: u64,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let mut first = (&mut from).take(limit as u64 + 1);
        first.read_to_end(&mut bytes).await?;
        tokio::io::copy(&mut from.take(rest), &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(words: &[&str], input: &str, millis: u64) -> Result<Output, Fault> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        to_end(Job {
            words: &words,
            environment: &[("PATH", "/usr/bin:/bin".to_owned()), ("A", "b".to_owned())],
            folder: Path::new("/"),
            input: input.as_bytes().to_vec(),
            deadline: Duration::from_millis(millis),
            limit: 1000,
            talkative: false,
        })
        .await
    }

    #[tokio::test]
    async fn output_status_and_a_clean_environment() {
        let ran = run(&["sh", "-c", "cat; echo $A$HOME >&2; exit 3"], "in", 10_000).await;
        let Output {
            stdout,
            stderr,
            code,
        } = ran.unwrap();
        assert_eq!((&*stdout, &*stderr, code), ("in", "b\n", 3));
        let killed = run(&["sh", "-c", "kill -9 $$"], "", 10_000).await.unwrap();
        assert_eq!(killed.code, -9);
    }

    #[tokio::test]
    async fn bounded_in_time_and_size() {
        let late = run(&["sleep", "30"], "", 200).await;
        assert!(matches!(late, Err(Fault::Deadline { .. })));
        // A child that keeps the output open is ended, too.
        let held = run(&["sh", "-c", "sleep 30 & wait"], "", 200).await;
        assert!(matches!(held, Err(Fault::Deadline { .. })));
        let large = run(&["head", "-c", "100000", "/dev/zero"], "", 10_000).await;
        assert!(matches!(large, Err(Fault::TooLarge { .. })));
        let missing = run(&["/nonexistent"], "", 1000).await;
        assert!(matches!(missing, Err(Fault::Spawn { .. })));
    }
}
