//! What a user is told when something is wrong: one line that names the thing and the remedy.

use std::fmt;

use dart_core::{Error, ErrorKind};

/// A mistake that a person can mend.
#[derive(Debug)]
pub struct Fault {
    message: String,
    remedy: Option<String>,
}

impl Fault {
    /// A mistake, described in one line.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            remedy: None,
        }
    }

    /// What to do about it.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.remedy
            .as_ref()
            .map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl std::error::Error for Fault {}

/// One line for the terminal: the error and its causes, each once.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause
            .to_string()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}

/// Exit code of the program: 2 for a mistake in config or usage, 130 after Ctrl-C, 1 otherwise.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let kind = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Error>())
        .map(Error::kind);
    match kind {
        Some(ErrorKind::Cancelled) => 130,
        Some(ErrorKind::Config | ErrorKind::Unauthorized) => 2,
        _ if error
            .chain()
            .any(|cause| cause.downcast_ref::<Fault>().is_some()) =>
        {
            2
        }
        _ => 1,
    }
}
