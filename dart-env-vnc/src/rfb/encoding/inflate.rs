//! Streams of zlib that go on from rectangle to rectangle (RFC 1950).
//!
//! What comes out is bounded by the buffer that the caller gives, never by what the stream claims.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};

use super::super::error::RfbError;

/// One stream.
#[derive(Default)]
pub(crate) struct Inflater {
    /// Made when it is needed: most connections use few of their streams.
    state: Option<Box<Decompress>>,
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inflater({})", self.state.is_some())
    }
}

impl Inflater {
    /// The stream begins anew.
    pub(crate) fn reset(&mut self) {
        if let Some(state) = &mut self.state {
            state.reset(true);
        }
    }

    /// Goes on with the stream: `input` is its next piece.
    pub(crate) fn go_on<'a>(&'a mut self, input: &'a [u8]) -> Inflation<'a> {
        let fresh = || Box::new(Decompress::new(true));
        Inflation {
            state: self.state.get_or_insert_with(fresh),
            input,
        }
    }
}

/// A piece of a stream on its way out.
#[derive(Debug)]
pub(crate) struct Inflation<'a> {
    state: &'a mut Decompress,
    input: &'a [u8],
}

impl Inflation<'_> {
    /// Fills `out` as far as the piece reaches, and says how far.
    pub(crate) fn some(&mut self, out: &mut [u8]) -> Result<usize, RfbError> {
        let mut filled = 0;
        while filled < out.len() {
            let (read, made) = (self.state.total_in(), self.state.total_out());
            let rest = &mut out[filled..];
            let status = self
                .state
                .decompress(self.input, rest, FlushDecompress::Sync)
                .map_err(|_| RfbError::Malformed {
                    what: "compressed data are damaged",
                })?;
            let read = (self.state.total_in() - read) as usize;
            let made = (self.state.total_out() - made) as usize;
            self.input = self.input.get(read..).unwrap_or_default();
            filled += made;
            if status == Status::StreamEnd || (read, made) == (0, 0) {
                break;
            }
        }
        Ok(filled)
    }

    /// Fills `out`.
    pub(crate) fn exact(&mut self, out: &mut [u8]) -> Result<(), RfbError> {
        if self.some(out)? == out.len() {
            Ok(())
        } else {
            Err(RfbError::Malformed {
                what: "compressed data end before the rectangle does",
            })
        }
    }

    /// Takes what is left of the piece, in which there must be no more output.
    pub(crate) fn finish(mut self) -> Result<(), RfbError> {
        if self.some(&mut [0])? == 0 && self.input.is_empty() {
            Ok(())
        } else {
            Err(RfbError::Malformed {
                what: "compressed data go on after the rectangle",
            })
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use flate2::{Compress, Compression, FlushCompress};

    use super::*;

    /// A server's side of a stream: pieces that each end at a byte.
    pub(crate) struct Deflater(Compress);

    impl Deflater {
        pub(crate) fn new() -> Self {
            Self(Compress::new(Compression::default(), true))
        }

        pub(crate) fn piece(&mut self, bytes: &[u8]) -> Vec<u8> {
            let mut out = Vec::with_capacity(bytes.len() * 2 + 256);
            self.0
                .compress_vec(bytes, &mut out, FlushCompress::Sync)
                .unwrap();
            out
        }
    }

    #[test]
    fn a_stream_goes_on_over_pieces() {
        let (mut deflater, mut inflater) = (Deflater::new(), Inflater::default());
        for text in [&b"one one one one"[..], b"", b"one two one two"] {
            let piece = deflater.piece(text);
            let mut inflation = inflater.go_on(&piece);
            let mut out = vec![0; text.len()];
            inflation.exact(&mut out).unwrap();
            inflation.finish().unwrap();
            assert_eq!(out, text);
        }
    }

    #[test]
    fn too_little_too_much_and_damage_are_faults() {
        let piece = Deflater::new().piece(&[7; 100]);
        let fault = |length: usize, piece: &[u8]| {
            let mut inflater = Inflater::default();
            let mut inflation = inflater.go_on(piece);
            let result = inflation.exact(&mut vec![0; length]);
            result.and_then(|()| inflation.finish())
        };
        assert_eq!(fault(100, &piece), Ok(()));
        assert!(
            fault(101, &piece)
                .unwrap_err()
                .to_string()
                .contains("end before")
        );
        assert!(fault(99, &piece).unwrap_err().to_string().contains("go on"));
        assert!(fault(0, &piece).is_err());
        assert!(
            fault(100, &[0xff; 40])
                .unwrap_err()
                .to_string()
                .contains("damaged")
        );
    }

    #[test]
    fn a_reset_stream_begins_anew() {
        let mut inflater = Inflater::default();
        for _ in 0..2 {
            let piece = Deflater::new().piece(b"again");
            let mut out = [0; 5];
            inflater.go_on(&piece).exact(&mut out).unwrap();
            assert_eq!(&out, b"again");
            inflater.reset();
        }
    }
}
