//! [`ServerGuest`]: OSWorld's server inside a virtual machine, spoken to over HTTP.
//!
//! Routes and fields: xlang-ai/OSWorld, `desktop_env/server/main.py`. Deviations: nothing is
//! retried; every answer is bounded; files to fetch are fetched by the guest, not by this machine.
//! The server gives anybody a shell, so its address has to be one that only this machine reaches.

use std::time::Duration;

use async_trait::async_trait;
use dart_core::Result;
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    chrome,
    config::ServerConfig,
    error::Fault,
    guest::{Guest, Output, Query},
    http::{Http, Question, percent},
    step::{Download, GuestCommand, SetupStep, WindowQuery},
};

/// Longest wait for the answer that the server is there.
const PING: Duration = Duration::from_secs(5);

/// OSWorld's server in a virtual machine.
#[derive(Debug)]
pub struct ServerGuest {
    http: Http,
    devtools: Http,
    home: String,
}

/// Answer of `/execute`.
#[derive(Deserialize)]
struct Executed {
    #[serde(default)]
    status: String,
    #[serde(default)]
    output: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    returncode: i64,
}

impl ServerGuest {
    /// The server that `config` names. Connects to nothing yet.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if the address is not `host:port`, or the variable
    /// that should hold the password is not set.
    pub fn new(config: &ServerConfig) -> Result<Self> {
        let (host, _port) = config.host_and_port()?;
        let deadline = Duration::from_millis(config.command_timeout_ms);
        let devtools = format!("{host}:{}", config.devtools_port);
        Ok(Self {
            http: Http::new(config.address.clone(), deadline, config.max_answer_bytes)
                .hiding("{CLIENT_PASSWORD}", config.password()?),
            devtools: Http::new(devtools, deadline, chrome::MAX_LIST),
            home: config.home.clone(),
        })
    }

    /// Whether the server answers.
    ///
    /// # Errors
    /// If it does not.
    pub async fn ping(&self) -> Result<()> {
        // A port that is forwarded takes a connection long before the machine answers.
        self.http.within(PING).get("/platform").await?;
        Ok(())
    }

    fn absolute(&self, path: &str) -> String {
        match path.strip_prefix("~/") {
            Some(rest) => format!("{}/{rest}", self.home),
            None => path.to_owned(),
        }
    }

    async fn window(&self, action: &str, query: &WindowQuery) -> Result<(), Fault> {
        let path = format!("/setup/{action}_window");
        self.http.post(&path, &json!(query)).await?;
        Ok(())
    }

    async fn download(&self, files: &[Download]) -> Result<(), Fault> {
        for Download { url, path } in files {
            let body = json!({ "url": url, "path": self.absolute(path) });
            self.http.post("/setup/download_file", &body).await?;
        }
        Ok(())
    }

    async fn text(&self, path: &str, field: &str) -> Result<Value, Fault> {
        let body = self.http.get(path).await?;
        let mut answer: Value = self.http.json(path, &body)?;
        match answer.get_mut(field) {
            Some(Value::String(text)) => Ok(Value::String(std::mem::take(text))),
            _ => Err(Fault::Answer {
                what: format!("{path} of {}", self.http.authority()),
                why: format!("no text under {field}"),
            }),
        }
    }

    async fn directory(&self, folder: &str) -> Result<Value, Fault> {
        let path = "/list_directory";
        let body = json!({ "path": self.absolute(folder) });
        let body = self.http.post(path, &body).await?;
        let mut answer: Value = self.http.json(path, &body)?;
        let tree = answer.get_mut("directory_tree").map(Value::take);
        tree.filter(Value::is_object).ok_or_else(|| Fault::Answer {
            what: format!("{path} of {}", self.http.authority()),
            why: "no tree".into(),
        })
    }

