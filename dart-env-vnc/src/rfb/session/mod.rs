//! Server messages after the handshake (RFC 6143 §7.6; fences and continuous updates as in
//! rfbproto).
//!
//! | file | what |
//! |---|---|
//! | `abilities` | what the server has told that it can do |
//! | `pseudo` | pseudo-rectangles that concern neither pixels nor the pointer's shape |
//! | `screens` | ExtendedDesktopSize and SetDesktopSize |
//! | `clipboard` | Latin-1 and extended clipboard messages |

mod abilities;
pub(super) mod clipboard;
pub(super) mod pseudo;
pub(super) mod screens;

use std::collections::VecDeque;

use self::clipboard::Cut;
pub use self::{
    abilities::{Abilities, Locks},
    screens::{ScreenArea, SizeReply},
};
use super::{
    error::RfbError,
    framebuffer::Area,
    handshake::ServerInit,
    message,
    message::update_request,
    rect::{Progress, Rects, Update},
    wire::{Stop, Wire, check_limit},
};

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// TLS has to begin: send what is to be sent, then speak TLS on the same connection, then call
    /// [`Core::tls_started`](super::Core::tls_started).
    StartTls {
        /// The server announced that it shows no certificate. Verify nevertheless.
        anonymous: bool,
    },
    /// The handshake is complete.
    Connected(ServerInit),
    /// An update is complete: the framebuffer is consistent now, and only now.
    Updated(Update),
    /// The server rang.
    Bell,
    /// The server's clipboard has this text. Ends of line are line feeds.
    CutText {
        /// The text.
        text: String,
    },
    /// The server's clipboard has changed, and what it has now is not known: no text, or more than
    /// is taken.
    CutTextUnknown,
    /// The server asks for our clipboard, in UTF-8.
    CutTextWanted {
        /// Only whether there is text.
        peek: bool,
    },
    /// The server can do something that it had not told before, or its state changed.
    Learned,
    /// The server answers our fence: it has taken everything that was sent before it.
    Fence {
        /// What our fence carried, at most 64 bytes.
        payload: Vec<u8>,
    },
    /// The server answers our request for another size.
    SizeReply(SizeReply),
    /// The server filled a part of its palette.
    ColourMap {
        /// How many.
        entries: u16,
    },
}

#[derive(Clone, Copy, Debug)]
enum State {
    Message,
    /// Inside a colour map: so many of its entries are still to come.
    Colours {
        next: u16,
        left: u16,
        entries: u16,
    },
    /// Inside an update: rectangles that are not complete yet.
    Rects {
        left: u16,
    },
    /// Inside a clipboard message that is passed over.
    Dropped {
        left: u32,
    },
}

/// A connection after the handshake.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) rects: Rects,
    pub(crate) abilities: Abilities,
    state: State,
    continuous: Continuous,
    /// Events that wait for the end of the update that they are part of.
    notes: VecDeque<Event>,
}

/// Whether updates come without being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continuous {
    /// We do not want it.
    Unwanted,
    /// We want it as soon as the server says that it can.
    Wanted,
    /// It is on for a screen of this size.
    On(dart_core::Size),
}

/// Most events that wait for the end of an update.
const MAX_NOTES: u64 = 256;

/// Longest payload of a fence, in bytes (rfbproto).
const MAX_FENCE_BYTES: u64 = 64;

impl Session {
    /// Starts by asking for the whole screen.
    pub(crate) fn new(rects: Rects, continuous: bool, out: &mut Vec<u8>) -> Self {
        update_request(false, Area::all(rects.screen.size()), out);
        Self {
            rects,
            abilities: Abilities::default(),
            state: State::Message,
            continuous: if continuous {
                Continuous::Wanted
            } else {
                Continuous::Unwanted
            },
            notes: VecDeque::new(),
        }
    }

    /// Notes what the server can do, and that it changed.
    fn learn(&mut self, now: Abilities) {
        if now != self.abilities {
            self.abilities = now;
            if !self.notes.contains(&Event::Learned) {
                self.notes.push_back(Event::Learned);
            }
        }
    }

    /// Takes one unit of the stream; requests that follow from it are appended to `out`.
    pub(crate) fn step(
        &mut self,
        wire: &mut Wire<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Stop> {
        match self.state {
            State::Message if !self.notes.is_empty() => Ok(self.notes.pop_front()),
            State::Message => self.read_message(wire, out),
            State::Colours {
                next,
                left,
                entries,
            } => self.read_colour(wire, next, left, entries),
            State::Rects { left } => self.read_rect(wire, left, out),
            State::Dropped { left } => self.pass_over(wire, left),
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
                self.rects.begin();
                Ok(self.next_rect(left, out))
            }
            1 => {
                wire.take(1)?;
                let (next, left) = (wire.u16()?, wire.u16()?);
                self.state = State::Colours {
                    next,
                    left,
                    entries: left,
                };
                Ok(None)
            }
            2 => Ok(Some(Event::Bell)),
            3 => {
                wire.take(3)?;
                let cut = clipboard::read(wire)?;
                Ok(self.take_cut(cut, out))
            }
            150 => {
                self.end_of_continuous_updates(out);
                Ok(None)
            }
            248 => self.read_fence(wire, out),
            other => Err(unknown("message type", other.into())),
        }
    }

