//! What can go wrong inside this crate, and how it is told at the boundary.

use dart_core::{Error, ErrorKind};

/// Private errors; the kind is chosen once, in the conversion.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error("the model setting `{0}` is out of bounds")]
    Config(&'static str),
    #[error("the grammar cannot say this action: {0}")]
    Unsayable(String),
    #[error("images and prompt tokens do not belong together: {0}")]
    Mismatch(String),
    #[error("the response cannot have been produced under the action grammar: {0}")]
    Ungrammatical(String),
    #[error("the weights do not fit: {0}")]
    Weights(String),
    #[error("tensor library: {0}")]
    Candle(#[from] candle_core::Error),
    #[error("the model's output is not finite")]
    NotFinite,
    #[error("no answer within {0:?}")]
    Late(std::time::Duration),
    #[error("the policy's worker has stopped")]
    Stopped,
}

impl From<PolicyError> for Error {
    fn from(error: PolicyError) -> Self {
        let (kind, operation) = match &error {
            PolicyError::Config(_) => (ErrorKind::Config, "model config"),
            PolicyError::Unsayable(_) => (ErrorKind::Unsupported, "encode"),
            PolicyError::Mismatch(_) => (ErrorKind::Internal, "prompt"),
            PolicyError::Ungrammatical(_) => (ErrorKind::Protocol, "response"),
            PolicyError::Weights(_) => (ErrorKind::Protocol, "load weights"),
            PolicyError::Candle(_) => (ErrorKind::Internal, "forward"),
            PolicyError::NotFinite => (ErrorKind::Numeric, "forward"),
            PolicyError::Late(_) => (ErrorKind::Timeout, "act"),
            PolicyError::Stopped => (ErrorKind::Disconnected, "act"),
        };
        Self::new(kind, "dart-policy", operation, error.to_string())
    }
}

impl From<PolicyError> for candle_core::Error {
    fn from(error: PolicyError) -> Self {
        Self::wrap(error)
    }
}

pub(crate) type Result<T, E = PolicyError> = std::result::Result<T, E>;
