//! A small OSWorld server: its routes, a log of what was asked, and faults.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What the server does instead of answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing for a long time.
    Slow,
    /// A status of 500.
    Broken,
    /// An answer without end, nearly.
    Large,
    /// An answer that is not JSON.
    Nonsense,
    /// JSON of another shape.
    OtherShape,
    /// The connection ends.
    HangUp,
}

#[derive(Default)]
pub(crate) struct State {
    /// Files of the guest.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// Standard output of commands, by the JSON of the command.
    pub(crate) outputs: BTreeMap<String, String>,
    /// What was asked: path and body.
    pub(crate) log: Vec<(String, String)>,
    /// What goes wrong at which path.
    pub(crate) trouble: Option<(&'static str, Trouble)>,
    /// Whether there is a window to activate or to close.
    pub(crate) windows: bool,
}

/// A server on a free port of the loopback interface; it ends with the test's runtime.
#[derive(Clone)]
pub(crate) struct FakeOsworld {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

type Answer = Response<Full<Bytes>>;

fn answer(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if let (b'%', [high, low, after @ ..]) = (first, after) {
            let digits = [*high, *low];
            let digits = std::str::from_utf8(&digits).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).unwrap()
}

impl FakeOsworld {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::new(Mutex::new(State {
                windows: true,
                ..State::default()
            })),
        };
        let own = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = own.clone();
                let service = service_fn(move |request| own.clone().serve(request));
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move {
                    // A client may leave at any time.
                    let _left = connection.await;
                });
            }
        });
        server
    }

    /// Looks at the state or changes it.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap())
    }

    /// The paths that were asked for, in order.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.with(|state| state.log.iter().map(|(path, _)| path.clone()).collect())
    }

    async fn serve(
        self,
        request: Request<Incoming>,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await?.to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        self.with(|state| state.log.push((path.clone(), body.clone())));
        let trouble = self.with(|state| state.trouble);
        if let Some((_, trouble)) = trouble.filter(|(at, _)| *at == path) {
            return Self::fail(trouble).await;
        }
        Ok(self.answer(&path, &body))
    }

    async fn fail(trouble: Trouble) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        match trouble {
            Trouble::Slow => {
                tokio::time::sleep(Duration::from_mins(1)).await;
                Err("too late".into())
            }
            Trouble::Broken => Ok(answer(StatusCode::INTERNAL_SERVER_ERROR, "out of order")),
            Trouble::Large => Ok(answer(StatusCode::OK, vec![b' '; 4 << 20])),
            Trouble::Nonsense => Ok(answer(StatusCode::OK, "<html>")),
            Trouble::OtherShape => Ok(answer(
                StatusCode::OK,
                "{\"output\": 3, \"directory_tree\": []}",
            )),
            Trouble::HangUp => Err("hung up".into()),
        }
    }

    fn answer(&self, path: &str, body: &str) -> Answer {
        let ok = |value: Value| answer(StatusCode::OK, value.to_string());
        match path {
            "/platform" => answer(StatusCode::OK, "Linux"),
            "/file" => {
                let name = decode(body.strip_prefix("file_path=").unwrap());
                match self.with(|state| state.files.get(&name).cloned()) {
                    Some(content) => answer(StatusCode::OK, content),
                    None => answer(StatusCode::NOT_FOUND, "{\"error\": \"File not found\"}"),
                }
            }
            "/execute" => {
                let asked: Value = serde_json::from_str(body).unwrap();
                let key = asked["command"].to_string();
                let output = self.with(|state| state.outputs.get(&key).cloned());
                ok(json!({
                    "status": "success", "output": output.unwrap_or_default(), "error": "e", "returncode": 1
                }))
            }
            "/terminal" => ok(json!({ "output": "user@vm:~$ ls", "status": "success" })),
            "/accessibility" => ok(json!({ "AT": "<desktop-frame/>" })),
            "/list_directory" => ok(json!({ "directory_tree": {
                "type": "directory", "name": "x", "children": [{ "type": "file", "name": "a" }]
            } })),
            "/setup/activate_window" | "/setup/close_window"
                if !self.with(|state| state.windows) =>
            {
                answer(StatusCode::NOT_FOUND, "window not found")
            }
            path if path.starts_with("/setup/") => answer(StatusCode::OK, "done"),
            _ => answer(StatusCode::NOT_FOUND, "no such route"),
        }
    }
}