    /// Takes one entry of a colour map.
    fn read_colour(
        &mut self,
        wire: &mut Wire<'_>,
        next: u16,
        left: u16,
        entries: u16,
    ) -> Result<Option<Event>, Stop> {
        let Some(left) = left.checked_sub(1) else {
            self.state = State::Message;
            return Ok(Some(Event::ColourMap { entries }));
        };
        let colour = [wire.u16()?, wire.u16()?, wire.u16()?];
        self.rects.set_colour(next, colour);
        self.state = State::Colours {
            next: next.wrapping_add(1),
            left,
            entries,
        };
        Ok(None)
    }

    /// Passes over what has arrived of a clipboard message.
    fn pass_over(&mut self, wire: &mut Wire<'_>, left: u32) -> Result<Option<Event>, Stop> {
        let arrived = u32::try_from(wire.left()).unwrap_or(u32::MAX).min(left);
        if arrived == 0 {
            return Err(Stop::Incomplete);
        }
        wire.take(arrived as usize)?;
        let left = left - arrived;
        if left > 0 {
            self.state = State::Dropped { left };
            return Ok(None);
        }
        self.state = State::Message;
        Ok(Some(Event::CutTextUnknown))
    }

    fn take_cut(&mut self, cut: Cut, out: &mut Vec<u8>) -> Option<Event> {
        match cut {
            Cut::Text(text) => return Some(Event::CutText { text }),
            Cut::Unknown => return Some(Event::CutTextUnknown),
            Cut::Long(left) => self.state = State::Dropped { left },
            Cut::Requested => return Some(Event::CutTextWanted { peek: false }),
            Cut::Peeked => return Some(Event::CutTextWanted { peek: true }),
            Cut::Caps => {
                clipboard::caps(out);
                self.learn(Abilities {
                    utf8_clipboard: true,
                    ..self.abilities.clone()
                });
            }
            Cut::Announced => clipboard::request(out),
            Cut::Other => {}
        }
        None
    }

    /// The server can send updates unasked; or it has stopped to, and has to be asked again.
    fn end_of_continuous_updates(&mut self, out: &mut Vec<u8>) {
        if matches!(self.continuous, Continuous::On(_)) {
            self.continuous = Continuous::Unwanted;
            update_request(true, Area::all(self.rects.screen.size()), out);
        }
        self.learn(Abilities {
            continuous_updates: true,
            ..self.abilities.clone()
        });
        self.continue_updates(out);
    }

    /// Switches continuous updates on where they are wanted, and again for another size.
    fn continue_updates(&mut self, out: &mut Vec<u8>) {
        let size = self.rects.screen.size();
        let on = match self.continuous {
            Continuous::Unwanted => false,
            Continuous::Wanted => self.abilities.continuous_updates,
            Continuous::On(area) => area != size,
        };
        if on {
            message::continuous_updates(true, Area::all(size), out);
            self.continuous = Continuous::On(size);
        }
    }

    /// Answers a fence of the server, or takes its answer to ours.
    fn read_fence(
        &mut self,
        wire: &mut Wire<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Stop> {
        wire.take(3)?;
        let (flags, length) = (wire.u32()?, wire.u8()?);
        check_limit("fence", length.into(), MAX_FENCE_BYTES)?;
        let payload = wire.take(length.into())?.to_vec();
        self.learn(Abilities {
            fence: true,
            ..self.abilities.clone()
        });
        if flags & message::FENCE_REQUEST == 0 {
            return Ok(Some(Event::Fence { payload }));
        }
        // Everything is done in the order in which it comes, so each kind of fence is kept.
        message::fence(flags & message::FENCE_KINDS, &payload, out);
        Ok(None)
    }

    fn read_rect(
        &mut self,
        wire: &mut Wire<'_>,
        left: u16,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Stop> {
        match self.rects.step(wire)? {
            Progress::Piece => Ok(None),
            Progress::Done => Ok(self.next_rect(left - 1, out)),
            Progress::Last => Ok(Some(self.end_update(out))),
            Progress::Pseudo { area, encoding } => {
                self.read_pseudo(area, encoding, wire)?;
                let notes = self.notes.len() as u64;
                check_limit("number of announcements", notes, MAX_NOTES)?;
                Ok(self.next_rect(left - 1, out))
            }
        }
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
        let update = self.rects.finish();
        let all = Area::all(self.rects.screen.size());
        let complete = update.painted >= all.pixels();
        let incremental = !update.resized || complete;
        // Updates that come unasked are not asked for, but a new screen is.
        if !(incremental && matches!(self.continuous, Continuous::On(_))) {
            update_request(incremental, all, out);
        }
        self.continue_updates(out);
        self.state = State::Message;
        Event::Updated(update)
    }
}

const fn unknown(what: &'static str, value: i64) -> Stop {
    Stop::Fault(RfbError::Unknown { what, value })
}
