//! Keys to X11 keysyms (X11 protocol, appendix A; RFC 6143 §7.5.4).
//!
//! Latin-1 characters are their own keysyms; all others are `0x01000000` + code point. A shifted
//! character is typed with Shift held, as on a US keyboard: servers that map keysyms to scancodes
//! (QEMU) would otherwise drop the shift, and servers that do not (TigerVNC) take both.

use dart_core::{Key, NamedKey};

/// The left Shift key.
pub const SHIFT: u32 = 0xffe1;

/// Every modifier key, both sides; what is released when a connection is taken over.
pub const MODIFIERS: [u32; 8] = [
    SHIFT, 0xffe2, 0xffe3, 0xffe4, 0xffe9, 0xffea, 0xffeb, 0xffec,
];

/// The keysym of a key, or `None` for a control character that no key prints.
pub const fn of_key(key: Key) -> Option<u32> {
    match key {
        Key::Char(c) => of_char(c),
        Key::Named(named) => Some(of_named(named)),
    }
}

/// The keysym of a character; line feed, tab and backspace are the keys that make them.
pub const fn of_char(c: char) -> Option<u32> {
    match c {
        '\n' | '\r' => Some(of_named(NamedKey::Enter)),
        '\t' => Some(of_named(NamedKey::Tab)),
        '\u{8}' => Some(of_named(NamedKey::Backspace)),
        ' '..='~' | '\u{a0}'..='\u{ff}' => Some(c as u32),
        '\0'..='\u{9f}' => None,
        _ => Some(0x0100_0000 + c as u32),
    }
}

/// The keysym of a named key.
pub const fn of_named(key: NamedKey) -> u32 {
    match key {
        NamedKey::Alt => 0xffe9,
        NamedKey::Backspace => 0xff08,
        NamedKey::CapsLock => 0xffe5,
        NamedKey::Ctrl => 0xffe3,
        NamedKey::Delete => 0xffff,
        NamedKey::Down => 0xff54,
        NamedKey::End => 0xff57,
        NamedKey::Enter => 0xff0d,
        NamedKey::Escape => 0xff1b,
        NamedKey::F1 => 0xffbe,
        NamedKey::F2 => 0xffbf,
        NamedKey::F3 => 0xffc0,
        NamedKey::F4 => 0xffc1,
        NamedKey::F5 => 0xffc2,
        NamedKey::F6 => 0xffc3,
        NamedKey::F7 => 0xffc4,
        NamedKey::F8 => 0xffc5,
        NamedKey::F9 => 0xffc6,
        NamedKey::F10 => 0xffc7,
        NamedKey::F11 => 0xffc8,
        NamedKey::F12 => 0xffc9,
        NamedKey::Home => 0xff50,
        NamedKey::Insert => 0xff63,
        NamedKey::Left => 0xff51,
        NamedKey::Menu => 0xff67,
        NamedKey::NumLock => 0xff7f,
        NamedKey::PageDown => 0xff56,
        NamedKey::PageUp => 0xff55,
        NamedKey::Pause => 0xff13,
        NamedKey::PrintScreen => 0xff61,
        NamedKey::Right => 0xff53,
        NamedKey::ScrollLock => 0xff14,
        NamedKey::Shift => SHIFT,
        NamedKey::Super => 0xffeb,
        NamedKey::Tab => 0xff09,
        NamedKey::Up => 0xff52,
    }
}

const PLAIN: &str = "`1234567890-=[]\\;',./";
const SHIFTED: &str = "~!@#$%^&*()_+{}|:\"<>?";

/// Whether a US keyboard needs Shift for `c`.
pub fn needs_shift(c: char) -> bool {
    c.is_ascii_uppercase() || SHIFTED.contains(c)
}

/// What the key of `c` prints with Shift held, on a US keyboard.
pub fn shifted(c: char) -> char {
    let at = PLAIN
        .find(c)
        .and_then(|at| SHIFTED.get(at..)?.chars().next());
    at.unwrap_or_else(|| c.to_ascii_uppercase())
}

/// The character of the key that prints `c`, without Shift, on a US keyboard.
pub fn unshifted(c: char) -> char {
    let at = SHIFTED
        .find(c)
        .and_then(|at| PLAIN.get(at..)?.chars().next());
    at.unwrap_or_else(|| c.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_have_the_keysyms_of_x11() {
        assert_eq!(of_char('a'), Some(0x61));
        assert_eq!(of_char('<'), Some(0x3c));
        assert_eq!(of_char('é'), Some(0xe9));
        assert_eq!(of_char('€'), Some(0x0100_20ac));
        assert_eq!(of_char('你'), Some(0x0100_4f60));
        assert_eq!(of_char('😀'), Some(0x0101_f600));
        assert_eq!(of_char('\n'), Some(0xff0d));
        assert_eq!(of_char('\u{7}'), None);
        assert_eq!(of_char('\u{80}'), None);
    }

    #[test]
    fn named_keys_are_distinct() {
        let mut all = NamedKey::ALL
            .iter()
            .map(|key| of_named(*key))
            .collect::<Vec<_>>();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), NamedKey::ALL.len());
    }

    #[test]
    fn shift_is_that_of_a_us_keyboard() {
        assert_eq!(PLAIN.len(), SHIFTED.len());
        for (plain, other) in PLAIN.chars().zip(SHIFTED.chars()) {
            assert_eq!((shifted(plain), unshifted(other)), (other, plain));
            assert!(needs_shift(other) && !needs_shift(plain));
        }
        assert_eq!(shifted('a'), 'A');
        assert_eq!(shifted('é'), 'é');
        assert!(needs_shift('Q') && !needs_shift('q') && !needs_shift(' '));
    }
}
