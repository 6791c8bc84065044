//! An RFB (VNC) client: a sans-I/O core and a tokio driver (RFC 6143).
//!
//! | file | what |
//! |---|---|
//! | `core` | [`Core`]: bytes in, [`Event`]s out, bytes to send out; no I/O, no clock |
//! | `handshake` | versions 3.3, 3.7 and 3.8 |
//! | `security/*` | None, VncAuth, VeNCrypt with X509* and Plain, Apple's; the choice among them |
//! | `tls` | how a server's certificate is checked |
//! | `session/*` | server messages after the handshake, and what the server can do |
//! | `rect` | the rectangles of an update: header, limits, which encoding |
//! | `encoding/*` | one encoding a file: `read` (bounded, from the stream) apart from `decode` (pure) |
//! | `framebuffer`, `pixel`, `colour` | the pixels |
//! | `message` | client messages to bytes |
//! | `input` | what is held down on the server |
//! | `plan`, `keysym`, `scancode`, `dialect` | actions to pointer and key events; keys to X11 keysyms and to scancodes; which a server takes |
//! | `wire`, `limits`, `error` | parsing, bounds, errors |
//! | `dial` | from an address to a server that has greeted us |
//! | `connection`, `shared` | the tokio driver: a reader and a writer task, frames published at update boundaries |
//!
//! Deviations from the RFC: an encoding that is unknown ends the connection, because the stream
//! cannot be followed past it; every length is bounded before anything is allocated ([`limits`]),
//! and so is what one update may paint.

mod colour;
mod connection;
mod core;
mod dial;
mod dialect;
mod encoding;
mod error;
mod framebuffer;
mod handshake;
mod input;
pub mod keysym;
pub mod limits;
pub mod message;
mod pixel;
mod plan;
mod rect;
pub mod scancode;
mod security;
mod session;
mod shared;
mod tls;
mod wire;

pub(crate) use self::{
    connection::Connection,
    dial::{Access, Deadlines, Target},
    dialect::Dialect,
    input::{InputState, Step},
    tls::Trust,
};
pub use self::{
    core::Core,
    dialect::Keyboard,
    encoding::{
        choice::{EncodingChoice, Offer},
        cursor::CursorImage,
    },
    error::RfbError,
    framebuffer::{Area, Framebuffer},
    handshake::{ProtocolVersion, ServerInit},
    pixel::PixelFormat,
    rect::Update,
    security::{Entropy, Login, Password},
    session::{Abilities, Event, Locks, ScreenArea, SizeReply},
    tls::TlsConfig,
};
