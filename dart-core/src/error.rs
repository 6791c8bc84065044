//! The one error type at trait boundaries.
//!
//! Callers branch on [`Error::kind`] and [`Error::is_retryable`] alone; people read the chain.
//! Inside a crate errors are private `thiserror` enums that convert into this type once, at the
//! boundary, where the kind is chosen.

use std::{borrow::Cow, fmt};

/// Result of every trait method in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What happened, as far as a caller has to know in order to react.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller gave up. Handled by whoever cancelled: nothing to report.
    Cancelled,
    /// A setting is wrong or missing. Handled at start: the run ends, naming the key.
    Config,
    /// The peer went away. The worker recovers or replaces the environment; the slot is retried.
    Disconnected,
    /// A bounded resource (queue, pool, disk, memory) is full. The caller waits or sheds load.
    Exhausted,
    /// An invariant of DART itself is broken. The run stops.
    Internal,
    /// The action cannot be performed here and now (outside the screen, unknown key). The episode
    /// goes on; the policy is told through `last_action_error`.
    InvalidAction,
    /// A call came in the wrong order (step before reset). A bug of the caller.
    Misuse,
    /// A loss, gradient or reward is not finite. The learner skips the batch and counts it.
    Numeric,
    /// The peer broke its protocol. The connection is dropped; the environment is replaced.
    Protocol,
    /// The data is older than the staleness bound. It is dropped and counted.
    Stale,
    /// Durable storage failed. The run stops with its state saved as far as possible.
    Storage,
    /// A deadline passed. The worker recovers or replaces the environment; the slot is retried.
    Timeout,
    /// The peer refused our credentials. The run ends, naming the peer.
    Unauthorized,
    /// The implementation does not offer this. The caller chooses something else.
    Unsupported,
}

impl ErrorKind {
    /// Whether repeating the *whole* operation on a fresh environment may succeed.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Timeout | Self::Disconnected | Self::Protocol | Self::Exhausted
        )
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "cancelled",
            Self::Config => "configuration error",
            Self::Disconnected => "disconnected",
            Self::Exhausted => "exhausted",
            Self::Internal => "internal error",
            Self::InvalidAction => "invalid action",
            Self::Misuse => "misuse",
            Self::Numeric => "not a finite number",
            Self::Protocol => "protocol violation",
            Self::Stale => "stale",
            Self::Storage => "storage error",
            Self::Timeout => "timed out",
            Self::Unauthorized => "not authorised",
            Self::Unsupported => "not supported",
        })
    }
}

/// An error with a kind to branch on and a story to read.
///
/// ```
/// use dart_core::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Timeout, "dart-env-vnc", "screenshot", "no update in 5 s")
///     .with("server", "127.0.0.1:5901");
/// assert!(error.is_retryable());
/// assert_eq!(
///     error.to_string(),
///     "dart-env-vnc: screenshot: timed out: no update in 5 s (server: 127.0.0.1:5901)"
/// );
/// ```
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    origin: &'static str,
    operation: &'static str,
    message: Cow<'static, str>,
    context: Vec<(&'static str, String)>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`, raised by the crate or component `origin` while doing `operation`.
    pub fn new(
        kind: ErrorKind,
        origin: &'static str,
        operation: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self(Box::new(Inner {
            kind,
            origin,
            operation,
            message: message.into(),
            context: Vec::new(),
            source: None,
        }))
    }

    /// Adds one fact that helps a reader, such as the address of the peer. Never a secret.
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.0.context.push((name, value.to_string()));
        self
    }

    /// Keeps `source` as the cause.
    pub fn caused_by(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What callers branch on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The crate or component that raised it.
    pub fn origin(&self) -> &'static str {
        self.0.origin
    }

    /// What it was doing.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Shorthand for [`ErrorKind::is_retryable`].
    pub fn is_retryable(&self) -> bool {
        self.0.kind.is_retryable()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            kind,
            origin,
            operation,
            message,
            context,
            ..
        } = &*self.0;
        write!(f, "{origin}: {operation}: {kind}: {message}")?;
        for (index, (name, value)) in context.iter().enumerate() {
            f.write_str(if index == 0 { " (" } else { ", " })?;
            write!(f, "{name}: {value}")?;
        }
        if context.is_empty() {
            Ok(())
        } else {
            f.write_str(")")
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
