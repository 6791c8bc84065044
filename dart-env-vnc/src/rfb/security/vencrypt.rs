//! Security type VeNCrypt (19), version 0.2: a list of subtypes, most of them inside TLS.
//!
//! Subtypes as registered with rfbproto: 256 Plain, 257 to 259 TLS* (anonymous Diffie-Hellman),
//! 260 to 262 X509* (a certificate); TigerVNC lists plain security types (1, 2) among them too.
//! Anonymous TLS protects from nobody who can answer in the server's place, and rustls does not
//! speak it: such a subtype is tried only if a certificate can be checked, because a server might
//! present one after all, and fails with the remedy otherwise.

use super::{super::error::RfbError, Login, Stop, Turn, Wire};

/// Which message comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Stage {
    /// The server's version.
    Version,
    /// Whether it takes ours.
    Accepted,
    /// The subtypes on offer.
    Subtypes,
    /// Whether TLS may begin, for a subtype.
    Begin(Subtype),
}

/// Who has to prove what, apart from the encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Proof {
    None,
    VncAuth,
    Plain,
}

/// How it is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Cover {
    Clear,
    Anonymous,
    Certificate,
}

/// A subtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Subtype {
    number: u32,
    cover: Cover,
    proof: Proof,
}

impl Subtype {
    const fn of(number: u32) -> Option<Self> {
        let (cover, proof) = match number {
            1 => (Cover::Clear, Proof::None),
            2 => (Cover::Clear, Proof::VncAuth),
            256 => (Cover::Clear, Proof::Plain),
            257 => (Cover::Anonymous, Proof::None),
            258 => (Cover::Anonymous, Proof::VncAuth),
            259 => (Cover::Anonymous, Proof::Plain),
            260 => (Cover::Certificate, Proof::None),
            261 => (Cover::Certificate, Proof::VncAuth),
            262 => (Cover::Certificate, Proof::Plain),
            _ => return None,
        };
        Some(Self {
            number,
            cover,
            proof,
        })
    }

    /// Whether the login has what the proof needs, and how well the proof suits it; less is better.
    fn rank(self, login: &Login) -> (bool, u8) {
        let (user, password) = (login.user.is_some(), login.password.is_some());
        match self.proof {
            Proof::None => (false, 0),
            Proof::Plain if user => (!password, 1),
            Proof::VncAuth => (!password, 2),
            Proof::Plain => (true, 3),
        }
    }

    const fn after(self) -> super::Stage {
        match self.proof {
            Proof::None => super::Stage::Nothing,
            Proof::VncAuth => super::Stage::Challenge,
            Proof::Plain => super::Stage::Plain,
        }
    }

    /// Fails if something is missing that only the user can add.
    fn check(self, login: &Login) -> Result<Self, RfbError> {
        if self.proof != Proof::None {
            login.password()?;
        }
        if self.proof == Proof::Plain {
            login.user()?;
            if self.cover == Cover::Clear && !login.clear {
                return Err(RfbError::PasswordInClear);
            }
        }
        Ok(self)
    }
}

/// The best of the subtypes on offer.
fn choose(offered: &[u32], login: &Login) -> Result<Subtype, RfbError> {
    let known: Vec<_> = offered.iter().copied().filter_map(Subtype::of).collect();
    let covered = |cover| known.iter().filter(move |subtype| subtype.cover == cover);
    let best = |cover| covered(cover).min_by_key(|subtype| subtype.rank(login));
    let list = || format!("{offered:?}");
    if login.verified_tls {
        return match best(Cover::Certificate).or(best(Cover::Anonymous)) {
            Some(subtype) => subtype.check(login),
            None => Err(RfbError::TlsNotOffered { offered: list() }),
        };
    }
    match best(Cover::Clear) {
        Some(subtype) => subtype.check(login),
        None if best(Cover::Certificate).is_some() => Err(RfbError::CertificateUnchecked),
        None if best(Cover::Anonymous).is_some() => Err(RfbError::AnonymousTls),
        None => Err(RfbError::Security { offered: list() }),
    }
}

