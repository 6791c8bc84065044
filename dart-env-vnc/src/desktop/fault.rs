//! What can go wrong with an own desktop.

use std::io;

use dart_core::{Error, ErrorKind};
use thiserror::Error as ThisError;

/// Private to the crate; becomes a [`dart_core::Error`] at the boundary.
#[derive(Debug, ThisError)]
pub(crate) enum Fault {
    #[error("{program} is not installed: apt-get install {package}")]
    Missing {
        program: String,
        package: &'static str,
    },
    #[error("{0}")]
    Setting(String),
    #[error("cannot run {program}")]
    Spawn { program: String, cause: io::Error },
    #[error("{program} {what}: {said}")]
    Start {
        program: String,
        what: &'static str,
        said: String,
    },
    #[error("QEMU: {0}")]
    Monitor(String),
    #[error("QEMU refuses {0}")]
    Refused(String),
    #[error("QEMU: {0}")]
    Silent(String),
    #[error("cannot prepare the desktop's directory")]
    Directory(#[source] io::Error),
    #[error("no free port on the loopback interface")]
    Port(#[source] io::Error),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let kind = match fault {
            // Asking again, or another machine, makes no difference.
            Fault::Missing { .. } | Fault::Setting(_) | Fault::Refused(_) => ErrorKind::Config,
            Fault::Spawn { .. } | Fault::Directory(_) | Fault::Port(_) => ErrorKind::Exhausted,
            Fault::Monitor(_) => ErrorKind::Disconnected,
            Fault::Start { .. } | Fault::Silent(_) => ErrorKind::Timeout,
        };
        let message = fault.to_string();
        let error = Self::new(kind, "dart-env-vnc", "desktop", message);
        match fault {
            Fault::Spawn { cause, .. } | Fault::Directory(cause) | Fault::Port(cause) => {
                error.caused_by(cause)
            }
            _ => error,
        }
    }
}
