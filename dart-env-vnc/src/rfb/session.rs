//! Server messages after the handshake (RFC 6143 §7.6).

use dart_core::Size;

use super::{
    encoding::{copy_rect, cursor, cursor::CursorImage, desktop_size, raw},
    error::RfbError,
    framebuffer::{Area, Framebuffer},
    handshake::ServerInit,
    limits::{MAX_CUT_TEXT_BYTES, MAX_EMPTY_RECTS, MAX_REPAINTS, MAX_RESIZES},
    message::{COPY_RECT, CURSOR, DESKTOP_SIZE, LAST_RECT, RAW, update_request},
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

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete.
    Connected(ServerInit),
    /// An update is complete: the framebuffer is consistent now, and only now.
    Updated(Update),
    /// The server rang.
    Bell,
    /// The server's clipboard changed; the text is dropped.
    CutText {
        /// Its length in bytes.
        bytes: u32,
    },
    /// The server sent colours for a palette that we do not use.
    ColourMap {
        /// How many.
        entries: u16,
    },
}

#[derive(Clone, Debug)]
enum State {
    Message,
    Skip {
        left: usize,
        then: Event,
    },
    /// Between rectangles of an update.
    Rects {
        left: u16,
    },
    /// Inside a raw rectangle.
    Raw {
        area: Area,
        done: u16,
        left: u16,
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

/// A connection after the handshake.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) screen: Framebuffer,
    pub(crate) cursor: Option<CursorImage>,
    state: State,
    tally: Tally,
}

impl Session {
    /// Starts by asking for the whole screen.
    pub(crate) fn new(screen: Framebuffer, out: &mut Vec<u8>) -> Self {
        update_request(false, Area::all(screen.size()), out);
        Self {
            screen,
            cursor: None,
            state: State::Message,
            tally: Tally::default(),
        }
    }

    /// Takes one unit of the stream; requests that follow from it are appended to `out`.
    pub(crate) fn step(
        &mut self,
        wire: &mut Wire<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Stop> {
        match self.state.clone() {
            State::Message => self.read_message(wire, out),
            State::Skip { left, then } => self.skip(wire, left, then),
            State::Rects { left } => self.read_rect(wire, left, out),
            State::Raw { area, done, left } => {
                let rows = raw::read(wire, area, done)?;
                raw::decode(&rows, &mut self.screen);
                let done = done + rows.count();
                if done < area.height {
                    self.state = State::Raw { area, done, left };
                    return Ok(None);
                }
                Ok(self.next_rect(left, out))
            }
        }
    }

    fn read_message(
        &mut self,
        wire: &mut Wire<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Stop> {
        match wire.u8()? {
            0 => {
                wire.take(1)?;
                let left = wire.u16()?;
                self.tally = Tally::default();
                Ok(self.next_rect(left, out))
            }
            1 => {
                wire.take(3)?;
                let entries = wire.u16()?;
                self.state = State::Skip {
                    left: usize::from(entries) * 6,
                    then: Event::ColourMap { entries },
                };
                Ok(None)
            }
            2 => Ok(Some(Event::Bell)),
            3 => {
                wire.take(3)?;
                let bytes = wire.u32()?;
                check_limit("clipboard text", bytes.into(), MAX_CUT_TEXT_BYTES.into())?;
                self.state = State::Skip {
                    left: bytes as usize,
                    then: Event::CutText { bytes },
                };
                Ok(None)
            }
            other => Err(unknown("message type", other.into())),
        }
    }

    /// Drops bytes as they arrive, without gathering them.
    fn skip(
        &mut self,
        wire: &mut Wire<'_>,
        left: usize,
        then: Event,
    ) -> Result<Option<Event>, Stop> {
        if left == 0 {
            self.state = State::Message;
            return Ok(Some(then));
        }
        let count = left.min(wire.left());
        if count == 0 {
            return Err(Stop::Incomplete);
        }
        wire.take(count)?;
        self.state = State::Skip {
            left: left - count,
            then,
        };
        Ok(None)
    }

    fn read_rect(
        &mut self,
        wire: &mut Wire<'_>,
        left: u16,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Stop> {
        let area = Area::read(wire)?;
        let encoding = wire.i32()?;
        let left = left - 1;
        match encoding {
            RAW => {
                self.count(area)?;
                self.state = State::Raw {
                    area,
                    done: 0,
                    left,
                };
                return Ok(None);
            }
            COPY_RECT => {
                // The source is read before anything is counted: a unit is taken whole or not at all.
                area.check_inside(self.screen.size())?;
                let source = copy_rect::read(wire, area, self.screen.size())?;
                self.count(area)?;
                copy_rect::decode(source, area, &mut self.screen);
            }
            CURSOR => {
                self.cursor = Some(cursor::decode(&cursor::read(wire, area)?));
                self.tally.update.cursor = true;
            }
            DESKTOP_SIZE => self.resize(area)?,
            LAST_RECT => return Ok(Some(self.end_update(out))),
            other => return Err(unknown("encoding", other.into())),
        }
        Ok(self.next_rect(left, out))
    }

    fn count(&mut self, area: Area) -> Result<(), RfbError> {
        area.check_inside(self.screen.size())?;
        self.tally.count(area, self.screen.size())
    }

    fn resize(&mut self, area: Area) -> Result<(), RfbError> {
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

    fn next_rect(&mut self, left: u16, out: &mut Vec<u8>) -> Option<Event> {
        if left == 0 {
            return Some(self.end_update(out));
        }
        self.state = State::Rects { left };
        None
    }

    /// An incremental request is always outstanding. Asking for everything is right only for a
    /// new screen: a server that answers each full request with pseudo-rectangles alone would
    /// otherwise be asked for ever (TigerVNC with ExtendedDesktopSize does that).
    fn end_update(&mut self, out: &mut Vec<u8>) -> Event {
        let update = std::mem::take(&mut self.tally).update;
        let all = Area::all(self.screen.size());
        let complete = update.painted >= all.pixels();
        update_request(!update.resized || complete, all, out);
        self.state = State::Message;
        Event::Updated(update)
    }
}

const fn unknown(what: &'static str, value: i64) -> Stop {
    Stop::Fault(RfbError::Unknown { what, value })
}
