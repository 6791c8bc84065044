//! What goes wrong on an RFB connection, and its conversion into the error of the traits.

use std::io;

use dart_core::{Error, ErrorKind};

/// What went wrong on an RFB connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RfbError {
    /// The server offers only TLS without a certificate.
    #[error("the server speaks TLS without a certificate, which proves nothing")]
    AnonymousTls,
    /// The server's certificate is not the right one.
    #[error("the server's certificate is not accepted ({message})")]
    Certificate {
        /// What is wrong with it.
        message: String,
    },
    /// The server has a certificate and there is nothing to check it with.
    #[error("the server wants TLS, and nothing is configured to check its certificate with")]
    CertificateUnchecked,
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// Nobody listens there.
    #[error("no VNC server answers ({message})")]
    Connect {
        /// The system's message.
        message: String,
    },
    /// Reading or writing failed.
    #[error("the connection broke ({message})")]
    Io {
        /// The system's message.
        message: String,
    },
    /// The bytes make no sense.
    #[error("{what}")]
    Malformed {
        /// What is wrong with them.
        what: &'static str,
    },
    /// The peer is something else.
    #[error("the peer does not speak RFB (it says {greeting:?})")]
    NotRfb {
        /// The first bytes that it sent.
        greeting: String,
    },
    /// Text for a clipboard that takes only Latin-1.
    #[error("the server's clipboard takes only Latin-1 text")]
    NotLatin1,
    /// Text was to be pasted, and nobody has asked for it.
    #[error("nothing on the desktop takes the text that was to be pasted")]
    NotPasted,
    /// The server wants a password and none is configured.
    #[error("the server asks for a password")]
    PasswordMissing,
    /// The server wants a password in clear, over a network.
    #[error("the server wants the password in clear")]
    PasswordInClear,
    /// The server refuses to talk.
    #[error("the server refuses the connection: {reason}")]
    Refused {
        /// The server's words.
        reason: String,
    },
    /// The screen does not get another size.
    #[error("the screen keeps its size: {reason}")]
    ResizeRefused {
        /// Why.
        reason: &'static str,
    },
    /// The server offers only security types that we do not speak.
    #[error("the server offers security types {offered}, none of which can be used")]
    Security {
        /// The numbers offered.
        offered: String,
    },
    /// A deadline passed.
    #[error("no {what} within {millis} ms")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        millis: u64,
    },
    /// A clipboard text of ours is too long.
    #[error("a clipboard text has at most {limit} bytes, not {bytes}")]
    TextTooLong {
        /// How long it is.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// TLS broke off.
    #[error("TLS fails ({message})")]
    Tls {
        /// What it says.
        message: String,
    },
    /// TLS is configured and the server does not offer it.
    #[error("the server offers only security types {offered}, and TLS is asked for")]
    TlsNotOffered {
        /// The numbers offered.
        offered: String,
    },
    /// A length from the wire is beyond its bound.
    #[error("{what} of {value} is beyond the limit of {limit}")]
    TooLarge {
        /// What it measures.
        what: &'static str,
        /// The value on the wire.
        value: u64,
        /// The bound.
        limit: u64,
    },
    /// A number that cannot be followed.
    #[error("unknown {what} {value}: the stream cannot be followed")]
    Unknown {
        /// What it numbers.
        what: &'static str,
        /// The number on the wire.
        value: i64,
    },
    /// The server wants a user name and none is configured.
    #[error("the server asks for a user name")]
    UserMissing,
    /// The server did not accept the password.
    #[error("the server does not accept the password ({reason})")]
    WrongPassword {
        /// The server's words.
        reason: String,
    },
}

