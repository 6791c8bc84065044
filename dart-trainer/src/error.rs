//! The crate's own errors, and how they look from outside.

use std::path::{Path, PathBuf};

use dart_core::{Error, ErrorKind};

/// Result inside the crate.
pub(crate) type Result<T, E = TrainerError> = std::result::Result<T, E>;

/// What goes wrong in training.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrainerError {
    #[error("{key} {message}")]
    Config {
        key: &'static str,
        message: &'static str,
    },
    #[error("{message}")]
    Sample {
        message: &'static str,
        index: usize,
        trajectory: String,
        step: u32,
    },
    #[error("logits have shape {got:?}, {rows} rows of one vocabulary are needed")]
    Logits { got: Vec<usize>, rows: usize },
    #[error("parameter {name} {message}")]
    Parameter { name: String, message: String },
    #[error("a worker thread {0}")]
    Worker(String),
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} {message}", path.display())]
    Corrupt { path: PathBuf, message: String },
    #[error("tensor operation failed")]
    Tensor(#[from] candle_core::Error),
    #[error("kernel failed")]
    Kernel(#[from] dart_kernels::Error),
    #[error("encoding failed")]
    Json(#[from] serde_json::Error),
    #[error("encoding failed")]
    SafeTensors(#[from] safetensors::SafeTensorError),
    #[error(transparent)]
    Core(#[from] Error),
}

impl TrainerError {
    /// Adds what was done to which path; for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    /// Says that a file is not what was written.
    pub(crate) fn corrupt(path: &Path, message: impl Into<String>) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            message: message.into(),
        }
    }

    const fn place(&self) -> (ErrorKind, &'static str) {
        match self {
            Self::Config { .. } => (ErrorKind::Config, "trainer config"),
            Self::Sample { .. } => (ErrorKind::Protocol, "check batch"),
            Self::Io { .. } | Self::Corrupt { .. } => (ErrorKind::Storage, "checkpoint"),
            _ => (ErrorKind::Internal, "learner step"),
        }
    }
}

impl From<TrainerError> for Error {
    fn from(error: TrainerError) -> Self {
        let (kind, operation) = error.place();
        let outer = Self::new(kind, "dart-trainer", operation, error.to_string());
        match error {
            TrainerError::Core(inner) => inner,
            TrainerError::Sample {
                index,
                trajectory,
                step,
                ..
            } => outer
                .with("sample", index)
                .with("trajectory", trajectory)
                .with("step", step),
            TrainerError::Io { source, .. } => outer.caused_by(source),
            TrainerError::Tensor(source) => outer.caused_by(source),
            TrainerError::Kernel(source) => outer.caused_by(source),
            TrainerError::Json(source) => outer.caused_by(source),
            TrainerError::SafeTensors(source) => outer.caused_by(source),
            _ => outer,
        }
    }
}
