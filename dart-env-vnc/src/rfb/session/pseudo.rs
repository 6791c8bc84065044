//! Pseudo-rectangles that concern neither pixels nor the pointer's shape: they announce what the
//! server can do, or tell its state.

use super::{
    super::{
        framebuffer::Area,
        wire::{Stop, Wire},
    },
    Event, Session,
    abilities::Locks,
    screens, unknown,
};

/// The pointer is moved relatively, or absolutely again (QEMU).
const POINTER_MOTION: i32 = -257;
/// Scancodes are taken (QEMU).
const EXTENDED_KEY: i32 = -258;
/// The lock keys' lights.
const LED_STATE: i32 = -261;
/// The size of the framebuffer, and the screens in it.
const EXTENDED_DESKTOP_SIZE: i32 = -308;
/// Fences are answered, and may be sent.
const FENCE: i32 = -312;
/// Updates may come unasked; only offered, never a rectangle.
const CONTINUOUS_UPDATES: i32 = -313;
/// More than eight buttons are taken.
const EXTENDED_BUTTONS: i32 = -316;
/// Clipboard text in UTF-8; only offered, never a rectangle.
const EXTENDED_CLIPBOARD: i32 = 0xc0a1_e5ce_u32 as i32;

/// What the client offers beside the encodings of pixels and pointer.
pub(crate) const OFFERED: [i32; 8] = [
    EXTENDED_DESKTOP_SIZE,
    FENCE,
    CONTINUOUS_UPDATES,
    LED_STATE,
    EXTENDED_KEY,
    POINTER_MOTION,
    EXTENDED_BUTTONS,
    EXTENDED_CLIPBOARD,
];

impl Session {
    /// Takes what follows the header of a pseudo-rectangle.
    pub(super) fn read_pseudo(
        &mut self,
        area: Area,
        encoding: i32,
        wire: &mut Wire<'_>,
    ) -> Result<(), Stop> {
        let mut now = self.abilities.clone();
        match encoding {
            POINTER_MOTION => now.relative_pointer = area.x == 0,
            EXTENDED_KEY => now.scancodes = true,
            LED_STATE => now.locks = Some(Locks::of_bits(wire.u8()?)),
            EXTENDED_BUTTONS => now.wide_buttons = true,
            EXTENDED_DESKTOP_SIZE => {
                let layout = screens::read(wire, area)?;
                if let Some(size) = layout.size {
                    self.rects.resize(size)?;
                    now.screens = layout.screens;
                }
                self.notes.extend(layout.reply.map(Event::SizeReply));
            }
            other => return Err(unknown("encoding", other.into())),
        }
        self.learn(now);
        Ok(())
    }
}
