//! What can go wrong here, and what callers are told.

use dart_core::{Error, ErrorKind, PolicyVersion};

/// The crate's name in errors.
pub(crate) const ORIGIN: &str = "dart-rollout";

/// Faults raised by this crate itself; those of environments and policies pass through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RolloutError {
    #[error("{key} is {value}, but {rule}")]
    Setting {
        key: &'static str,
        value: u64,
        rule: &'static str,
    },
    #[error("no policy worker was free to decide within {millis} ms")]
    NoWorker { millis: u128 },
    #[error("no decision within {millis} ms")]
    SlowDecision { millis: u128 },
    #[error("calls in flight did not end within {millis} ms; the worker keeps its weights")]
    SlowDrain { millis: u128 },
    #[error("weights were not loaded within {millis} ms")]
    SlowLoad { millis: u128 },
    #[error("loading weights panicked: {message}")]
    LoadPanic { message: String },
    #[error("the worker says version {found} after loading version {wanted}")]
    WrongVersion {
        found: PolicyVersion,
        wanted: PolicyVersion,
    },
    #[error("version {offered} is older than version {newest}, which is here or on its way")]
    OldWeights {
        offered: PolicyVersion,
        newest: PolicyVersion,
    },
    #[error("the pool was dropped before the weights were loaded")]
    PoolGone,
    #[error("no answer within {millis} ms")]
    SlowCall { millis: u128 },
    #[error("the curator did not take a trajectory within {millis} ms")]
    SlowIngest { millis: u128 },
    #[error("an environment was not closed cleanly")]
    UncleanClose,
    #[error("the expert has no action for this screen")]
    NoExpertAction,
    #[error("the encoder wrote the expert's action as something that is none: {reason}")]
    BadEncoding { reason: String },
}

impl RolloutError {
    const fn kind(&self) -> ErrorKind {
        match self {
            Self::Setting { .. } => ErrorKind::Config,
            Self::NoWorker { .. }
            | Self::SlowDecision { .. }
            | Self::SlowDrain { .. }
            | Self::SlowLoad { .. }
            | Self::SlowCall { .. }
            | Self::SlowIngest { .. } => ErrorKind::Timeout,
            Self::LoadPanic { .. } | Self::BadEncoding { .. } | Self::UncleanClose => {
                ErrorKind::Internal
            }
            Self::WrongVersion { .. } => ErrorKind::Protocol,
            Self::OldWeights { .. } => ErrorKind::Stale,
            Self::PoolGone => ErrorKind::Cancelled,
            Self::NoExpertAction => ErrorKind::Unsupported,
        }
    }

    /// The error that crosses the crate's boundary.
    pub(crate) fn at(self, operation: &'static str) -> Error {
        Error::new(self.kind(), ORIGIN, operation, self.to_string())
    }
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// Locks `mutex`; a panic elsewhere does not make plain counters unusable.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
