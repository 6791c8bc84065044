//! [`Guest`]: the seam between a task and the machine whose desktop it is about.

use async_trait::async_trait;
use dart_core::Result;
use serde_json::Value;

use super::step::{GuestCommand, SetupStep};

/// What a command left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit status; negative if a signal ended it.
    pub code: i64,
}

/// A question to the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// What the terminal shows, a string.
    Terminal,
    /// The accessibility tree, XML in a string.
    Accessibility,
    /// The tree of files below this folder: objects of `type`, `name` and `children`.
    Directory(String),
    /// The browser's pages: a list of objects of `title` and `url`.
    Tabs,
}

/// A machine that tasks are set up in and judged by: OSWorld's server in a virtual machine, or
/// programs on a desktop of this machine.
///
/// # Contract
///
/// 1. Every call has a deadline and every answer a largest size.
/// 2. Paths are the guest's, as task files have them (`/home/user/...` or `~/...`).
/// 3. What the guest does not offer is [`Unsupported`](dart_core::ErrorKind::Unsupported).
/// 4. Nothing is retried: a command need not be idempotent.
/// 5. `close` may be called twice and ends what the episode started.
#[async_trait]
pub trait Guest: Send + Sync {
    /// Takes one step; pauses and commands are not given to it.
    async fn set_up(&mut self, step: &SetupStep) -> Result<()>;

    /// Runs a command to its end. An exit status other than 0 is no error.
    async fn run(&mut self, command: &GuestCommand) -> Result<Output>;

    /// The content of a file; `None` if there is no such file.
    async fn read_file(&mut self, path: &str) -> Result<Option<Vec<u8>>>;

    /// Writes a file, with the folders that it is in.
    async fn write_file(&mut self, path: &str, bytes: &[u8]) -> Result<()>;

    /// Asks.
    async fn ask(&mut self, query: &Query) -> Result<Value>;

    /// Ends what the episode started. Idempotent.
    async fn close(&mut self) -> Result<()>;
}
