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
}

impl AdbError {
    const fn kind(&self) -> ErrorKind {
        match self {
            Self::ServiceLength(_) | Self::PacketLength(_) | Self::Complete => ErrorKind::Misuse,
            Self::Status(_) | Self::Length(_) | Self::PacketKind(_) | Self::ExitLength(_) => {
                ErrorKind::Protocol
            }
        }
    }

    /// The error that crosses the crate's boundary.
    pub(crate) fn at(self, operation: &'static str) -> Error {
        Error::new(self.kind(), "dart-env-adb", operation, self.to_string())
    }
}

/// Bytes of the peer, safe to print.
pub(crate) fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
