//! Who we are to a server, whom we trust, and which security type follows from the two.
//!
//! | file | type |
//! |---|---|
//! | `vnc_auth` | 2: DES over a challenge (RFC 6143 §7.2.2) |
//! | `vencrypt` | 19: TLS with a certificate (X509*), and Plain, None and VncAuth inside or beside it |
//! | `plain` | 256 and the Plain half of 262: user name and password as they are |
//! | `apple` | 30: user name and password under a Diffie-Hellman key |
//!
//! Encryption that was asked for is never given up: with a way to check the server's certificate,
//! only verified TLS is spoken, whatever else is offered. Without one, the type that reveals least
//! is taken: None, Apple's, VncAuth, then Plain where a password may be sent in clear.
//! RealVNC's own types (RA2) are not spoken: no free server to test against offers them.

mod apple;
mod plain;
pub(super) mod vencrypt;
mod vnc_auth;

use std::fmt;

use super::{
    error::RfbError,
    wire::{Stop, Wire},
};

/// A password. It is never printed, and wiped when dropped.
#[derive(Clone)]
pub struct Password(Vec<u8>);

impl Password {
    /// The password as text. Type VncAuth uses its first eight bytes.
    pub fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl Drop for Password {
    fn drop(&mut self) {
        self.0.fill(0);
        std::hint::black_box(&self.0);
    }
}

/// Bytes that nobody can guess, for keys; from the operating system, never from a run's seed.
#[derive(Clone, Default)]
pub struct Entropy(pub [u8; 32]);

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}

/// Who we are to a server, and on which conditions we say so.
#[derive(Clone, Debug, Default)]
pub struct Login {
    /// The user's name, for the types that ask for one.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Password>,
    /// The server's certificate can be checked: speak nothing but TLS.
    pub verified_tls: bool,
    /// A password may be sent in clear: the connection does not leave this machine, or it is
    /// allowed.
    pub clear: bool,
    /// For the key of type 30. All zeros where that type is not spoken.
    pub entropy: Entropy,
}

impl Login {
    /// Only a password.
    pub fn with_password(password: Option<Password>) -> Self {
        Self {
            password,
            ..Self::default()
        }
    }

    pub(super) fn password(&self) -> Result<&Password, RfbError> {
        self.password.as_ref().ok_or(RfbError::PasswordMissing)
    }

    fn user(&self) -> Result<&str, RfbError> {
        self.user.as_deref().ok_or(RfbError::UserMissing)
    }

    /// The type to answer an offer with.
    pub(super) fn choose(&self, offered: &[u8]) -> Result<u8, RfbError> {
        if self.verified_tls {
            let types = || format!("{offered:?}");
            let vencrypt = offered.contains(&VENCRYPT);
            return vencrypt
                .then_some(VENCRYPT)
                .ok_or_else(|| RfbError::TlsNotOffered { offered: types() });
        }
        // Types for which something is missing come last, for the sake of the error.
        let order: &[u8] = match (&self.user, &self.password) {
            (Some(_), Some(_)) => &[NONE, APPLE, VNC_AUTH, VENCRYPT],
            (None, Some(_)) => &[NONE, VNC_AUTH, VENCRYPT, APPLE],
            // VeNCrypt without a certificate to check leads nowhere that VncAuth does not.
            (_, None) if offered.contains(&VNC_AUTH) => &[NONE, VNC_AUTH],
            (_, None) => &[NONE, VENCRYPT, APPLE],
        };
        order
            .iter()
            .find(|number| offered.contains(*number))
            .copied()
            .ok_or_else(|| RfbError::Security {
                offered: format!("{offered:?}"),
            })
    }
}

pub(super) const NONE: u8 = 1;
const VNC_AUTH: u8 = 2;
const VENCRYPT: u8 = 19;
const APPLE: u8 = 30;

/// Where the dialogue of a security type is: what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A challenge of VncAuth.
    Challenge,
    /// Apple's parameters.
    Apple,
    /// A message of VeNCrypt.
    Vencrypt(vencrypt::Stage),
    /// Nothing to read: the user's name and password are to be sent.
    Plain,
    /// Nothing at all.
    Nothing,
}

/// What a step of the dialogue came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Go on with this.
    Next(Stage),
    /// TLS begins with the next byte in either direction; go on with this inside it.
    StartTls { then: Stage, anonymous: bool },
    /// The result follows. Whether a failure says that the password is wrong.
    Done { by_password: bool },
}

impl Stage {
    /// The first stage of a type.
    pub(super) fn first(number: u8, login: &Login) -> Result<Self, RfbError> {
        match number {
            NONE => Ok(Self::Nothing),
            VNC_AUTH => login.password().map(|_| Self::Challenge),
            VENCRYPT => Ok(Self::Vencrypt(vencrypt::Stage::Version)),
            APPLE => {
                login.user()?;
                login.password()?;
                Ok(Self::Apple)
            }
            other => Err(RfbError::Security {
                offered: format!("[{other}]"),
            }),
        }
    }

    /// Takes one message of the dialogue, and answers.
    pub(super) fn step(
        self,
        login: &Login,
        wire: &mut Wire<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Turn, Stop> {
        match self {
            Self::Challenge => {
                let mut challenge = [0; 16];
                challenge.copy_from_slice(wire.take(16)?);
                out.extend(vnc_auth::respond(login.password()?, challenge));
                Ok(Turn::Done { by_password: true })
            }
            Self::Apple => {
                let parameters = apple::Parameters::read(wire)?;
                let (user, password) = (login.user()?, login.password()?);
                out.extend(parameters.answer(user, password, &login.entropy)?);
                Ok(Turn::Done { by_password: true })
            }
            Self::Vencrypt(stage) => stage.step(login, wire, out),
            Self::Plain => {
                plain::write(login.user()?, login.password()?, out);
                Ok(Turn::Done { by_password: true })
            }
            Self::Nothing => Ok(Turn::Done { by_password: false }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: bool, password: bool) -> Login {
        Login {
            user: user.then(|| "ann".to_owned()),
            password: password.then(|| Password::new("secret")),
            ..Login::default()
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let login = Login {
            entropy: Entropy([77; 32]),
            ..login(true, true)
        };
        let shown = format!("{login:?}");
        assert!(
            !shown.contains("secret") && !shown.contains("77"),
            "{shown}"
        );
    }

    #[test]
    fn the_type_that_reveals_least_is_chosen() {
        for (user, password, offered, expected) in [
            (true, true, &[19, 30, 2, 1][..], 1),
            (true, true, &[19, 2, 30], 30),
            (true, true, &[19, 2], 2),
            (false, true, &[30, 19, 2], 2),
            (false, true, &[30, 19], 19),
            (false, false, &[30, 19], 19),
            (false, false, &[19, 2], 2),
            (false, false, &[30], 30),
        ] {
            let chosen = login(user, password).choose(offered);
            assert_eq!(chosen, Ok(expected), "{user} {password} {offered:?}");
        }
        assert!(matches!(
            login(true, true).choose(&[5, 16, 113]),
            Err(RfbError::Security { .. })
        ));
    }

    #[test]
    fn tls_that_was_asked_for_is_not_given_up() {
        let login = Login {
            verified_tls: true,
            ..login(true, true)
        };
        assert_eq!(login.choose(&[1, 2, 19, 30]), Ok(19));
        let error = login.choose(&[1, 2, 30]).unwrap_err();
        assert!(matches!(error, RfbError::TlsNotOffered { .. }), "{error}");
    }
}
