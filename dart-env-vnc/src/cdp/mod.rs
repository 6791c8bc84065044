//! The Chrome DevTools Protocol, as much of it as a task driver needs.
//!
//! One WebSocket to one page; one command at a time, each with a deadline. Events are ignored.
//! <https://chromedevtools.github.io/devtools-protocol/>

mod http;

use std::{net::SocketAddr, time::Duration};

use dart_core::{Error, ErrorKind, Result};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use thiserror::Error as ThisError;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{self, Message, protocol::WebSocketConfig},
};

/// Largest message taken from the browser.
const MAX_MESSAGE: usize = 4 << 20;

#[derive(Debug, ThisError)]
pub(crate) enum CdpFault {
    #[error("cannot talk to the browser")]
    Io(#[from] std::io::Error),
    #[error("the connection to the page broke")]
    Socket(#[source] Box<tungstenite::Error>),
    #[error("{0}")]
    Answer(&'static str),
    #[error("no answer within {0} ms")]
    Deadline(u128),
    #[error("the browser shows no page")]
    NoPage,
    #[error("the page raised: {0}")]
    Script(String),
}

impl From<tungstenite::Error> for CdpFault {
    fn from(error: tungstenite::Error) -> Self {
        Self::Socket(Box::new(error))
    }
}

impl From<CdpFault> for Error {
    fn from(fault: CdpFault) -> Self {
        let kind = match fault {
            CdpFault::Io(_) | CdpFault::Socket(_) | CdpFault::NoPage => ErrorKind::Disconnected,
            CdpFault::Answer(_) | CdpFault::Script(_) => ErrorKind::Protocol,
            CdpFault::Deadline(_) => ErrorKind::Timeout,
        };
        let error = Self::new(kind, "dart-env-vnc", "devtools", fault.to_string());
        match fault {
            CdpFault::Io(source) => error.caused_by(source),
            CdpFault::Socket(source) => error.caused_by(source),
            _ => error,
        }
    }
}

/// A connection to one page of a browser.
#[derive(Debug)]
pub struct Cdp {
    browser: SocketAddr,
    /// The WebSocket path of the page, which ends with the page's id.
    path: String,
    socket: WebSocketStream<TcpStream>,
    deadline: Duration,
    last_id: u64,
}

impl Cdp {
    /// Connects to the first page of the browser whose DevTools listen at `browser`. Every command
    /// waits at most `deadline`.
    pub async fn connect(browser: SocketAddr, deadline: Duration) -> Result<Self> {
        Ok(within(deadline, Self::open(browser, deadline)).await?)
    }

    async fn open(browser: SocketAddr, deadline: Duration) -> Result<Self, CdpFault> {
        let list = http::get(browser, "/json/list").await?;
        let path = page_paths(&list)?.into_iter().next();
        let path = path.ok_or(CdpFault::NoPage)?;
        let stream = TcpStream::connect(browser).await?;
        stream.set_nodelay(true)?;
        let limits = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let url = format!("ws://{browser}{path}");
        let (socket, _answer) = client_async_with_config(url, stream, Some(limits)).await?;
        Ok(Self {
            browser,
            path,
            socket,
            deadline,
            last_id: 0,
        })
    }

    /// Runs `expression` in the page, waits for it if it is a promise, and returns its value.
    ///
    /// Cancel safe: the answer to a dropped call is skipped by the next one.
    ///
    /// # Errors
    /// [`Protocol`](ErrorKind::Protocol) if the script raises, [`Timeout`](ErrorKind::Timeout),
    /// [`Disconnected`](ErrorKind::Disconnected).
    pub async fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let parameters = json!({
            "expression": expression,
            "returnByValue": true,
            "awaitPromise": true,
        });
        let mut answer = self.command("Runtime.evaluate", parameters).await?;
        if let Some(exception) = answer.get("exceptionDetails") {
            return Err(CdpFault::Script(describe(exception)).into());
        }
        Ok(answer["result"]["value"].take())
    }

    /// Sends the page to `url`; does not wait until it has loaded.
    pub async fn navigate(&mut self, url: &str) -> Result<()> {
        let answer = self.command("Page.navigate", json!({ "url": url })).await?;
        match answer.get("errorText").and_then(Value::as_str) {
            None => Ok(()),
            Some(text) => Err(CdpFault::Script(bounded(text)).into()),
        }
    }

    /// Closes every other page of the browser and brings this one to the front.
    pub async fn close_others(&mut self) -> Result<()> {
        within(self.deadline, async {
            let list = http::get(self.browser, "/json/list").await?;
            for path in page_paths(&list)? {
                if path != self.path
                    && let Some((_, id)) = path.rsplit_once('/')
                {
                    http::get(self.browser, &format!("/json/close/{id}")).await?;
                }
            }
            Ok(())
        })
        .await?;
        self.command("Page.bringToFront", json!({})).await?;
        Ok(())
    }

    /// One command and the `result` of its answer.
    async fn command(&mut self, method: &str, parameters: Value) -> Result<Value, CdpFault> {
        self.last_id += 1;
        let id = self.last_id;
        let text = json!({ "id": id, "method": method, "params": parameters }).to_string();
        let socket = &mut self.socket;
        within(self.deadline, async move {
            socket.send(Message::text(text)).await?;
            loop {
                let message = socket
                    .next()
                    .await
                    .ok_or_else(|| tungstenite::Error::ConnectionClosed)??;
                if let Message::Text(text) = message
                    && let Some(result) = answer_to(id, &text)?
                {
                    return Ok(result);
                }
            }
        })
        .await
    }
}

async fn within<V>(
    deadline: Duration,
    future: impl Future<Output = Result<V, CdpFault>>,
) -> Result<V, CdpFault> {
    timeout(deadline, future)
        .await
        .unwrap_or_else(|_| Err(CdpFault::Deadline(deadline.as_millis())))
}

/// The result in `text` if it answers command `id`; `None` for events and older answers.
fn answer_to(id: u64, text: &str) -> Result<Option<Value>, CdpFault> {
    let mut message: Value =
        serde_json::from_str(text).map_err(|_| CdpFault::Answer("a message is not JSON"))?;
    if message.get("id").and_then(Value::as_u64) != Some(id) {
        return Ok(None);
    }
    if let Some(error) = message.get("error") {
        let text = error["message"].as_str().unwrap_or("refused");
        return Err(CdpFault::Script(bounded(text)));
    }
    Ok(Some(message["result"].take()))
}

/// The WebSocket paths of the pages in the list of targets, the newest first. Only the paths are
/// taken from the list: the address stays the one that was asked.
fn page_paths(list: &[u8]) -> Result<Vec<String>, CdpFault> {
    let targets: Vec<Value> = serde_json::from_slice(list)
        .map_err(|_| CdpFault::Answer("the list of targets is not JSON"))?;
    let pages = targets.iter().filter(|target| target["type"] == "page");
    let urls = pages.filter_map(|target| target["webSocketDebuggerUrl"].as_str());
    let paths = urls.filter_map(|url| Some(&url[url.find("/devtools/page/")?..]));
    Ok(paths.map(str::to_owned).collect())
}

fn describe(exception: &Value) -> String {
    let text = exception["exception"]["description"]
        .as_str()
        .or_else(|| exception["text"].as_str());
    bounded(text.unwrap_or("an exception"))
}

/// Text of a page in one line of at most 200 characters.
fn bounded(text: &str) -> String {
    let line: String = text.chars().take(200).collect();
    line.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_listed_and_the_host_ignored() {
        let list = br#"[{"type":"service_worker","webSocketDebuggerUrl":"ws://x/devtools/page/0"},
            {"type":"page"},
            {"type":"page","webSocketDebuggerUrl":"ws://elsewhere:1/devtools/page/ABC"}]"#;
        assert_eq!(page_paths(list).unwrap(), ["/devtools/page/ABC"]);
        assert!(page_paths(b"[]").unwrap().is_empty());
        assert!(matches!(page_paths(b"<html>"), Err(CdpFault::Answer(_))));
    }

    #[test]
    fn events_and_older_answers_are_skipped() {
        assert_eq!(answer_to(2, r#"{"method":"x"}"#).unwrap(), None);
        assert_eq!(answer_to(2, r#"{"id":1,"result":{}}"#).unwrap(), None);
        let value = answer_to(2, r#"{"id":2,"result":{"a":1}}"#).unwrap();
        assert_eq!(value, Some(json!({ "a": 1 })));
        assert!(answer_to(2, r#"{"id":2,"error":{"message":"no"}}"#).is_err());
        assert!(answer_to(2, "nonsense").is_err());
    }
}
