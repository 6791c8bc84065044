//! An RFB (VNC) client: a sans-I/O core and a tokio driver (RFC 6143).
//!
//! | file | what |
//! |---|---|
//! | `core` | [`Core`]: bytes in, [`Event`]s out, bytes to send out; no I/O, no clock |
//! | `handshake`, `security` | versions 3.3, 3.7 and 3.8; security types None and VncAuth |
//! | `session` | server messages after the handshake |
//! | `rect` | the rectangles of an update: header, limits, which encoding |
//! | `encoding/*` | one encoding a file: `read` (bounded, from the stream) apart from `decode` (pure) |
//! | `framebuffer`, `pixel` | the pixels |
//! | `message` | client messages to bytes |
//! | `input` | what is held down on the server |
//! | `plan`, `keysym` | actions to pointer and key events; keys to X11 keysyms |
//! | `wire`, `limits`, `error` | parsing, bounds, errors |
//! | `connection`, `shared` | the tokio driver: a reader and a writer task, frames published at update boundaries |
//!
//! Deviations from the RFC: the extra encodings of RFC 6143 (RRE, Hextile, TRLE, ZRLE) are not
//! offered; an encoding that was not offered ends the connection, because the stream cannot be
//! followed past it; every length is bounded before anything is allocated ([`limits`]).

mod connection;
mod core;
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
mod security;
mod session;
mod shared;
mod wire;

pub(crate) use self::{
    connection::{Connection, Deadlines},
    input::{InputState, Step},
};
pub use self::{
    core::Core,
    encoding::{
        choice::{EncodingChoice, Offer},
        cursor::CursorImage,
    },
    error::RfbError,
    framebuffer::{Area, Framebuffer},
    handshake::{ProtocolVersion, ServerInit},
    pixel::PixelFormat,
    rect::Update,
    security::Password,
    session::Event,
};
