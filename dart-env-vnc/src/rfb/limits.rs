//! Bounds on everything that a server may ask us to allocate or to do.
//!
//! They follow from the history of malicious-server faults in VNC clients (cursor and rectangle
//! sizes, text lengths, rectangles outside the framebuffer): safe Rust turns those into panics and
//! exhaustion at worst, and these bounds into typed errors.

use dart_core::Frame;

use super::framebuffer::Area;

/// Longest side of a framebuffer, in pixels.
pub const MAX_SIDE: u16 = 16_384;

/// Largest framebuffer, in pixels.
pub const MAX_PIXELS: usize = Frame::MAX_PIXELS;

/// Longest desktop name, in bytes.
pub const MAX_NAME_BYTES: u32 = 4 << 10;

/// Longest reason that a server gives for a refusal, in bytes.
pub const MAX_REASON_BYTES: u32 = 4 << 10;

/// Longest clipboard text, in bytes, in either direction. A longer one is not taken.
pub const MAX_CUT_TEXT_BYTES: u32 = 1 << 20;

/// Longest clipboard message, in bytes, that is passed over: copying a long document must not cost
/// the connection. A longer one ends it.
pub const MAX_DROPPED_TEXT_BYTES: u32 = 64 << 20;

/// Longest side of a cursor, in pixels.
pub const MAX_CURSOR_SIDE: u16 = 1024;

/// Most rectangles without area in one update.
pub const MAX_EMPTY_RECTS: u32 = 1024;

/// Most size changes in one update.
pub const MAX_RESIZES: u32 = 16;

/// Most pixels painted by one update, rectangles on rectangles included, as a multiple of the
/// framebuffer. An honest server paints each pixel about once, twice if it copies before it paints.
pub const MAX_REPAINTS: u64 = 8;

/// Most bytes in which a rectangle may be compressed: somewhat more than its worst honest size, a
/// run of one for each pixel of four bytes, and headers.
pub(crate) const fn max_compressed(area: Area) -> u32 {
    (area.pixels() * 6) as u32 + (64 << 10)
}
