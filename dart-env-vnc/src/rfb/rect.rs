//! Rectangles of an update (RFC 6143 §7.6.1): the header, the limits, and which encoding takes the
//! rest.
//!
//! A rectangle is one unit of the stream, taken whole or not at all, except in the encodings that
//! come piece by piece (Raw by rows, Hextile and TRLE by tiles): then [`Rects`] remembers how far
//! it is. Every encoding that can be decoded is, also one that was not offered: servers take that
//! liberty. Messages are the session's affair, and so are pseudo-rectangles that do not concern
//! pixels or the pointer: those are handed back as [`Progress::Pseudo`].

use dart_core::Size;

use super::{
    colour::Colours,
    encoding::{
        Inflater, alpha_cursor, copy_rect, cursor, cursor::CursorImage, desktop_size, hextile,
        number, raw, rre, tight, tile::Flavour, trle, x_cursor, zlib, zrle,
    },
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
    /// Pixels written so far: rectangles, and those that lie on them.
    work: u64,
    /// The largest screen that there was, in pixels.
    largest: u64,
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
        self.spend(area.pixels(), size)
    }

    /// Counts work on a screen of `size`. What was done before the screen got another size counts
    /// on, so that many sizes are not many budgets.
    fn spend(&mut self, pixels: u64, size: Size) -> Result<(), RfbError> {
        self.largest = self.largest.max(size.area() as u64);
        self.work += pixels;
        let limit = self.largest * MAX_REPAINTS;
        check_limit("area painted by one update", self.work, limit)
    }
}

/// A rectangle that comes piece by piece, and how far it is.
#[derive(Clone, Copy, Debug)]
enum Partial {
    Raw {
        area: Area,
        rows: u16,
    },
    Hextile {
        area: Area,
        tiles: u32,
        colours: hextile::Colours,
    },
    Trle {
        area: Area,
        tiles: u32,
    },
}

/// What goes on from rectangle to rectangle.
#[derive(Debug)]
struct Streams {
    zlib: Inflater,
    tight: tight::Streams,
    zrle: zrle::Zrle,
}

/// The screen, the pointer's shape, and what is needed to follow the rectangles that change them.
#[derive(Debug)]
pub(crate) struct Rects {
    pub(crate) screen: Framebuffer,
    pub(crate) cursor: Option<CursorImage>,
    colours: Colours,
    streams: Streams,
    partial: Option<Partial>,
    tally: Tally,
    /// The encodings that have painted, each once.
    seen: Vec<i32>,
}

impl Rects {
    /// For a screen whose pixels will come in `format`.
    pub(crate) fn new(screen: Framebuffer, format: PixelFormat) -> Result<Self, RfbError> {
        format.check()?;
        Ok(Self {
            screen,
            cursor: None,
            colours: Colours::new(&format),
            streams: Streams {
                zlib: Inflater::default(),
                tight: tight::Streams::default(),
                zrle: zrle::Zrle::new(),
            },
            partial: None,
            tally: Tally::default(),
            seen: Vec::new(),
        })
    }

    /// The colour map gets an entry: red, green, blue of 16 bits each.
    pub(crate) fn set_colour(&mut self, index: u16, colour: [u16; 3]) {
        self.colours.set(index, colour);
    }

    /// The encodings that have painted so far.
    pub(crate) fn encodings_seen(&self) -> &[i32] {
        &self.seen
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
        self.partial = match partial {
            Partial::Raw { area, rows } => self.read_rows(wire, area, rows)?,
            Partial::Hextile {
                area,
                tiles,
                colours,
            } => self.read_hextile(wire, (area, tiles), colours)?,
            Partial::Trle { area, tiles } => self.read_trle(wire, area, tiles)?,
        };
        Ok(if self.partial.is_some() {
            Progress::Piece
        } else {
            Progress::Done
        })
    }

    fn read_rows(
        &mut self,
        wire: &mut Wire<'_>,
        area: Area,
        rows: u16,
    ) -> Result<Option<Partial>, Stop> {
        let layout = &self.colours.pixel;
        let read = raw::read(wire, area, rows, layout)?;
        raw::decode(&read, layout, &mut self.screen);
        let rows = rows + read.count();
        Ok((rows < area.height).then_some(Partial::Raw { area, rows }))
    }

    fn read_hextile(
        &mut self,
        wire: &mut Wire<'_>,
        (area, tiles): (Area, u32),
        before: hextile::Colours,
    ) -> Result<Option<Partial>, Stop> {
        let Some(part) = area.tile(hextile::SIDE, tiles) else {
            return Ok(None);
        };
        let layout = &self.colours.pixel;
        let tile = hextile::read(wire, part, before, layout)?;
        let (colours, painted) = hextile::decode(&tile, part, before, layout, &mut self.screen)?;
        self.tally.spend(painted, self.screen.size())?;
        let tiles = tiles + 1;
        Ok(area.tile(hextile::SIDE, tiles).map(|_| Partial::Hextile {
            area,
            tiles,
            colours,
        }))
    }

