//! One HTTP/1.1 exchange at a time, with a deadline and a largest answer.

use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request,
    body::{Bytes, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};

use super::error::{Fault, bounded};

/// A peer and how much patience it gets.
#[derive(Clone, Debug)]
pub(super) struct Http {
    /// `host:port`.
    authority: String,
    /// Longest exchange.
    deadline: Duration,
    /// Largest body of an answer, bytes.
    limit: usize,
    /// What no error may show: a peer may say again what it was told.
    secret: Option<Secret>,
}

/// A text that is not shown, and the name that is shown instead.
#[derive(Clone)]
struct Secret {
    name: &'static str,
    text: String,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What is asked.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) method: Method,
    /// Path and query, percent-encoded.
    pub(super) path: &'a str,
    pub(super) content_type: &'a str,
    pub(super) body: Vec<u8>,
}

/// What is answered, whatever the status.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// Ends the connection's task with the exchange.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Http {
    pub(super) const fn new(authority: String, deadline: Duration, limit: usize) -> Self {
        Self {
            authority,
            deadline,
            limit,
            secret: None,
        }
    }

    /// The same, with `name` in every error where the peer says `text`.
    pub(super) fn hiding(mut self, name: &'static str, text: Option<String>) -> Self {
        self.secret = text.map(|text| Secret { name, text });
        self
    }

    /// The same with a deadline of at most `longest`.
    pub(super) fn within(&self, longest: Duration) -> Self {
        Self {
            deadline: self.deadline.min(longest),
            ..self.clone()
        }
    }

    /// What the peer said, for an error: in one line, short and without what is secret.
    pub(super) fn said(&self, text: &str) -> String {
        let Some(Secret { name, text: secret }) = &self.secret else {
            return bounded(text);
        };
        // Also as it stands inside JSON.
        let escaped = serde_json::Value::from(secret.as_str()).to_string();
        let hidden = text.replace(secret.as_str(), name);
        bounded(&hidden.replace(escaped.trim_matches('"'), name))
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    fn name(&self, path: &str) -> String {
        let path = path.split('?').next().unwrap_or(path);
        format!("http://{}{path}", self.authority)
    }

    fn unreachable(
        &self,
        path: &str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Fault {
        Fault::Unreachable {
            what: self.name(path),
            cause: cause.into(),
        }
    }

    /// One exchange. Never repeated: the peer may have acted on a question whose answer was lost.
    ///
    /// # Errors
    /// [`Fault::Unreachable`], [`Fault::Deadline`] or [`Fault::TooLarge`].
    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Answer, Fault> {
        let path = question.path;
        let late = |_| Fault::Deadline {
            what: self.name(path),
            within: self.deadline,
        };
        timeout(self.deadline, self.exchange(question))
            .await
            .map_err(late)?
    }

    async fn exchange(&self, question: Question<'_>) -> Result<Answer, Fault> {
        let path = question.path;
        let failed = |cause: hyper::Error| self.unreachable(path, cause);
        let stream = TcpStream::connect(&self.authority).await;
        let stream = stream.map_err(|cause| self.unreachable(path, cause))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        let _driver = Driver(tokio::spawn(async move {
            // What goes wrong here is what the exchange is told, too.
            let _reported = connection.await;
        }));
        let request = Request::builder()
            .method(question.method)
            .uri(path)
            .header(header::HOST, &self.authority)
            .header(header::CONNECTION, "close")
            .header(header::CONTENT_TYPE, question.content_type)
            .body(Full::new(Bytes::from(question.body)))
            .map_err(|cause| self.unreachable(path, cause))?;
        let answer = sender.send_request(request).await.map_err(failed)?;
        Ok(Answer {
            status: answer.status().as_u16(),
            body: self.body(path, answer.into_body()).await?,
        })
    }

    async fn body(&self, path: &str, body: Incoming) -> Result<Bytes, Fault> {
        let collected = Limited::new(body, self.limit).collect().await;
        let collected = collected.map_err(|cause| {
            if cause.is::<LengthLimitError>() {
                return Fault::TooLarge {
                    what: self.name(path),
                    limit: self.limit,
                };
            }
            self.unreachable(path, cause)
        })?;
        Ok(collected.to_bytes())
    }

    /// The body of a successful answer.
    ///
    /// # Errors
    /// Those of [`ask`](Self::ask), and [`Fault::Refused`] for any other status.
    pub(super) async fn expect(&self, question: Question<'_>) -> Result<Bytes, Fault> {
        let name = self.name(question.path);
        let answer = self.ask(question).await?;
        self.success(name, answer)
    }

    /// The body of `answer`, if its status says success; `what` names the peer.
    pub(super) fn success(&self, what: String, answer: Answer) -> Result<Bytes, Fault> {
        if (200..300).contains(&answer.status) {
            return Ok(answer.body);
        }
        Err(Fault::Refused {
            what,
            status: answer.status,
            said: self.said(&String::from_utf8_lossy(&answer.body)),
        })
    }

    /// Sends JSON.
    pub(super) async fn post(&self, path: &str, body: &serde_json::Value) -> Result<Bytes, Fault> {
        self.expect(Question {
            method: Method::POST,
            path,
            content_type: "application/json",
            body: body.to_string().into_bytes(),
        })
        .await
    }

    /// Asks for what is at `path`.
    pub(super) async fn get(&self, path: &str) -> Result<Bytes, Fault> {
        self.expect(Question {
            method: Method::GET,
            path,
            content_type: "text/plain",
            body: Vec::new(),
        })
        .await
    }

    /// The JSON in `body`.
    pub(super) fn json<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: &[u8],
    ) -> Result<T, Fault> {
        serde_json::from_slice(body).map_err(|error| Fault::Answer {
            what: self.name(path),
            why: self.said(&format!("the answer is not what it should be: {error}")),
        })
    }
}

/// Percent-encodes `text` for a query (RFC 3986 §2.1): everything but unreserved characters.
pub(super) fn percent(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte as char);
        } else {
            let _infallible = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded() {
        assert_eq!(percent("a b&c=ä/~"), "a%20b%26c%3D%C3%A4%2F~");
    }

    #[test]
    fn what_is_secret_is_not_said() {
        let http = Http::new("a:1".into(), Duration::ZERO, 1);
        let http = http.hiding("{CLIENT_PASSWORD}", Some("pa\"ss".into()));
        let said = http.said(r#"cannot run echo pa"ss: {"command": "echo pa\"ss"}"#);
        let shown = r#"cannot run echo {CLIENT_PASSWORD}: {"command": "echo {CLIENT_PASSWORD}"}"#;
        assert_eq!(said, shown);
        assert!(!format!("{http:?}").contains("pa"), "{http:?}");
        // What is cut off at the end of a message is not the end of the name of it.
        let long = format!("{}{}", "x".repeat(197), "pa\"ss");
        assert!(!http.said(&long).contains("pa"));
    }

    #[tokio::test]
    async fn nobody_there_is_unreachable() {
        // A port that was free a moment ago.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let http = Http::new(address, Duration::from_secs(5), 10);
        assert!(matches!(
            http.get("/x").await,
            Err(Fault::Unreachable { .. })
        ));
    }
}
