//! Reading big-endian fields from a buffer that may not be complete yet.
//!
//! A parser either takes a whole unit or, if bytes are missing, nothing: the caller keeps the
//! buffer and tries again when more has arrived. So how the bytes were chunked cannot matter.

use super::error::RfbError;

/// Why a parser stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// More bytes are needed.
    Incomplete,
    /// The bytes are wrong.
    Fault(RfbError),
}

impl From<RfbError> for Stop {
    fn from(error: RfbError) -> Self {
        Self::Fault(error)
    }
}

/// A position in received bytes.
#[derive(Debug)]
pub(crate) struct Wire<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Wire<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes taken so far.
    pub(crate) const fn taken(&self) -> usize {
        self.at
    }

    /// Bytes that are there and not taken yet.
    pub(crate) const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// What is there, without taking it.
    pub(crate) fn peek(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Stop> {
        let taken = self.peek().get(..count).ok_or(Stop::Incomplete)?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| Stop::Incomplete)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Stop> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Stop> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Stop> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Stop> {
        self.array().map(i32::from_be_bytes)
    }

    /// A length field and that many bytes; the length is checked before anything is waited for.
    pub(crate) fn counted(&mut self, what: &'static str, limit: u32) -> Result<&'a [u8], Stop> {
        let length = self.u32()?;
        check_limit(what, length.into(), limit.into())?;
        self.take(length as usize)
    }
}

/// Refuses a value beyond its bound.
pub(crate) const fn check_limit(
    what: &'static str,
    value: u64,
    limit: u64,
) -> Result<(), RfbError> {
    if value > limit {
        Err(RfbError::TooLarge { what, value, limit })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_byte_is_incomplete_and_a_long_length_is_a_fault_at_once() {
        assert!(matches!(Wire::new(&[0, 1, 2]).u32(), Err(Stop::Incomplete)));
        let mut wire = Wire::new(&[0xff; 4]);
        let fault = wire.counted("name", 4096);
        assert!(matches!(fault, Err(Stop::Fault(RfbError::TooLarge { .. }))));
        let mut wire = Wire::new(&[0, 0, 0, 2, b'o', b'k', 7]);
        assert_eq!(wire.counted("name", 4096).unwrap(), b"ok");
        assert_eq!((wire.taken(), wire.left()), (6, 1));
    }
}