impl RfbError {
    pub(crate) fn io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io {
                message: plain(error),
            },
        }
    }

    pub(crate) fn connect(error: &io::Error) -> Self {
        Self::Connect {
            message: plain(error),
        }
    }

    /// Whether the server locks us out, as it does after several failed logins.
    fn is_lockout(reason: &str) -> bool {
        let reason = reason.to_ascii_lowercase();
        reason.contains("too many") || reason.contains("auth")
    }

    fn what_to_do(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "start one or fix environment.endpoint",
            Self::NotRfb { .. } => "fix environment.endpoint",
            Self::PasswordMissing => "name the variable that holds it in environment.password_env",
            Self::Security { .. } => {
                "start the server with -SecurityTypes None, VncAuth, X509Vnc or X509Plain"
            }
            Self::AnonymousTls => {
                "start the server with -SecurityTypes X509Vnc and a certificate (-X509Cert, -X509Key)"
            }
            Self::Certificate { .. } => "fix environment.tls or the server's certificate",
            Self::CertificateUnchecked => {
                "set environment.tls.certificate_sha256 or environment.tls.ca_file"
            }
            Self::PasswordInClear => {
                "start the server with -SecurityTypes X509Plain, or allow it by environment.allow_clear_password"
            }
            Self::TlsNotOffered { .. } => {
                "start the server with -SecurityTypes X509Vnc or X509Plain, or drop environment.tls"
            }
            Self::TextTooLong { .. } => "give it a shorter one",
            Self::NotPasted => "focus a text field, or type what a US keyboard has",
            Self::NotLatin1 => "type the text, or take a server with the extended clipboard",
            Self::ResizeRefused { .. } => "start the server with the size that is needed",
            Self::UserMissing => "set environment.user",
            Self::WrongPassword { .. } => "fix the variable that environment.password_env names",
            Self::Refused { reason } if Self::is_lockout(reason) => {
                "wait or restart the server, and check the password"
            }
            Self::Timeout { .. } => "check that the server runs and is not overloaded",
            _ => "reconnect, or look at the server's log",
        }
    }

    const fn plain_kind(&self) -> ErrorKind {
        match self {
            Self::Closed
            | Self::Connect { .. }
            | Self::Io { .. }
            | Self::Refused { .. }
            | Self::Tls { .. } => ErrorKind::Disconnected,
            Self::Malformed { .. }
            | Self::NotRfb { .. }
            | Self::TooLarge { .. }
            | Self::Unknown { .. } => ErrorKind::Protocol,
            Self::AnonymousTls
            | Self::CertificateUnchecked
            | Self::PasswordInClear
            | Self::PasswordMissing
            | Self::Security { .. }
            | Self::TlsNotOffered { .. }
            | Self::UserMissing => ErrorKind::Config,
            Self::NotLatin1 | Self::ResizeRefused { .. } => ErrorKind::Unsupported,
            Self::NotPasted | Self::TextTooLong { .. } => ErrorKind::InvalidAction,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Certificate { .. } | Self::WrongPassword { .. } => ErrorKind::Unauthorized,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused { reason } if Self::is_lockout(reason) => ErrorKind::Unauthorized,
            other => other.plain_kind(),
        }
    }

    /// The error of the traits, in one line that names the server and says what to do.
    pub(crate) fn into_core(self, operation: &'static str, endpoint: &str) -> Error {
        let advice = self.what_to_do();
        let message = match &self {
            Self::Connect { message } => {
                format!("no VNC server answers at {endpoint} ({message}): {advice}")
            }
            other => format!("VNC server {endpoint}: {other}: {advice}"),
        };
        Error::new(self.kind(), "dart-env-vnc", operation, message)
    }
}

/// The system's message in lower case and without its number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset".to_owned(),
        io::ErrorKind::BrokenPipe => "broken pipe".to_owned(),
        _ => error.to_string(),
    }
}

/// A server's words, made safe to print: no control characters, at most 200 characters.
pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect::<String>()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_server_and_says_what_to_do() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = RfbError::connect(&refused).into_core("connect", "127.0.0.1:5999");
        assert_eq!(error.kind(), ErrorKind::Disconnected);
        assert!(error.to_string().ends_with(
            "no VNC server answers at 127.0.0.1:5999 (connection refused): start one or fix environment.endpoint"
        ));
    }

    #[test]
    fn a_lockout_is_a_matter_of_credentials() {
        let lockout = RfbError::Refused {
            reason: "Too many security failures".to_owned(),
        };
        assert_eq!(lockout.kind(), ErrorKind::Unauthorized);
        let full = RfbError::Refused {
            reason: "server is full".to_owned(),
        };
        assert_eq!(full.kind(), ErrorKind::Disconnected);
    }

    #[test]
    fn a_reason_cannot_break_the_line() {
        assert_eq!(printable(b"no\nway\x1b[31m"), "no way [31m");
        assert_eq!(printable(&[b'x'; 5000]).len(), 200);
    }
}
