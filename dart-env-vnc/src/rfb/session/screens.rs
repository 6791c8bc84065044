//! ExtendedDesktopSize (rfbproto, pseudo-encoding -308) and its request, SetDesktopSize.
//!
//! The rectangle says why it comes (x), how a request went (y), and the layout:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | number of screens |
//! | 3 | padding |
//! | 16 each | id, x, y, width, height, flags |

use super::super::{
    framebuffer::Area,
    wire::{Stop, Wire},
};

/// One screen of a framebuffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScreenArea {
    /// Its number, chosen by the server.
    pub id: u32,
    /// Where it lies. Not checked: it is only handed back to the server.
    pub area: Area,
    /// Unused by the protocol so far.
    pub flags: u32,
}

/// How a server answers a request for another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeReply {
    /// It has that size.
    Done,
    /// Clients may not change it (1).
    Prohibited,
    /// It has no room for it (2).
    NoResources,
    /// The layout makes no sense (3).
    Invalid,
    /// It was passed on to whoever decides (4): the size changes later, or never.
    Forwarded,
    /// A number that is not defined.
    Unknown(u16),
}

impl SizeReply {
    const fn of(status: u16) -> Self {
        match status {
            0 => Self::Done,
            1 => Self::Prohibited,
            2 => Self::NoResources,
            3 => Self::Invalid,
            4 => Self::Forwarded,
            other => Self::Unknown(other),
        }
    }
}

/// What one rectangle says.
#[derive(Debug)]
pub(super) struct Layout {
    /// How our request went, if it answers one.
    pub(super) reply: Option<SizeReply>,
    /// The framebuffer's size; not if a request was refused, because then it is anything.
    pub(super) size: Option<Area>,
    pub(super) screens: Vec<ScreenArea>,
}

/// The request of this client, among the reasons for the rectangle.
const OURS: u16 = 1;

/// Reads what follows the header `area`.
pub(super) fn read(wire: &mut Wire<'_>, area: Area) -> Result<Layout, Stop> {
    let count = wire.u8()?;
    wire.take(3)?;
    let mut screens = Vec::with_capacity(count.into());
    for _ in 0..count {
        screens.push(ScreenArea {
            id: wire.u32()?,
            area: Area::read(wire)?,
            flags: wire.u32()?,
        });
    }
    let reply = (area.x == OURS).then_some(SizeReply::of(area.y));
    let valid = reply.is_none_or(|reply| reply == SizeReply::Done);
    Ok(Layout {
        reply,
        size: valid.then_some(Area { x: 0, y: 0, ..area }),
        screens,
    })
}

/// Asks for a framebuffer of `width` x `height` in one screen, which keeps the name of `first`.
pub(crate) fn set_desktop_size(
    (width, height): (u16, u16),
    first: Option<ScreenArea>,
    out: &mut Vec<u8>,
) {
    let (id, flags) = first.map_or((0, 0), |screen| (screen.id, screen.flags));
    out.extend([251, 0]);
    for side in [width, height] {
        out.extend(side.to_be_bytes());
    }
    out.extend([1, 0]);
    out.extend(id.to_be_bytes());
    for field in [0, 0, width, height] {
        out.extend(field.to_be_bytes());
    }
    out.extend(flags.to_be_bytes());
}
