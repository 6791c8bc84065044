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
        let silent = |_| failed(format!("no greeting within {} ms", limit.as_millis()));
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
                return Err(failed(format!("{command}: {}", words.unwrap_or("refused"))));
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
            failed(format!(
                "{command}: no answer within {} ms",
                limit.as_millis()
            ))
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
            Some(words) => Err(failed(format!("{line}: {words}"))),
        }
    }
}
