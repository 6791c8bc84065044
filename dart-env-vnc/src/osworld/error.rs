//! What can go wrong with OSWorld tasks.

use std::{io, time::Duration};

use dart_core::{Error, ErrorKind};
use thiserror::Error as ThisError;

/// Private to the crate; becomes a [`dart_core::Error`] at the boundary.
#[derive(Debug, ThisError)]
pub(crate) enum Fault {
    #[error("the task file {file} is not as it should be: {what}")]
    Format { file: String, what: String },
    #[error("cannot read {what}")]
    Read {
        what: String,
        #[source]
        cause: io::Error,
    },
    #[error("{0}")]
    Setting(String),
    #[error(transparent)]
    Desktop(#[from] crate::desktop::fault::Fault),
    #[error("not supported: {0}")]
    Unsupported(String),
    #[error("the path {path:?} {why}")]
    Path { path: String, why: &'static str },
    #[error("{what}: no answer within {} ms", .within.as_millis())]
    Deadline { what: String, within: Duration },
    #[error("{what} cannot be reached")]
    Unreachable {
        what: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{what} answers {status}: {said}")]
    Refused {
        what: String,
        status: u16,
        said: String,
    },
    #[error("{what} gives more than {limit} bytes")]
    TooLarge { what: String, limit: usize },
    #[error("{what}: {why}")]
    Answer { what: String, why: String },
    #[error("cannot run {program}")]
    Spawn {
        program: String,
        #[source]
        cause: io::Error,
    },
    #[error("setting the task up: {what} failed with {code}: {said}")]
    Step {
        what: String,
        code: i64,
        said: String,
    },
}

impl Fault {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Format { .. } | Self::Setting(_) | Self::Path { .. } | Self::Read { .. } => {
                ErrorKind::Config
            }
            Self::Unsupported(_) => ErrorKind::Unsupported,
            Self::Deadline { .. } => ErrorKind::Timeout,
            Self::Unreachable { .. } => ErrorKind::Disconnected,
            Self::Refused { .. } | Self::Answer { .. } | Self::TooLarge { .. } => {
                ErrorKind::Protocol
            }
            // Setting the same task up once more on a fresh desktop may succeed.
            Self::Step { .. } => ErrorKind::Protocol,
            // A program that is not there will not be there next time.
            Self::Spawn { cause, .. } if is_missing(cause) => ErrorKind::Config,
            // A desktop's own fault has its own kind (see the conversion).
            Self::Spawn { .. } | Self::Desktop(_) => ErrorKind::Exhausted,
        }
    }
}

fn is_missing(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
    )
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        if let Fault::Desktop(fault) = fault {
            return fault.into();
        }
        let kind = fault.kind();
        let error = Self::new(kind, "dart-env-vnc", "osworld", fault.to_string());
        match fault {
            Fault::Read { cause, .. } | Fault::Spawn { cause, .. } => error.caused_by(cause),
            Fault::Unreachable { cause, .. } => error.caused_by(cause),
            _ => error,
        }
    }
}

/// Text from outside in one line of at most 200 characters, for an error message.
pub(crate) fn bounded(text: &str) -> String {
    let line: String = text.trim().chars().take(200).collect();
    line.replace(|c: char| c.is_control(), " ")
}
