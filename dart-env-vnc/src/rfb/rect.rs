//! Rectangles of an update (RFC 6143 §7.6.1): the header, the limits, and which encoding takes the
//! rest.
//!
//! A rectangle is one unit of the stream, taken whole or not at all, except in the encodings that
//! come piece by piece (Raw by rows): then [`Rects`] remembers how far it is. Messages
//! are the session's affair, and so are pseudo-rectangles that do not concern pixels or the pointer:
//! those are handed back as [`Progress::Pseudo`].

use dart_core::Size;

use super::{
    encoding::{copy_rect, cursor, cursor::CursorImage, desktop_size, number, raw},
    error::RfbError,
    framebuffer::{Area, Framebuffer},
    limits::{MAX_EMPTY_RECTS, MAX_REPAINTS, MAX_RESIZES},
    pixel::PixelFormat,
    wire::{Stop, Wire, check_limit},
};

/// What a complete update brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Pixels painted, counted as often as they were painted.
    pub painted: u64,
    /// Whether the screen has another size now. Its pixels are black until they are painted.
    pub resized: bool,
    /// Whether the pointer has another shape now.
    pub cursor: bool,
}

/// What one step through the rectangles came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A piece of a rectangle was taken; the rectangle goes on.
    Piece,
    /// A rectangle is complete.
    Done,
    /// The update ends here, whatever count it announced.
    Last,
    /// The header of a rectangle that is none of ours was taken. What follows it on the wire is
    /// the caller's to read, in the same step.
    Pseudo {
        /// The rectangle, unchecked.
        area: Area,
        /// The number of its encoding.
        encoding: i32,
    },
}

/// Counts what one update does, against the limits.
#[derive(Debug, Default)]
struct Tally {
    update: Update,
    empty: u32,
    resizes: u32,
}

impl Tally {
    fn count(&mut self, area: Area, size: Size) -> Result<(), RfbError> {
        self.empty += u32::from(area.pixels() == 0);
        let limit = MAX_EMPTY_RECTS;
        check_limit(
            "number of empty rectangles",
            self.empty.into(),
            limit.into(),
        )?;
        self.update.painted += area.pixels();
        let limit = size.area() as u64 * MAX_REPAINTS;
        check_limit("area painted by one update", self.update.painted, limit)
    }
}

/// A rectangle that comes piece by piece.
#[derive(Clone, Copy, Debug)]
enum Partial {
    /// Raw: so many rows are done.
    Raw { area: Area, done: u16 },
}

/// The screen, the pointer's shape, and what is needed to follow the rectangles that change them.
#[derive(Debug)]
pub(crate) struct Rects {
    pub(crate) screen: Framebuffer,
    pub(crate) cursor: Option<CursorImage>,
    partial: Option<Partial>,
    tally: Tally,
}

impl Rects {
    /// For a screen whose pixels will come in `format`.
    pub(crate) fn new(screen: Framebuffer, format: PixelFormat) -> Result<Self, RfbError> {
        format.check()?;
        Ok(Self {
            screen,
            cursor: None,
            partial: None,
            tally: Tally::default(),
        })
    }

    /// An update begins.
    pub(crate) fn begin(&mut self) {
        self.partial = None;
        self.tally = Tally::default();
    }

    /// An update is complete.
    pub(crate) fn finish(&mut self) -> Update {
        std::mem::take(&mut self.tally).update
    }

    /// Takes one rectangle, or a piece of one.
    pub(crate) fn step(&mut self, wire: &mut Wire<'_>) -> Result<Progress, Stop> {
        match self.partial {
            Some(partial) => self.resume(partial, wire),
            None => self.start(wire),
        }
    }

    fn resume(&mut self, partial: Partial, wire: &mut Wire<'_>) -> Result<Progress, Stop> {
        match partial {
            Partial::Raw { area, done } => {
                let rows = raw::read(wire, area, done)?;
                raw::decode(&rows, &mut self.screen);
                let done = done + rows.count();
                self.partial = (done < area.height).then_some(Partial::Raw { area, done });
            }
        }
        Ok(if self.partial.is_some() {
            Progress::Piece
        } else {
            Progress::Done
        })
    }

    fn start(&mut self, wire: &mut Wire<'_>) -> Result<Progress, Stop> {
        let area = Area::read(wire)?;
        let encoding = wire.i32()?;
        match encoding {
            number::RAW => {
                self.count(area)?;
                self.partial = Some(Partial::Raw { area, done: 0 });
                return Ok(Progress::Piece);
            }
            number::COPY_RECT => {
                // The source is read before anything is counted: a unit is taken whole or not at all.
                area.check_inside(self.screen.size())?;
                let source = copy_rect::read(wire, area, self.screen.size())?;
                self.count(area)?;
                copy_rect::decode(source, area, &mut self.screen);
            }
            number::CURSOR => {
                self.cursor = Some(cursor::decode(&cursor::read(wire, area)?));
                self.tally.update.cursor = true;
            }
            number::DESKTOP_SIZE => self.resize(area)?,
            number::LAST_RECT => return Ok(Progress::Last),
            encoding => return Ok(Progress::Pseudo { area, encoding }),
        }
        Ok(Progress::Done)
    }

    fn count(&mut self, area: Area) -> Result<(), RfbError> {
        area.check_inside(self.screen.size())?;
        self.tally.count(area, self.screen.size())
    }

    /// The screen has the size of `area` now; an equal size is no change.
    pub(crate) fn resize(&mut self, area: Area) -> Result<(), RfbError> {
        self.tally.resizes += 1;
        let limit = MAX_RESIZES;
        check_limit(
            "number of size changes",
            self.tally.resizes.into(),
            limit.into(),
        )?;
        if let Some(screen) = desktop_size::decode(area, &self.screen)? {
            self.screen = screen;
            self.tally.update = Update {
                resized: true,
                cursor: self.tally.update.cursor,
                ..Update::default()
            };
        }
        Ok(())
    }
}
