//! The protocols, sans I/O: bytes go in, messages come out.
//!
//! No bytes of a peer make a parser panic, and what a peer announces is bounded before anything is
//! allocated for it.

pub mod devices;
pub mod framebuffer;
pub mod packet;
pub mod raw_reader;
pub mod screencap;
pub mod shell;
pub mod smart_socket;
pub mod sync;
pub mod window;
