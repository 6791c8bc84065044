//! What can go wrong in the protocol, and what callers are told.

use dart_core::{Error, ErrorKind};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdbError {
    #[error("a service name has 1 to 65,535 bytes, not {0}")]
    ServiceLength(usize),
    #[error("a packet holds at most 4,294,967,295 bytes, not {0}")]
    PacketLength(usize),
    #[error("the reply begins with {0:?}, which is neither OKAY nor FAIL")]
    Status(String),
    #[error("{0:?} is no length: four hexadecimal digits are expected")]
    Length(String),
    #[error("{0} is no kind of packet that a shell sends")]
    PacketKind(u8),
    #[error("an exit packet holds one byte, not {0}")]
    ExitLength(u32),
    #[error("the message was complete before these bytes")]
    Complete,
    #[error("{what}: {found}")]
    Malformed { what: &'static str, found: String },
    #[error("{what} is longer than {limit} bytes")]
    TooLong { what: &'static str, limit: usize },
    #[error("no ADB server answers at {address}: {reason}; start one, or correct the address")]
    NoServer { address: String, reason: String },
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("the connection ended in the middle of {0}")]
    Ended(&'static str),
    #[error("no answer within {0} ms")]
    Late(u128),
    #[error("the device is offline")]
    Offline,
    #[error("the device has not allowed this computer: unlock it and accept the key ({0})")]
    NotAllowed(String),
    #[error("the ADB server knows no such device: {0}")]
    NotFound(String),
    #[error("the device closed the service")]
    ServiceClosed,
    #[error("refused: {0}")]
    Refused(String),
    #[error("the device's file service says: {0}")]
    File(String),
    #[error("`{command}` ended with code {code}: {said}")]
    Command {
        command: String,
        code: u8,
        said: String,
    },
    #[error("{0}")]
    Config(String),
    #[error("{0}")]
    Unsupported(String),
    #[error("{0}")]
    InvalidAction(String),
    #[error("{0}: {1}")]
    LocalFile(String, String),
    #[error("{0}")]
    Busy(String),
    #[error("the device is closed")]
    DeviceClosed,
}

impl AdbError {
    pub(crate) const fn kind(&self) -> ErrorKind {
        match self {
            Self::ServiceLength(_)
            | Self::PacketLength(_)
            | Self::Complete
            | Self::DeviceClosed => ErrorKind::Misuse,
            Self::Status(_)
            | Self::Length(_)
            | Self::PacketKind(_)
            | Self::ExitLength(_)
            | Self::Malformed { .. }
            | Self::TooLong { .. }
            | Self::Command { .. } => ErrorKind::Protocol,
            Self::NoServer { .. }
            | Self::Broken(_)
            | Self::Ended(_)
            | Self::Offline
            | Self::NotFound(_)
            | Self::ServiceClosed => ErrorKind::Disconnected,
            Self::Late(_) => ErrorKind::Timeout,
            Self::NotAllowed(_) => ErrorKind::Unauthorized,
            Self::Refused(_) | Self::File(_) | Self::Unsupported(_) => ErrorKind::Unsupported,
            Self::Config(_) => ErrorKind::Config,
            Self::InvalidAction(_) => ErrorKind::InvalidAction,
            Self::LocalFile(..) => ErrorKind::Storage,
            Self::Busy(_) => ErrorKind::Exhausted,
        }
    }

    /// The error that crosses the crate's boundary.
    pub(crate) fn at(self, operation: &'static str) -> Error {
        Error::new(self.kind(), "dart-env-adb", operation, self.to_string())
    }

    /// What a server's or device's reason to refuse means. The words are those of adb 29 to 35.
    pub(crate) fn refusal(reason: String) -> Self {
        if reason.starts_with("device offline") || reason.starts_with("device still connecting") {
            Self::Offline
        } else if reason.contains("unauthorized") || reason.contains("still authorizing") {
            Self::NotAllowed(reason.lines().next().unwrap_or_default().to_owned())
        } else if NOT_FOUND.iter().any(|words| reason.contains(words)) {
            Self::NotFound(reason)
        } else if reason == "closed" {
            Self::ServiceClosed
        } else {
            Self::Refused(reason)
        }
    }

    pub(crate) fn malformed(what: &'static str, found: impl std::fmt::Display) -> Self {
        let found = format!("{found}");
        Self::Malformed { what, found }
    }
}

impl From<std::io::Error> for AdbError {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// What servers say of devices that they do not know.
const NOT_FOUND: [&str; 3] = ["not found", "no devices", "no such device"];

/// Result inside this crate.
pub(crate) type Adb<T> = Result<T, AdbError>;

/// Bytes of the peer, safe to print.
pub(crate) fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The first `most` bytes of text of the peer, safe to print.
pub(crate) fn excerpt(bytes: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(most)]);
    text.trim().escape_debug().to_string()
}
