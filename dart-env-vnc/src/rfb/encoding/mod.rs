//! Encodings, one a file. In each, `read` takes a bounded piece of the stream and `decode` applies
//! it; `decode` is pure and cannot fail on what `read` let through.

pub(crate) mod choice;
pub(crate) mod copy_rect;
pub(crate) mod cursor;
pub(crate) mod desktop_size;
pub(crate) mod number;
pub(crate) mod raw;