    fn read_trle(
        &mut self,
        wire: &mut Wire<'_>,
        area: Area,
        tiles: u32,
    ) -> Result<Option<Partial>, Stop> {
        let Some(part) = area.tile(trle::SIDE, tiles) else {
            return Ok(None);
        };
        let tile = self.streams.zrle.tile();
        let content = trle::read(wire, part, &self.colours.compact, tile)?;
        trle::decode(content, part, tile, &mut self.screen);
        let tiles = tiles + 1;
        let next = area.tile(trle::SIDE, tiles);
        Ok(next.map(|_| Partial::Trle { area, tiles }))
    }

    fn start(&mut self, wire: &mut Wire<'_>) -> Result<Progress, Stop> {
        let area = Area::read(wire)?;
        let encoding = wire.i32()?;
        let partial = match encoding {
            number::RAW => Partial::Raw { area, rows: 0 },
            number::HEXTILE => Partial::Hextile {
                area,
                tiles: 0,
                colours: hextile::Colours::default(),
            },
            number::TRLE => {
                self.streams.zrle.tile().forget_palette();
                Partial::Trle { area, tiles: 0 }
            }
            _ => return self.read_whole(wire, area, encoding),
        };
        self.count(area, encoding)?;
        self.partial = Some(partial);
        Ok(Progress::Piece)
    }

    /// Takes a rectangle that is one unit. It is read before anything is counted or changed.
    fn read_whole(
        &mut self,
        wire: &mut Wire<'_>,
        area: Area,
        encoding: i32,
    ) -> Result<Progress, Stop> {
        let layout = &self.colours.pixel;
        let cursor = match encoding {
            number::CURSOR => cursor::decode(&cursor::read(wire, area, layout)?, layout),
            number::X_CURSOR => x_cursor::decode(&x_cursor::read(wire, area)?),
            number::CURSOR_WITH_ALPHA => alpha_cursor::decode(&alpha_cursor::read(wire, area)?),
            number::DESKTOP_SIZE => {
                self.resize(area)?;
                return Ok(Progress::Done);
            }
            number::LAST_RECT => return Ok(Progress::Last),
            number::COPY_RECT | number::RRE | number::CORRE => {
                return self.read_plain(wire, area, encoding);
            }
            number::ZLIB | number::TIGHT | number::TIGHT_PNG | number::ZRLE | number::ZYWRLE => {
                return self.read_compressed(wire, area, encoding);
            }
            encoding => return Ok(Progress::Pseudo { area, encoding }),
        };
        self.cursor = Some(cursor);
        self.tally.update.cursor = true;
        Ok(Progress::Done)
    }

    fn read_plain(
        &mut self,
        wire: &mut Wire<'_>,
        area: Area,
        encoding: i32,
    ) -> Result<Progress, Stop> {
        area.check_inside(self.screen.size())?;
        let variant = match encoding {
            number::RRE => rre::Variant::Rre,
            number::CORRE => rre::Variant::Corre,
            _ => {
                let source = copy_rect::read(wire, area, self.screen.size())?;
                self.count(area, encoding)?;
                copy_rect::decode(source, area, &mut self.screen);
                return Ok(Progress::Done);
            }
        };
        let read = rre::read(wire, area, variant, &self.colours.pixel)?;
        self.count(area, encoding)?;
        let painted = rre::decode(&read, area, &self.colours.pixel, &mut self.screen)?;
        self.tally.spend(painted, self.screen.size())?;
        Ok(Progress::Done)
    }

    fn read_compressed(
        &mut self,
        wire: &mut Wire<'_>,
        area: Area,
        encoding: i32,
    ) -> Result<Progress, Stop> {
        area.check_inside(self.screen.size())?;
        match encoding {
            number::ZLIB => {
                let data = zlib::read(wire, area)?;
                self.count(area, encoding)?;
                let (layout, stream) = (&self.colours.pixel, &mut self.streams.zlib);
                zlib::decode(data, area, layout, stream, &mut self.screen)?;
            }
            number::TIGHT | number::TIGHT_PNG => {
                let variant = if encoding == number::TIGHT {
                    tight::Variant::Tight
                } else {
                    tight::Variant::Png
                };
                let read = tight::read(wire, area, variant, &self.colours)?;
                self.count(area, encoding)?;
                let streams = &mut self.streams.tight;
                streams.decode(&read, area, &self.colours, &mut self.screen)?;
            }
            _ => {
                let data = zrle::read(wire, area)?;
                self.count(area, encoding)?;
                // The wavelet is not defined for pixels of a byte.
                let wavelet = encoding == number::ZYWRLE && self.colours.pixel.bytes() > 1;
                let flavour = if wavelet {
                    Flavour::Zywrle
                } else {
                    Flavour::Zrle
                };
                let kind = (&self.colours.compact, flavour);
                let zrle = &mut self.streams.zrle;
                zrle.decode(data, area, kind, &mut self.screen)?;
            }
        }
        Ok(Progress::Done)
    }

    fn count(&mut self, area: Area, encoding: i32) -> Result<(), RfbError> {
        area.check_inside(self.screen.size())?;
        self.tally.count(area, self.screen.size())?;
        self.screen.touch(area);
        if !self.seen.contains(&encoding) {
            self.seen.push(encoding);
        }
        Ok(())
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