    async fn take(&self, step: &SetupStep) -> Result<(), Fault> {
        match step {
            SetupStep::Download(files) => self.download(files).await,
            SetupStep::Launch(command) => {
                self.http.post("/setup/launch", &json!(command)).await?;
                Ok(())
            }
            SetupStep::Open { path } => {
                let body = json!({ "path": self.absolute(path) });
                self.http.post("/setup/open_file", &body).await?;
                Ok(())
            }
            SetupStep::ActivateWindow(query) => self.window("activate", query).await,
            SetupStep::CloseWindow(query) => self.window("close", query).await,
            SetupStep::ChromeOpenTabs(urls) => chrome::open_tabs(&self.devtools, urls).await,
            SetupStep::ChromeCloseTabs(urls) => chrome::close_tabs(&self.devtools, urls).await,
            other => Err(Fault::Unsupported(format!("step {}", other.kind()))),
        }
    }

    async fn execute(&self, command: &GuestCommand) -> Result<Output, Fault> {
        let path = "/execute";
        let body = self.http.post(path, &json!(command)).await?;
        let executed: Executed = self.http.json(path, &body)?;
        if executed.status != "success" {
            return Err(Fault::Answer {
                what: format!("{path} of {}", self.http.authority()),
                why: self
                    .http
                    .said(&format!("{} {}", executed.status, executed.message)),
            });
        }
        Ok(Output {
            stdout: executed.output,
            stderr: executed.error,
            code: executed.returncode,
        })
    }

    async fn fetch(&self, path: &str) -> Result<Option<Vec<u8>>, Fault> {
        let body = format!("file_path={}", percent(&self.absolute(path)));
        let question = Question {
            method: Method::POST,
            path: "/file",
            content_type: "application/x-www-form-urlencoded",
            body: body.into_bytes(),
        };
        let answer = self.http.ask(question).await?;
        if answer.status == 404 {
            return Ok(None);
        }
        let what = format!("/file of {}", self.http.authority());
        let body = self.http.success(what, answer)?;
        Ok(Some(body.to_vec()))
    }

    async fn upload(&self, path: &str, bytes: &[u8]) -> Result<(), Fault> {
        let path = self.absolute(path);
        // In neither the path nor the content, where it would end a part.
        let holds = |text: &String| {
            let part = |part: &[u8]| part == text.as_bytes();
            bytes.windows(text.len()).any(part) || path.contains(text.as_str())
        };
        let boundary = (0..64_u64)
            .map(|n| format!("----dart{n:016x}"))
            .find(|text| !holds(text));
        let boundary = boundary.ok_or_else(|| Fault::Answer {
            what: path.clone(),
            why: "no boundary fits this content".into(),
        })?;
        let quoted = path.replace(['"', '\r', '\n'], "_");
        let mut body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file_path\"\r\n\r\n{path}\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"file_data\"; filename=\"{quoted}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )
        .into_bytes();
        body.extend(bytes);
        body.extend(format!("\r\n--{boundary}--\r\n").bytes());
        let question = Question {
            method: Method::POST,
            path: "/setup/upload",
            content_type: &format!("multipart/form-data; boundary={boundary}"),
            body,
        };
        self.http.expect(question).await?;
        Ok(())
    }
}

#[async_trait]
impl Guest for ServerGuest {
    async fn set_up(&mut self, step: &SetupStep) -> Result<()> {
        Ok(self.take(step).await?)
    }

    async fn run(&mut self, command: &GuestCommand) -> Result<Output> {
        Ok(self.execute(command).await?)
    }

    async fn read_file(&mut self, path: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.fetch(path).await?)
    }

    async fn write_file(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        Ok(self.upload(path, bytes).await?)
    }

    async fn ask(&mut self, query: &Query) -> Result<Value> {
        Ok(match query {
            Query::Terminal => self.text("/terminal", "output").await?,
            Query::Accessibility => self.text("/accessibility", "AT").await?,
            Query::Directory(path) => self.directory(path).await?,
            Query::Tabs => match chrome::tabs(&self.devtools).await {
                // The machine is there and its browser is not: the agent has closed it.
                Err(Fault::Unreachable { .. }) => {
                    self.ping().await?;
                    json!([])
                }
                tabs => tabs?,
            },
        })
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }
}