impl Stage {
    pub(super) fn step(
        self,
        login: &Login,
        wire: &mut Wire<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Turn, Stop> {
        let next = |stage| Ok(Turn::Next(super::Stage::Vencrypt(stage)));
        match self {
            Self::Version => {
                let version = (wire.u8()?, wire.u8()?);
                if version < (0, 2) {
                    return Err(malformed("VeNCrypt is older than version 0.2"));
                }
                out.extend([0, 2]);
                next(Self::Accepted)
            }
            Self::Accepted => match wire.u8()? {
                0 => next(Self::Subtypes),
                _ => Err(malformed("the server refuses VeNCrypt 0.2")),
            },
            Self::Subtypes => {
                let count = wire.u8()?;
                let list = wire.take(usize::from(count) * 4)?;
                let (list, _) = list.as_chunks::<4>();
                let list: Vec<_> = list.iter().map(|four| u32::from_be_bytes(*four)).collect();
                let subtype = choose(&list, login)?;
                out.extend(subtype.number.to_be_bytes());
                if subtype.cover == Cover::Clear {
                    return Ok(Turn::Next(subtype.after()));
                }
                next(Self::Begin(subtype))
            }
            Self::Begin(subtype) => match wire.u8()? {
                1 => Ok(Turn::StartTls {
                    then: subtype.after(),
                    anonymous: subtype.cover == Cover::Anonymous,
                }),
                _ => Err(malformed("the server cannot begin TLS: see its log")),
            },
        }
    }
}

fn malformed(what: &'static str) -> Stop {
    RfbError::Malformed { what }.into()
}

#[cfg(test)]
mod tests {
    use super::{super::Password, *};

    fn login(user: bool, password: bool, verified_tls: bool) -> Login {
        Login {
            user: user.then(|| "ann".to_owned()),
            password: password.then(|| Password::new("secret")),
            verified_tls,
            ..Login::default()
        }
    }

    #[test]
    fn the_best_subtype_follows_from_what_is_configured() {
        for (user, password, offered, expected) in [
            (true, true, &[257, 258, 261, 262][..], 262),
            (false, true, &[258, 262, 261], 261),
            (true, true, &[261, 260, 262], 260),
            (false, false, &[256, 260, 2], 260),
            (true, true, &[2, 256, 258], 258),
        ] {
            let chosen = choose(offered, &login(user, password, true)).unwrap();
            assert_eq!(chosen.number, expected, "{offered:?}");
        }
        let chosen = choose(&[2, 256, 261], &login(true, true, false));
        assert_eq!(chosen, Err(RfbError::PasswordInClear));
        let local = Login {
            clear: true,
            ..login(true, true, false)
        };
        assert_eq!(choose(&[256, 261], &local).unwrap().number, 256);
    }

    #[test]
    fn what_is_missing_is_named() {
        let refused = |offered: &[u32], login: &Login| choose(offered, login).unwrap_err();
        let bare = login(false, false, false);
        assert_eq!(refused(&[260, 257], &bare), RfbError::CertificateUnchecked);
        assert_eq!(refused(&[257, 258], &bare), RfbError::AnonymousTls);
        assert_eq!(refused(&[2], &bare), RfbError::PasswordMissing);
        let trusting = login(false, false, true);
        assert_eq!(refused(&[261], &trusting), RfbError::PasswordMissing);
        let nameless = login(false, true, true);
        assert_eq!(refused(&[262], &nameless), RfbError::UserMissing);
        let error = refused(&[1, 2, 256], &trusting);
        assert!(matches!(error, RfbError::TlsNotOffered { .. }), "{error}");
        let error = refused(&[263, 264], &bare);
        assert!(matches!(error, RfbError::Security { .. }), "{error}");
    }
}
