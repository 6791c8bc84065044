//! What the fuzz targets share: bytes whole and in pieces, of which the same must come.

use std::fmt::Debug;

/// `bytes` in pieces of `size + 1` bytes.
pub fn pieces(bytes: &[u8], size: u8) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(usize::from(size) + 1)
}

/// Checks that `read` makes the same of `bytes` whole and of their pieces; the first byte says how
/// large those are. Gives what it made.
///
/// # Panics
/// If it does not.
pub fn alike<T: Debug + PartialEq>(
    data: &[u8],
    read: impl Fn(&mut dyn Iterator<Item = &[u8]>) -> T,
) -> Option<T> {
    let (size, bytes) = data.split_first()?;
    let whole = read(&mut std::iter::once(bytes));
    let cut = read(&mut pieces(bytes, *size));
    assert_eq!(whole, cut);
    Some(whole)
}
