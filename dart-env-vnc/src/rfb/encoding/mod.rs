//! Encodings, one a file. In each, `read` takes a bounded piece of the stream and `decode` applies
//! it; `decode` is pure, and fails only on what cannot be seen before it is decompressed.

mod inflate;
mod jpeg;
mod png;
mod rows;
mod tight_filter;
mod zywrle;

pub(crate) mod alpha_cursor;
pub(crate) mod choice;
pub(crate) mod copy_rect;
pub(crate) mod cursor;
pub(crate) mod desktop_size;
pub(crate) mod hextile;
pub(crate) mod number;
pub(crate) mod raw;
pub(crate) mod rre;
pub(crate) mod tight;
pub(crate) mod tile;
pub(crate) mod trle;
pub(crate) mod x_cursor;
pub(crate) mod zlib;
pub(crate) mod zrle;

pub(crate) use self::inflate::Inflater;
