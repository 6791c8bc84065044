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

    /// Writes the pointer going from where it was to `at`.
    pub(super) fn pointer(
        self,
        from: Option<ScreenPx>,
        at: ScreenPx,
        buttons: u8,
        out: &mut Vec<u8>,
    ) {
        if self.relative {
            let from = from.unwrap_or(at);
            message::relative_pointer(at.x - from.x, at.y - from.y, buttons, out);
        } else {
            message::pointer(at.x as u16, at.y as u16, buttons, out);
        }
    }

    /// The first character of `text` that this server cannot type.
    pub(crate) fn untypable(self, text: &str) -> Option<char> {
        let known = |c: char| super::keysym::of_char(c).and_then(scancode::of_keysym);
        text.chars().find(|c| self.scancodes && known(*c).is_none())
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
    fn what_a_us_keyboard_lacks_is_named() {
        let dialect = Dialect {
            scancodes: true,
            ..Dialect::default()
        };
        assert_eq!(dialect.untypable("Hello, <World>!\n"), None);
        assert_eq!(dialect.untypable("naïve"), Some('ï'));
        assert_eq!(Dialect::default().untypable("naïve"), None);
    }
}
