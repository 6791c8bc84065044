//! Keyboard keys, named as in `pyautogui.KEYBOARD_KEYS`, the names that computer-use models are trained on.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

macro_rules! named_keys {
    ($($variant:ident = $name:literal $(| $alias:literal)*),+ $(,)?) => {
        /// A key that does not print a character. Both sides of a modifier are the same key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each name says what the key is")]
        pub enum NamedKey { $($variant),+ }

        impl NamedKey {
            /// Every named key.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The canonical name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            fn from_name(name: &str) -> Option<Self> {
                match name { $($name $(| $alias)* => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

named_keys! {
    Alt = "alt" | "altleft" | "altright" | "option",
    Backspace = "backspace",
    CapsLock = "capslock",
    Ctrl = "ctrl" | "ctrlleft" | "ctrlright" | "control",
    Delete = "delete" | "del",
    Down = "down" | "arrowdown",
    End = "end",
    Enter = "enter" | "return",
    Escape = "esc" | "escape",
    F1 = "f1", F2 = "f2", F3 = "f3", F4 = "f4", F5 = "f5", F6 = "f6",
    F7 = "f7", F8 = "f8", F9 = "f9", F10 = "f10", F11 = "f11", F12 = "f12",
    Home = "home",
    Insert = "insert",
    Left = "left" | "arrowleft",
    Menu = "apps" | "menu",
    NumLock = "numlock",
    PageDown = "pagedown" | "pgdn",
    PageUp = "pageup" | "pgup",
    Pause = "pause",
    PrintScreen = "printscreen" | "prtscr",
    Right = "right" | "arrowright",
    ScrollLock = "scrolllock",
    Shift = "shift" | "shiftleft" | "shiftright",
    Super = "win" | "winleft" | "winright" | "command" | "cmd" | "super" | "meta",
    Tab = "tab",
    Up = "up" | "arrowup",
}

/// One key of a keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Key {
    /// A key that prints this character (space included).
    Char(char),
    /// Any other key.
    Named(NamedKey),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Char(' ') => f.write_str("space"),
            Self::Char(c) => write!(f, "{c}"),
            Self::Named(key) => f.write_str(key.name()),
        }
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut chars = text.chars();
        if let (Some(c), None) = (chars.next(), chars.next())
            && !c.is_control()
        {
            return Ok(Self::Char(c));
        }
        let lower = text.to_ascii_lowercase();
        if lower == "space" {
            return Ok(Self::Char(' '));
        }
        NamedKey::from_name(&lower).map(Self::Named).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidAction,
                "dart-core",
                "parse key",
                "unknown key",
            )
            .with(
                "key",
                text.chars().take(32).collect::<String>().escape_debug(),
            )
        })
    }
}

impl TryFrom<String> for Key {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.to_string()
    }
}

/// A key that changes the meaning of a click or of another key while held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each name says what the key is")]
pub enum Modifier {
    Alt,
    Ctrl,
    Shift,
    Super,
}

impl Modifier {
    /// Every modifier, in the order in which they are pressed.
    pub const ALL: [Self; 4] = [Self::Ctrl, Self::Alt, Self::Shift, Self::Super];

    /// The key that is held.
    pub const fn key(self) -> Key {
        Key::Named(match self {
            Self::Alt => NamedKey::Alt,
            Self::Ctrl => NamedKey::Ctrl,
            Self::Shift => NamedKey::Shift,
            Self::Super => NamedKey::Super,
        })
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of modifiers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Modifier>", into = "Vec<Modifier>")]
pub struct Modifiers(u8);

impl Modifiers {
    /// No modifier held.
    pub const NONE: Self = Self(0);

    /// Whether no modifier is held.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `modifier` is held.
    pub const fn contains(self, modifier: Modifier) -> bool {
        self.0 & modifier.bit() != 0
    }

    /// The set with `modifier` added.
    pub const fn with(self, modifier: Modifier) -> Self {
        Self(self.0 | modifier.bit())
    }

    /// The held modifiers, in pressing order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Modifier> {
        Modifier::ALL.into_iter().filter(move |m| self.contains(*m))
    }
}

impl fmt::Debug for Modifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl From<Vec<Modifier>> for Modifiers {
    fn from(list: Vec<Modifier>) -> Self {
        list.into_iter().fold(Self::NONE, Self::with)
    }
}

impl From<Modifiers> for Vec<Modifier> {
    fn from(set: Modifiers) -> Self {
        set.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for &named in NamedKey::ALL {
            let key = Key::Named(named);
            assert_eq!(key.to_string().parse::<Key>().unwrap(), key);
        }
        for c in ['a', 'A', ' ', '<', 'é', '你'] {
            assert_eq!(
                Key::Char(c).to_string().parse::<Key>().unwrap(),
                Key::Char(c)
            );
        }
        assert_eq!(
            "ctrlleft".parse::<Key>().unwrap(),
            Key::Named(NamedKey::Ctrl)
        );
        assert!("hyperdrive".parse::<Key>().is_err());
        assert!("\u{7}".parse::<Key>().is_err());
    }
}
