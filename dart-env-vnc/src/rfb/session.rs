//! Server messages after the handshake (RFC 6143 §7.6).

use super::{
    error::RfbError,
    framebuffer::Area,
    handshake::ServerInit,
    limits::MAX_CUT_TEXT_BYTES,
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
    /// Inside an update: rectangles that are not complete yet.
    Rects {
        left: u16,
    },
}

/// A connection after the handshake.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) rects: Rects,
    state: State,
}

impl Session {
    /// Starts by asking for the whole screen.
    pub(crate) fn new(rects: Rects, out: &mut Vec<u8>) -> Self {
        update_request(false, Area::all(rects.screen.size()), out);
        Self {
            rects,
            state: State::Message,
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
        match self.rects.step(wire)? {
            Progress::Piece => Ok(None),
            Progress::Done => Ok(self.next_rect(left - 1, out)),
            Progress::Last => Ok(Some(self.end_update(out))),
            Progress::Pseudo { encoding, .. } => Err(unknown("encoding", encoding.into())),
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
        update_request(!update.resized || complete, all, out);
        self.state = State::Message;
        Event::Updated(update)
    }
}

const fn unknown(what: &'static str, value: i64) -> Stop {
    Stop::Fault(RfbError::Unknown { what, value })
}
