//! The handshake (RFC 6143 §7.1 to §7.3): version, security, initialisation.
//!
//! The layout follows the *server's* version: TigerVNC answers a locked-out client with
//! `RFB 003.003` whatever it said before. Apple's 3.889 and anything newer count as 3.8; the
//! unofficial 3.4 to 3.6 count as 3.3.

use dart_core::Size;

use super::{
    encoding::choice::Offer,
    error::{RfbError, printable},
    framebuffer::Framebuffer,
    limits::{MAX_NAME_BYTES, MAX_REASON_BYTES},
    pixel::PixelFormat,
    rect::Rects,
    security::{self, Login, Stage, Turn},
    wire::{Stop, Wire},
};

/// The version of the protocol that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each name says which version")]
pub enum ProtocolVersion {
    V3_3,
    V3_7,
    V3_8,
}

impl ProtocolVersion {
    const GREETING: usize = 12;

    const fn answer(self) -> &'static [u8; Self::GREETING] {
        match self {
            Self::V3_3 => b"RFB 003.003\n",
            Self::V3_7 => b"RFB 003.007\n",
            Self::V3_8 => b"RFB 003.008\n",
        }
    }

    fn of_greeting(greeting: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(greeting.strip_prefix(b"RFB ")?).ok()?;
        let (major, minor) = text.strip_suffix('\n')?.split_once('.')?;
        let digits = |part: &str| {
            let all = part.len() == 3 && part.bytes().all(|byte| byte.is_ascii_digit());
            all.then(|| part.parse::<u16>().ok()).flatten()
        };
        match (digits(major)?, digits(minor)?) {
            (0..=2, _) => None,
            (3, 0..=6) => Some(Self::V3_3),
            (3, 7) => Some(Self::V3_7),
            _ => Some(Self::V3_8),
        }
    }
}

/// What the server says of itself at the end of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInit {
    /// The version that is spoken.
    pub version: ProtocolVersion,
    /// The screen's size.
    pub size: Size,
    /// The server's own pixel format. It is replaced at once.
    pub format: PixelFormat,
    /// The desktop's name.
    pub name: String,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Version,
    Security,
    /// The dialogue of the security type.
    Login(Stage),
    /// `by_password`: whether a failure says that the password is wrong.
    Result {
        by_password: bool,
    },
    Init,
}

/// Where the handshake is.
#[derive(Debug)]
pub(crate) struct Handshake {
    state: State,
    version: ProtocolVersion,
    login: Login,
    offer: Offer,
}

/// A completed handshake.
#[derive(Debug)]
pub(crate) struct Greeted {
    pub(crate) init: ServerInit,
    pub(crate) rects: Rects,
}

/// What a step of the handshake came to.
#[derive(Debug)]
pub(crate) enum Reached {
    /// It goes on.
    More,
    /// TLS begins with the next byte in either direction; the handshake goes on inside it.
    Tls { anonymous: bool },
    /// It is complete.
    Greeted(Box<Greeted>),
}

impl Handshake {
    pub(crate) const fn new(login: Login, offer: Offer) -> Self {
        Self {
            state: State::Version,
            version: ProtocolVersion::V3_8,
            login,
            offer,
        }
    }

    /// Takes one unit of the handshake and appends the answer to `out`.
    pub(crate) fn step(&mut self, wire: &mut Wire<'_>, out: &mut Vec<u8>) -> Result<Reached, Stop> {
        match self.state {
            State::Version => self.read_version(wire, out)?,
            State::Security if self.version == ProtocolVersion::V3_3 => {
                self.read_security_type(wire, out)?;
            }
            State::Security => self.read_security_list(wire, out)?,
            State::Login(stage) => return self.log_in(stage, wire, out),
            State::Result { by_password } => self.read_result(wire, out, by_password)?,
            State::Init => {
                let greeted = self.read_init(wire, out)?;
                return Ok(Reached::Greeted(Box::new(greeted)));
            }
        }
        Ok(Reached::More)
    }

    fn read_version(&mut self, wire: &mut Wire<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let seen = wire.peek();
        let seen = &seen[..seen.len().min(ProtocolVersion::GREETING)];
        let not_rfb = || RfbError::NotRfb {
            greeting: printable(seen),
        };
        // A peer of another kind is recognised at its first wrong byte, not at the deadline.
        if !seen.iter().zip(b"RFB ").all(|(a, b)| a == b) {
            return Err(not_rfb().into());
        }
        let greeting = wire.take(ProtocolVersion::GREETING)?;
        self.version = ProtocolVersion::of_greeting(greeting).ok_or_else(not_rfb)?;
        out.extend(self.version.answer());
        self.state = State::Security;
        Ok(())
    }

