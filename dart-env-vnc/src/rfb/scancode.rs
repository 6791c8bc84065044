//! Keysyms to the XT scancodes of a US keyboard, as QEMU's extended key events carry them: keys
//! with the prefix E0 have the high bit set.
//!
//! A server that takes scancodes (QEMU, wayvnc) hands them to its guest, whose own layout makes the
//! characters; the layout is assumed to be US. What such a keyboard has no key for cannot be typed
//! there.

use super::keysym;

/// The first scancode of each row, and the row without Shift.
const ROWS: [(u8, &str); 6] = [
    (0x29, "`"),
    (0x02, "1234567890-="),
    (0x10, "qwertyuiop[]"),
    (0x1e, "asdfghjkl;'"),
    (0x2b, "\\zxcvbnm,./"),
    (0x39, " "),
];

/// Keys that print nothing, by keysym.
const OTHERS: [(u32, u8); 48] = [
    (0xff1b, 0x01), // Escape
    (0xff08, 0x0e), // Backspace
    (0xff09, 0x0f), // Tab
    (0xff0d, 0x1c), // Enter
    (0xffe3, 0x1d), // left Ctrl
    (0xffe1, 0x2a), // left Shift
    (0xffe2, 0x36), // right Shift
    (0xffe9, 0x38), // left Alt
    (0xffe7, 0x38), // left Meta
    (0xffe5, 0x3a), // Caps Lock
    (0xffbe, 0x3b), // F1
    (0xffbf, 0x3c),
    (0xffc0, 0x3d),
    (0xffc1, 0x3e),
    (0xffc2, 0x3f),
    (0xffc3, 0x40),
    (0xffc4, 0x41),
    (0xffc5, 0x42),
    (0xffc6, 0x43),
    (0xffc7, 0x44), // F10
    (0xff7f, 0x45), // Num Lock
    (0xff14, 0x46), // Scroll Lock
    (0xffc8, 0x57), // F11
    (0xffc9, 0x58), // F12
    (0xffe4, 0x9d), // right Ctrl
    (0xff61, 0xb7), // Print Screen
    (0xffea, 0xb8), // right Alt
    (0xffe8, 0xb8), // right Meta
    (0xff13, 0xc6), // Pause
    (0xff50, 0xc7), // Home
    (0xff52, 0xc8), // Up
    (0xff55, 0xc9), // Page Up
    (0xff51, 0xcb), // Left
    (0xff53, 0xcd), // Right
    (0xff57, 0xcf), // End
    (0xff54, 0xd0), // Down
    (0xff56, 0xd1), // Page Down
    (0xff63, 0xd2), // Insert
    (0xffff, 0xd3), // Delete
    (0xffeb, 0xdb), // left Super
    (0xffec, 0xdc), // right Super
    (0xff67, 0xdd), // Menu
    (0xff8d, 0x9c), // Enter of the keypad
    (0xffaa, 0x37), // * of the keypad
    (0xffab, 0x4e), // + of the keypad
    (0xffad, 0x4a), // - of the keypad
    (0xffaf, 0xb5), // / of the keypad
    (0xff0a, 0x1c), // Line Feed
];

/// The scancode of the key that makes `keysym` on a US keyboard, with Shift where it needs it.
pub fn of_keysym(keysym: u32) -> Option<u8> {
    let other = OTHERS.iter().find(|(of, _)| *of == keysym);
    if let Some((_, code)) = other {
        return Some(*code);
    }
    let c = char::from_u32(keysym).filter(char::is_ascii)?;
    let c = keysym::unshifted(c);
    ROWS.iter().find_map(|(first, row)| {
        let at = row.chars().position(|key| key == c)?;
        Some(first + at as u8)
    })
}

#[cfg(test)]
mod tests {
    use dart_core::NamedKey;

    use super::*;

    #[test]
    fn every_named_key_and_printable_character_has_one() {
        for key in NamedKey::ALL {
            assert!(of_keysym(keysym::of_named(*key)).is_some(), "{key:?}");
        }
        for c in ' '..='~' {
            assert!(of_keysym(c.into()).is_some(), "{c}");
        }
        assert_eq!(of_keysym(0xe9), None);
        assert_eq!(of_keysym(0x0100_20ac), None);
    }

    #[test]
    fn codes_are_those_of_a_us_keyboard() {
        for (c, code) in [
            ('a', 0x1e),
            ('A', 0x1e),
            ('@', 0x03),
            (')', 0x0b),
            ('+', 0x0d),
            ('\\', 0x2b),
            ('|', 0x2b),
            ('z', 0x2c),
            ('?', 0x35),
            ('"', 0x28),
            ('~', 0x29),
            (' ', 0x39),
        ] {
            assert_eq!(of_keysym(c.into()), Some(code), "{c}");
        }
    }
}
