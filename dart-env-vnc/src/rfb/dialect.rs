//! In which of its ways a server is told of input.

use dart_core::ScreenPx;
use serde::{Deserialize, Serialize};

use super::{message, scancode, session::Abilities};

/// How keys are named to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keyboard {
    /// Scancodes where the server takes them and types nothing else well (QEMU, wayvnc); keysyms
    /// for all others. Servers that answer fences (TigerVNC) take any keysym.
    #[default]
    Auto,
    /// Keysyms: what is meant, in any script, where the server makes keys of it.
    Keysyms,
    /// Scancodes of a US keyboard, if the server takes them: the guest's own layout decides.
    Scancodes,
}

/// Farther than any screen is wide.
const FAR: i32 = 0x7fff;

/// In which of its ways a server is told of input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Keys are named by scancode too.
    pub(crate) scancodes: bool,
    /// The pointer is moved by differences.
    pub(crate) relative: bool,
}

impl Dialect {
    /// What suits a server of these abilities.
    pub(crate) const fn new(keyboard: Keyboard, abilities: &Abilities) -> Self {
        let scancodes = match keyboard {
            Keyboard::Auto => abilities.scancodes && !abilities.fence,
            Keyboard::Keysyms => false,
            Keyboard::Scancodes => abilities.scancodes,
        };
        Self {
            scancodes,
            relative: abilities.relative_pointer,
        }
    }

    /// Writes a key going down or up.
    pub(super) fn key(self, keysym: u32, down: bool, out: &mut Vec<u8>) {
        match scancode::of_keysym(keysym).filter(|_| self.scancodes) {
            Some(code) => message::scancode(keysym, code, down, out),
            None => message::key(keysym, down, out),
        }
    }

    /// Writes the pointer going from where it was to `at`. Where that is not known and only
    /// differences count, it goes by the top left corner, which stops it.
    pub(super) fn pointer(
        self,
        from: Option<ScreenPx>,
        at: ScreenPx,
        buttons: u8,
        out: &mut Vec<u8>,
    ) {
        if self.relative {
            let from = from.unwrap_or_else(|| {
                message::relative_pointer(-FAR, -FAR, buttons, out);
                ScreenPx::new(0, 0)
            });
            message::relative_pointer(at.x - from.x, at.y - from.y, buttons, out);
        } else {
            message::pointer(at.x as u16, at.y as u16, buttons, out);
        }
    }

    /// The first of some characters that this server has no key for.
    pub(crate) fn untypable(self, mut text: impl Iterator<Item = char>) -> Option<char> {
        let known = |c: char| super::keysym::of_char(c).and_then(scancode::of_keysym);
        text.find(|c| self.scancodes && known(*c).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scancodes_are_for_servers_that_need_them() {
        let qemu = Abilities {
            scancodes: true,
            ..Abilities::default()
        };
        let tigervnc = Abilities {
            fence: true,
            ..qemu.clone()
        };
        let of = |keyboard, abilities| Dialect::new(keyboard, abilities).scancodes;
        assert!(of(Keyboard::Auto, &qemu));
        assert!(!of(Keyboard::Auto, &tigervnc));
        assert!(of(Keyboard::Scancodes, &tigervnc));
        assert!(!of(Keyboard::Keysyms, &qemu));
        assert!(!of(Keyboard::Scancodes, &Abilities::default()));
    }

    #[test]
    fn a_pointer_that_is_nowhere_yet_goes_by_the_corner() {
        let relative = Dialect {
            relative: true,
            ..Dialect::default()
        };
        let sent = |from| {
            let mut out = Vec::new();
            relative.pointer(from, ScreenPx::new(3, 2), 0, &mut out);
            out
        };
        let moved = [5, 0, 0x80, 0x02, 0x80, 0x01];
        assert_eq!(sent(Some(ScreenPx::new(0, 0))), moved);
        assert_eq!(sent(None), [&[5, 0, 0, 0, 0, 0][..], &moved].concat());
    }

    #[test]
    fn what_a_us_keyboard_lacks_is_named() {
        let dialect = Dialect {
            scancodes: true,
            ..Dialect::default()
        };
        assert_eq!(dialect.untypable("Hello, <World>!\n".chars()), None);
        assert_eq!(dialect.untypable("naïve".chars()), Some('ï'));
        assert_eq!(Dialect::default().untypable("naïve".chars()), None);
    }
}