    /// 3.3: the server decides.
    fn read_security_type(&mut self, wire: &mut Wire<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let number = wire.u32()?;
        if number == 0 {
            return Err(refusal(wire)?.into());
        }
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        // The offer of one is checked like any other, so that TLS that was asked for is spoken.
        self.login.choose(&[number])?;
        self.begin_login(number, out)
    }

    /// 3.7 and 3.8: the server offers, we choose.
    fn read_security_list(&mut self, wire: &mut Wire<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let count = wire.u8()?;
        if count == 0 {
            return Err(refusal(wire)?.into());
        }
        let number = self.login.choose(wire.take(count.into())?)?;
        self.begin_login(number, out)
    }

    fn begin_login(&mut self, number: u8, out: &mut Vec<u8>) -> Result<(), Stop> {
        let stage = Stage::first(number, &self.login)?;
        if self.version != ProtocolVersion::V3_3 {
            out.push(number);
        }
        // Before 3.8, None has no result.
        let short = number == security::NONE && self.version != ProtocolVersion::V3_8;
        let next = if short {
            State::Init
        } else {
            State::Login(stage)
        };
        self.enter(next, out);
        Ok(())
    }

    fn enter(&mut self, state: State, out: &mut Vec<u8>) {
        if matches!(state, State::Init) {
            // ClientInit: share the desktop, so that a person may watch.
            out.push(1);
        }
        self.state = state;
    }

    fn log_in(
        &mut self,
        stage: Stage,
        wire: &mut Wire<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Reached, Stop> {
        match stage.step(&self.login, wire, out)? {
            Turn::Next(stage) => self.state = State::Login(stage),
            Turn::Done { by_password } => self.state = State::Result { by_password },
            Turn::StartTls { then, anonymous } => {
                self.state = State::Login(then);
                return Ok(Reached::Tls { anonymous });
            }
        }
        Ok(Reached::More)
    }

    fn read_result(
        &mut self,
        wire: &mut Wire<'_>,
        out: &mut Vec<u8>,
        by_password: bool,
    ) -> Result<(), Stop> {
        if wire.u32()? == 0 {
            self.enter(State::Init, out);
            return Ok(());
        }
        let reason = if self.version == ProtocolVersion::V3_8 {
            printable(wire.counted("reason", MAX_REASON_BYTES)?)
        } else {
            "no reason given".to_owned()
        };
        Err(if by_password {
            RfbError::WrongPassword { reason }.into()
        } else {
            RfbError::Refused { reason }.into()
        })
    }

    fn read_init(&mut self, wire: &mut Wire<'_>, out: &mut Vec<u8>) -> Result<Greeted, Stop> {
        let (width, height) = (wire.u16()?, wire.u16()?);
        let format = PixelFormat::read(wire)?;
        let name = printable(wire.counted("desktop name", MAX_NAME_BYTES)?);
        let screen = Framebuffer::new(width, height)?;
        let size = screen.size();
        let rects = Rects::new(screen, self.offer.format.unwrap_or(format))?;
        if let Some(format) = self.offer.format {
            super::message::set_pixel_format(format, out);
        }
        super::message::set_encodings(&self.offer.encodings, out);
        let init = ServerInit {
            version: self.version,
            size,
            format,
            name,
        };
        Ok(Greeted { init, rects })
    }
}

fn refusal(wire: &mut Wire<'_>) -> Result<RfbError, Stop> {
    let reason = printable(wire.counted("reason", MAX_REASON_BYTES)?);
    Ok(RfbError::Refused { reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_server_means_them() {
        let of = |text: &str| ProtocolVersion::of_greeting(text.as_bytes());
        assert_eq!(of("RFB 003.003\n"), Some(ProtocolVersion::V3_3));
        assert_eq!(of("RFB 003.005\n"), Some(ProtocolVersion::V3_3));
        assert_eq!(of("RFB 003.006\n"), Some(ProtocolVersion::V3_3));
        assert_eq!(of("RFB 003.007\n"), Some(ProtocolVersion::V3_7));
        assert_eq!(of("RFB 003.008\n"), Some(ProtocolVersion::V3_8));
        assert_eq!(of("RFB 003.889\n"), Some(ProtocolVersion::V3_8));
        assert_eq!(of("RFB 005.000\n"), Some(ProtocolVersion::V3_8));
        for bad in [
            "RFB 003.8\n  ",
            "RFB 00+.008\n",
            "RFB 002.000\n",
            "RFB 003 008\n",
        ] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }
}
