//! [`Core`]: the protocol without I/O. Bytes in, events and bytes to send out.

use bytes::{Buf, BytesMut};

use super::{
    encoding::{choice::Offer, cursor::CursorImage},
    error::RfbError,
    framebuffer::Framebuffer,
    handshake::{Handshake, Reached},
    security::{Login, Password},
    session::{Abilities, Event, Session},
    wire::{Stop, Wire},
};

#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    Running(Box<Session>),
    Failed(RfbError),
}

/// An RFB client without I/O.
///
/// Put what the server sends into [`input`](Self::input), call [`next_event`](Self::next_event)
/// until it has none, send what [`take_output`](Self::take_output) gives. How the bytes are cut
/// into pieces makes no difference, no byte makes it panic, and it never holds more than one unit
/// of the stream: a rectangle that is compressed, never one of plain pixels, which are consumed row
/// by row.
///
/// ```
/// use dart_env_vnc::rfb::Core;
///
/// let mut core = Core::new(None);
/// core.input().extend_from_slice(b"RFB 003.008\n");
/// assert!(core.next_event()?.is_none());
/// assert_eq!(core.take_output(), b"RFB 003.008\n");
/// # Ok::<(), dart_env_vnc::rfb::RfbError>(())
/// ```
#[derive(Debug)]
pub struct Core {
    phase: Phase,
    input: BytesMut,
    output: Vec<u8>,
    /// Ask for updates that come without being asked for, where the server can send them.
    continuous: bool,
    /// TLS has to begin before anything else is taken.
    before_tls: bool,
}

impl Core {
    /// A client that has not heard anything yet. The password is used if the server asks for one.
    pub fn new(password: Option<Password>) -> Self {
        Self::with_offer(password, Offer::default())
    }

    /// Like [`new`](Self::new), with another wish for the pixels.
    pub fn with_offer(password: Option<Password>, offer: Offer) -> Self {
        Self::with_login(Login::with_password(password), offer)
    }

    /// A client that says so much of itself, and has this wish for the pixels.
    pub fn with_login(login: Login, offer: Offer) -> Self {
        Self {
            phase: Phase::Handshake(Handshake::new(login, offer)),
            input: BytesMut::new(),
            output: Vec::new(),
            continuous: false,
            before_tls: false,
        }
    }

    /// Whether updates shall come without being asked for, where the server can send them: over a
    /// network that saves a round trip for each. For servers that are not connected yet.
    pub const fn want_continuous_updates(&mut self, on: bool) {
        self.continuous = on;
    }

    /// What the server has told that it can do, once connected.
    pub fn abilities(&self) -> Option<&Abilities> {
        self.session().map(|session| &session.abilities)
    }

    /// TLS has begun, as [`Event::StartTls`] asked: what goes in and out from here on is what TLS
    /// carries.
    pub const fn tls_started(&mut self) {
        self.before_tls = false;
    }

    /// Where received bytes go: append to it.
    pub const fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// What has to be sent, in order.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// The screen, once connected. Consistent only right after [`Event::Updated`].
    pub fn screen(&self) -> Option<&Framebuffer> {
        self.session().map(|session| &session.rects.screen)
    }

    /// The screen, for [`Framebuffer::take_damage`].
    pub fn screen_mut(&mut self) -> Option<&mut Framebuffer> {
        match &mut self.phase {
            Phase::Running(session) => Some(&mut session.rects.screen),
            _ => None,
        }
    }

    /// The shape of the pointer, if the server told it.
    pub fn cursor(&self) -> Option<&CursorImage> {
        self.session()
            .and_then(|session| session.rects.cursor.as_ref())
    }

    /// The encodings in which the server has sent rectangles so far, by number, without
    /// pseudo-encodings.
    pub fn encodings_seen(&self) -> &[i32] {
        self.session()
            .map_or(&[], |session| session.rects.encodings_seen())
    }

    fn session(&self) -> Option<&Session> {
        match &self.phase {
            Phase::Running(session) => Some(session),
            _ => None,
        }
    }

    /// The next event, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// If the server refuses us or breaks the protocol; the same again from then on.
    pub fn next_event(&mut self) -> Result<Option<Event>, RfbError> {
        while !self.before_tls {
            match self.step() {
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {}
                Err(Stop::Incomplete) => return Ok(None),
                Err(Stop::Fault(error)) => {
                    self.phase = Phase::Failed(error.clone());
                    self.input = BytesMut::new();
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Takes one unit of the stream.
    fn step(&mut self) -> Result<Option<Event>, Stop> {
        let mut wire = Wire::new(&self.input);
        let event = match &mut self.phase {
            Phase::Failed(error) => return Err(Stop::Fault(error.clone())),
            Phase::Running(session) => session.step(&mut wire, &mut self.output)?,
            Phase::Handshake(handshake) => match handshake.step(&mut wire, &mut self.output)? {
                Reached::More => None,
                Reached::Tls { anonymous } => {
                    // What came in clear must not be taken for what came through TLS.
                    if wire.left() > 0 {
                        let what = "the server sends data before TLS begins";
                        return Err(RfbError::Malformed { what }.into());
                    }
                    self.before_tls = true;
                    Some(Event::StartTls { anonymous })
                }
                Reached::Greeted(greeted) => {
                    let session = Session::new(greeted.rects, self.continuous, &mut self.output);
                    self.phase = Phase::Running(Box::new(session));
                    Some(Event::Connected(greeted.init))
                }
            },
        };
        let taken = wire.taken();
        self.input.advance(taken);
        Ok(event)
    }
}
