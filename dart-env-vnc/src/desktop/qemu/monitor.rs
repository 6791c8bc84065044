//! QEMU's monitor (QMP): one JSON object a line, over a Unix socket.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

use super::super::fault::Fault;

/// Longest line, in bytes. Answers are some hundred.
const MAX_LINE: u64 = 1 << 20;

/// A connection to the monitor.
#[derive(Debug)]
pub(super) struct Monitor {
    lines: BufReader<OwnedReadHalf>,
    sink: OwnedWriteHalf,
    /// A command was sent and its answer not read: what comes next would answer the wrong one.
    desynchronised: bool,
}

fn failed(what: impl Into<String>) -> Fault {
    Fault::Monitor(what.into())
}

impl Monitor {
    /// Connects, and leaves the mode in which only the capabilities can be asked for.
    pub(super) async fn connect(path: &Path, limit: Duration) -> Result<Self, Fault> {
        let connecting = async {
            let stream = UnixStream::connect(path)
                .await
                .map_err(|error| failed(error.to_string()))?;
            let (source, sink) = stream.into_split();
            let mut monitor = Self {
                lines: BufReader::new(source),
                sink,
                desynchronised: false,
            };
            let greeting = monitor.line().await?;
            if greeting.get("QMP").is_none() {
                return Err(failed("the monitor does not greet"));
            }
            monitor.exchange("qmp_capabilities", &json!({})).await?;
            Ok(monitor)
        };
        let silent = |_| Fault::Silent(format!("no greeting within {} ms", limit.as_millis()));
        timeout(limit, connecting).await.map_err(silent)?
    }

    async fn line(&mut self) -> Result<Value, Fault> {
        let mut line = Vec::new();
        let mut limited = (&mut self.lines).take(MAX_LINE);
        let read = limited.read_until(b'\n', &mut line).await;
        let count = read.map_err(|error| failed(error.to_string()))?;
        if count == 0 {
            return Err(failed("the machine is gone"));
        }
        serde_json::from_slice(&line).map_err(|_| failed("the monitor does not speak JSON"))
    }

    async fn exchange(&mut self, command: &str, arguments: &Value) -> Result<Value, Fault> {
        let mut message = json!({ "execute": command, "arguments": arguments }).to_string();
        message.push('\n');
        let written = self.sink.write_all(message.as_bytes()).await;
        written.map_err(|error| failed(error.to_string()))?;
        loop {
            let mut line = self.line().await?;
            if let Some(error) = line.get("error") {
                let words = error.get("desc").and_then(Value::as_str);
                let words = words.unwrap_or("without a word");
                return Err(Fault::Refused(format!("{command}: {words}")));
            }
            // Events come in between.
            if let Some(answer) = line.get_mut("return") {
                return Ok(answer.take());
            }
        }
    }

    /// Sends a command and waits for its answer. Cancel safe: a command whose answer was not read
    /// makes the monitor unusable, and says so.
    pub(super) async fn run(
        &mut self,
        command: &str,
        arguments: &Value,
        limit: Duration,
    ) -> Result<Value, Fault> {
        if self.desynchronised {
            return Err(failed("an earlier command was not answered"));
        }
        self.desynchronised = true;
        let silent = |_| {
            let limit = limit.as_millis();
            Fault::Silent(format!("{command}: no answer within {limit} ms"))
        };
        let answer = timeout(limit, self.exchange(command, arguments)).await;
        let answer = answer.map_err(silent)?;
        self.desynchronised = false;
        answer
    }

    /// Runs a command of the human monitor, whose answer is empty unless something is wrong.
    pub(super) async fn human(&mut self, line: &str, limit: Duration) -> Result<(), Fault> {
        let arguments = json!({ "command-line": line });
        let answer = self.run("human-monitor-command", &arguments, limit).await?;
        match answer.as_str().map(str::trim) {
            Some("") | None => Ok(()),
            Some(words) => Err(Fault::Refused(format!("{line}: {words}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use dart_core::{Error, ErrorKind};
    use tokio::net::UnixListener;

    use super::*;

    /// A monitor that answers each line with the next of `answers`, then says no more.
    async fn against(answers: &'static [&'static str]) -> (tempfile::TempDir, Monitor) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (source, mut sink) = stream.into_split();
            let mut lines = BufReader::new(source).lines();
            sink.write_all(b"{\"QMP\": {}}\n").await.unwrap();
            for answer in [&"{\"return\": {}}\n"].into_iter().chain(answers) {
                lines.next_line().await.unwrap();
                sink.write_all(answer.as_bytes()).await.unwrap();
            }
            let _open = lines.next_line().await;
            tokio::time::sleep(Duration::from_mins(1)).await;
        });
        let monitor = Monitor::connect(&path, Duration::from_secs(10)).await;
        (folder, monitor.unwrap())
    }

    const LONG: Duration = Duration::from_secs(10);

    fn kind(result: Result<(), Fault>) -> ErrorKind {
        Error::from(result.unwrap_err()).kind()
    }

    #[tokio::test]
    async fn events_between_answers_are_passed_over() {
        let (_folder, mut monitor) = against(&[
            "{\"event\": \"RESUME\"}\n{\"return\": \"\"}\n",
            "{\"return\": \"no such snapshot\\r\\n\"}\n",
            "{\"error\": {\"desc\": \"not now\"}}\n",
        ])
        .await;
        monitor.human("loadvm a", LONG).await.unwrap();
        // Another machine would say the same: not to be tried again.
        assert_eq!(
            kind(monitor.human("loadvm b", LONG).await),
            ErrorKind::Config
        );
        let refused = monitor.run("cont", &json!({}), LONG).await;
        assert!(refused.unwrap_err().to_string().contains("cont: not now"));
    }

    #[tokio::test]
    async fn an_answer_that_was_not_waited_for_is_not_the_next_one_s() {
        let (_folder, mut monitor) = against(&[""]).await;
        let short = Duration::from_millis(20);
        assert_eq!(
            kind(monitor.human("savevm a", short).await),
            ErrorKind::Timeout
        );
        assert_eq!(
            kind(monitor.human("loadvm a", LONG).await),
            ErrorKind::Disconnected
        );
    }
}
