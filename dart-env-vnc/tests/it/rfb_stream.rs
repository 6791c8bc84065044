//! Server streams made by hand, and what the core makes of them.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use dart_env_vnc::rfb::{Core, Event, Password, RfbError};

pub(crate) const RAW: i32 = 0;
pub(crate) const COPY_RECT: i32 = 1;
pub(crate) const CURSOR: i32 = -239;
pub(crate) const DESKTOP_SIZE: i32 = -223;
pub(crate) const LAST_RECT: i32 = -224;

/// Bytes of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream(pub(crate) Vec<u8>);

impl Stream {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A 3.8 server without security and a screen of this size, up to the end of the handshake.
    pub(crate) fn ready(width: u16, height: u16) -> Self {
        Self::new()
            .bytes(b"RFB 003.008\n")
            .bytes(&[1, 1])
            .u32(0)
            .init(width, height, b"test")
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// ServerInit.
    pub(crate) fn init(self, width: u16, height: u16, name: &[u8]) -> Self {
        self.u16(width)
            .u16(height)
            .format(1)
            .u32(name.len() as u32)
            .bytes(name)
    }

    /// The pixel format that all servers seen have, with this true-colour flag.
    pub(crate) fn format(self, true_colour: u8) -> Self {
        self.bytes(&[32, 24, 0, true_colour, 0, 255, 0, 255, 0, 255, 16, 8, 0])
            .bytes(&[0; 3])
    }

    /// The head of an update of `rects` rectangles.
    pub(crate) fn update(self, rects: u16) -> Self {
        self.bytes(&[0, 0]).u16(rects)
    }

    /// The head of a rectangle: x, y, width, height.
    pub(crate) fn rect(self, [x, y, width, height]: [u16; 4], encoding: i32) -> Self {
        self.u16(x)
            .u16(y)
            .u16(width)
            .u16(height)
            .bytes(&encoding.to_be_bytes())
    }

    /// A raw rectangle of one colour.
    pub(crate) fn fill(self, area: [u16; 4], [r, g, b]: [u8; 3]) -> Self {
        let pixels = usize::from(area[2]) * usize::from(area[3]);
        self.rect(area, RAW).bytes(&[b, g, r, 0].repeat(pixels))
    }
}

/// Everything that came of a stream.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) core: Core,
    pub(crate) events: Vec<Event>,
    pub(crate) output: Vec<u8>,
    pub(crate) error: Option<RfbError>,
}

impl Outcome {
    /// Pixels of the screen, or nothing without one.
    pub(crate) fn rgb(&self) -> &[u8] {
        self.core.screen().map_or(&[], |screen| screen.rgb())
    }

    pub(crate) fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        let screen = self.core.screen().unwrap();
        let at = (y * screen.size().width as usize + x) * 3;
        screen.rgb()[at..at + 3].try_into().unwrap()
    }

    pub(crate) fn updates(&self) -> usize {
        let updates = self
            .events
            .iter()
            .filter(|e| matches!(e, Event::Updated(_)));
        updates.count()
    }
}

/// Feeds the pieces one after another.
pub(crate) fn feed<'a>(
    password: Option<&str>,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Outcome {
    let mut outcome = Outcome {
        core: Core::new(password.map(Password::new)),
        events: Vec::new(),
        output: Vec::new(),
        error: None,
    };
    for piece in pieces {
        outcome.core.input().extend_from_slice(piece);
        loop {
            match outcome.core.next_event() {
                Ok(Some(event)) => outcome.events.push(event),
                Ok(None) => break,
                Err(error) => {
                    outcome.error.get_or_insert(error);
                    break;
                }
            }
        }
        outcome.output.extend(outcome.core.take_output());
    }
    outcome
}

/// Feeds it in one piece.
pub(crate) fn run(stream: &Stream) -> Outcome {
    feed(None, [stream.0.as_slice()])
}
