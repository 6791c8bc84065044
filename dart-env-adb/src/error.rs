//! What can go wrong in the protocol, and what callers are told.

use dart_core::{Error, ErrorKind};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdbError {
    #[error("a service name has 1 to 65,535 bytes, not {0}")]
    ServiceLength(usize),
    #[error("a NUL byte in it would end a service name or a path early on the device")]
    Nul,
    #[error("a path on the device has at most 1,024 bytes, not {0}")]
    PathLength(usize),
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
    #[error("more than {1} {0}")]
    TooMany(&'static str, usize),
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
    #[error("the ADB server may not open the USB device: see its udev rules and groups ({0})")]
    NoPermission(String),
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
            | Self::Nul
            | Self::PathLength(_)
            | Self::PacketLength(_)
            | Self::Complete
            | Self::DeviceClosed => ErrorKind::Misuse,
            Self::Status(_)
            | Self::Length(_)
            | Self::PacketKind(_)
            | Self::ExitLength(_)
            | Self::Malformed { .. }
            | Self::TooLong { .. }
            | Self::TooMany(..)
            | Self::Command { .. } => ErrorKind::Protocol,
            Self::NoServer { .. }
            | Self::Broken(_)
            | Self::Ended(_)
            | Self::Offline
            | Self::NotFound(_)
            | Self::ServiceClosed => ErrorKind::Disconnected,
            Self::Late(_) => ErrorKind::Timeout,
            Self::NotAllowed(_) | Self::NoPermission(_) => ErrorKind::Unauthorized,
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
    pub(crate) fn refusal(reason: &str) -> Self {
        let line = reason.lines().next().unwrap_or_default();
        // Hostile devices write some of them.
        let said = excerpt(line.as_bytes(), MAX_REASON);
        let begins = |starts: &[&str]| starts.iter().any(|start| line.starts_with(start));
        if begins(&["device offline", "device still connecting"]) {
            Self::Offline
        } else if line.contains("unauthorized") || line.contains("still authorizing") {
            Self::NotAllowed(said)
        } else if line.contains("no permissions") || line.contains("insufficient permissions") {
            Self::NoPermission(said)
        } else if begins(&NO_DEVICE) || begins(&["device "]) && line.ends_with("not found") {
            Self::NotFound(said)
        } else if reason == "closed" {
            Self::ServiceClosed
        } else {
            Self::Refused(said)
        }
    }

    /// What the device's file service gives as its reason.
    pub(crate) fn file(reason: &str) -> Self {
        Self::File(excerpt(reason.as_bytes(), MAX_REASON))
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

/// How servers begin to speak of devices that they do not know, besides `device 'x' not found`.
const NO_DEVICE: [&str; 3] = ["no devices", "no emulators", "no such device"];
/// Most bytes of a reason that are repeated.
const MAX_REASON: usize = 400;

/// Result inside this crate.
pub(crate) type Adb<T> = Result<T, AdbError>;

/// Bytes of the peer, safe to print.
pub(crate) fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The first `most` bytes of text of the peer, safe to print.
pub(crate) fn excerpt(bytes: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(most)]);
    let mut all = String::new();
    for c in text.trim().chars() {
        if c.is_control() {
            all.extend(c.escape_default());
        } else {
            all.push(c);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_servers_have_their_meaning() {
        use ErrorKind::{Disconnected, Unauthorized, Unsupported};
        for (reason, kind) in [
            ("device offline", Disconnected),
            ("device offline (no transport)", Disconnected),
            ("device still connecting", Disconnected),
            ("device 'x' not found", Disconnected),
            ("device with transport id '7' not found", Disconnected),
            ("no such device '127.0.0.1:1'", Disconnected),
            ("no devices/emulators found", Disconnected),
            ("closed", Disconnected),
            ("device unauthorized.\nThis adb server's keys", Unauthorized),
            ("device still authorizing", Unauthorized),
            (
                "insufficient permissions for device: user in plugdev group",
                Unauthorized,
            ),
            // No device is missing here.
            ("listener 'tcp:1' not found", Unsupported),
            ("cannot bind listener: Address already in use", Unsupported),
        ] {
            assert_eq!(AdbError::refusal(reason).kind(), kind, "{reason}");
        }
    }

    #[test]
    fn reasons_are_short_and_safe_to_print() {
        let reason = format!("\x1b[2J{}", "x".repeat(60_000));
        let text = AdbError::refusal(&reason).to_string();
        assert!(text.len() < 500 && !text.contains('\x1b'), "{text}");
    }
}
