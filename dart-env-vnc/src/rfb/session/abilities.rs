//! What a server has told that it can do. Nothing is assumed before it is told.

use super::screens::ScreenArea;

/// What a server has told that it can do, and the state of its locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "a list of independent facts")]
pub struct Abilities {
    /// It answers fences.
    pub fence: bool,
    /// It can send updates without being asked for each.
    pub continuous_updates: bool,
    /// It takes scancodes beside keysyms (QEMU extended key events).
    pub scancodes: bool,
    /// It takes more than eight buttons.
    pub wide_buttons: bool,
    /// It takes pointer motion only relative to where the pointer is (QEMU without a tablet).
    pub relative_pointer: bool,
    /// It exchanges clipboard text as UTF-8.
    pub utf8_clipboard: bool,
    /// Which lock keys are on.
    pub locks: Option<Locks>,
    /// The screens that make up the framebuffer. Empty: its size cannot be asked for.
    pub screens: Vec<ScreenArea>,
}

/// Which lock keys are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each name is a key")]
pub struct Locks {
    pub scroll: bool,
    pub num: bool,
    pub caps: bool,
}

impl Locks {
    pub(super) const fn of_bits(bits: u8) -> Self {
        Self {
            scroll: bits & 1 != 0,
            num: bits & 2 != 0,
            caps: bits & 4 != 0,
        }
    }
}
