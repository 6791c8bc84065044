//! A raw picture of `screencap`, read as it arrives.
//!
//! Where the pixels begin is known for certain only from the length of the whole (see
//! [`screencap`](super::screencap)). So the first picture is kept until its end; a later one that begins
//! like it is converted on the way, while the next bytes are still coming.

use std::sync::Arc;

use dart_core::{Frame, Result};

use super::{
    framebuffer::{Layout, blank},
    screencap::{Shape, shaped},
};
use crate::error::{Adb, AdbError};

/// Longest output: the largest frame with four bytes for each pixel, and a warning.
pub const MAX_OUTPUT: usize = 4 * Frame::MAX_PIXELS + (64 << 10);

/// Reads one picture after another, in portions of any length.
///
/// ```
/// use dart_env_adb::wire::raw_reader::RawReader;
///
/// let mut reader = RawReader::default();
/// for _ in 0..2 {
///     reader.push(b"\x01\0\0\0\x01\0\0\0\x01\0\0\0")?;
///     reader.push(b"\x07\x08\x09\xff")?;
///     assert_eq!(reader.finish()?.rgb(), [7, 8, 9]);
/// }
/// # Ok::<(), dart_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct RawReader {
    /// What the last picture was like.
    shape: Option<Shape>,
    /// The output so far, or with [`Pixels`] no more than the beginning. Kept, so that its memory is
    /// used again.
    output: Vec<u8>,
    pixels: Option<Pixels>,
}

/// A picture that is converted on the way.
#[derive(Debug)]
struct Pixels {
    layout: Layout,
    rgb: Arc<[u8]>,
    /// Bytes of `rgb` that are done.
    done: usize,
    /// The beginning of a pixel whose rest has not come.
    part: Vec<u8>,
}

impl RawReader {
    /// Forgets what has come of the present picture.
    pub fn restart(&mut self) {
        self.output.clear();
        self.pixels = None;
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) if no picture is so long: start again with
    /// [`restart`](Self::restart).
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.take(bytes).map_err(|error| error.at("screencap"))
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> Adb<()> {
        let taken = self.accept(bytes);
        if taken.is_err() {
            // It was taken for one like the last, and may be another: the next is read whole.
            self.shape = None;
        }
        taken
    }

    fn accept(&mut self, bytes: &[u8]) -> Adb<()> {
        let bytes = match &mut self.pixels {
            Some(pixels) => return pixels.take(bytes),
            None => self.begin(bytes),
        };
        match &mut self.pixels {
            Some(pixels) => pixels.take(bytes),
            None if self.output.len() + bytes.len() > MAX_OUTPUT => Err(AdbError::TooLong {
                what: "a picture",
                limit: MAX_OUTPUT,
            }),
            None => {
                self.output.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Takes the header, if this may be a picture like the last; gives what is left.
    fn begin<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(shape) = self.shape else {
            return bytes;
        };
        let missing = shape.header.saturating_sub(self.output.len());
        let (head, rest) = bytes.split_at(bytes.len().min(missing));
        self.output.extend_from_slice(head);
        if missing == 0 || !self.output.starts_with(&shape.head) {
            return rest;
        }
        if self.output.len() == shape.header {
            self.pixels = Some(Pixels::new(shape.layout));
        }
        rest
    }

    /// The picture, once all has come; the reader is ready for the next.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) if there is none.
    pub fn finish(&mut self) -> Result<Frame> {
        let shape = self.shape.take();
        let read = match self.pixels.take() {
            Some(pixels) => pixels.finish().map(|frame| (frame, shape)),
            None => shaped(&self.output).map(|(frame, shape)| (frame, Some(shape))),
        };
        self.restart();
        let (frame, shape) = read?;
        self.shape = shape;
        Ok(frame)
    }
}

impl Pixels {
    fn new(layout: Layout) -> Self {
        Self {
            rgb: blank(layout.size.area() * 3),
            layout,
            done: 0,
            part: Vec::new(),
        }
    }

    fn take(&mut self, mut bytes: &[u8]) -> Adb<()> {
        let each = self.layout.bytes_per_pixel;
        if !self.part.is_empty() {
            let (first, rest) = bytes.split_at(bytes.len().min(each - self.part.len()));
            self.part.extend_from_slice(first);
            if self.part.len() < each {
                return Ok(());
            }
            bytes = rest;
            let part = std::mem::take(&mut self.part);
            self.convert(&part)?;
        }
        let whole = bytes.len() - bytes.len() % each;
        self.part.extend_from_slice(&bytes[whole..]);
        self.convert(&bytes[..whole])
    }

    /// Converts whole pixels.
    fn convert(&mut self, pixels: &[u8]) -> Adb<()> {
        let end = self.done + pixels.len() / self.layout.bytes_per_pixel * 3;
        let place = Arc::make_mut(&mut self.rgb).get_mut(self.done..end);
        let place = place.ok_or(AdbError::TooLong {
            what: "a picture",
            limit: self.layout.length(),
        })?;
        self.layout.convert(pixels, place);
        self.done = end;
        Ok(())
    }

    fn finish(self) -> Result<Frame> {
        if self.done == self.rgb.len() && self.part.is_empty() {
            return Frame::new(self.layout.size, self.rgb);
        }
        let found = format!("{} bytes of {}", self.done, self.rgb.len());
        Err(AdbError::malformed("a picture was cut", found).at("screencap"))
    }
}

#[cfg(test)]
mod tests {
    use dart_core::ErrorKind;
    use proptest::prelude::*;

    use super::{super::screencap, *};

    fn picture(numbers: &[u32], pixels: &[u8]) -> Vec<u8> {
        let header = numbers.iter().flat_map(|n| n.to_le_bytes());
        header.chain(pixels.iter().copied()).collect()
    }

    fn read(reader: &mut RawReader, bytes: &[u8], portion: usize) -> Result<Frame> {
        for piece in bytes.chunks(portion) {
            if let Err(error) = reader.push(piece) {
                reader.restart();
                return Err(error);
            }
        }
        reader.finish()
    }

    #[test]
    fn a_picture_that_was_cut_or_is_too_long_is_an_error_and_the_next_is_none() {
        let good = picture(&[1, 2, 1, 0], &[1, 2, 3, 255, 4, 5, 6, 255]);
        let mut reader = RawReader::default();
        read(&mut reader, &good, 100).unwrap();
        let long = [&good[..], &[0; 4]].concat();
        for bad in [&good[..23], &good[..20], &good[..9], &long] {
            let error = read(&mut reader, bad, 5).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
            let frame = read(&mut reader, &good, 5).unwrap();
            assert_eq!(frame.rgb(), [1, 2, 3, 4, 5, 6]);
        }
    }

    /// Found by fuzzing: a warning that begins like the last picture.
    #[test]
    fn what_only_begins_like_the_last_is_read_the_second_time() {
        let small = picture(&[1, 1, 1], &[1, 2, 3, 255]);
        let large = picture(&[3, 3, 1], &[7; 36]);
        let other = [&picture(&[1, 1, 1], b"\n")[..], &large].concat();
        let expected = screencap::raw(&other).unwrap();
        let mut reader = RawReader::default();
        read(&mut reader, &small, 100).unwrap();
        read(&mut reader, &other, 5).unwrap_err();
        assert_eq!(read(&mut reader, &other, 5).unwrap(), expected);
    }

    #[test]
    fn another_size_and_a_warning_are_noticed() {
        let mut reader = RawReader::default();
        let wide = picture(&[2, 1, 1, 0], &[1, 2, 3, 255, 4, 5, 6, 255]);
        let tall = picture(&[1, 2, 1, 0], &[9, 8, 7, 255, 6, 5, 4, 255]);
        let warned = [&b"[Warning] two displays\n"[..], &wide].concat();
        for bytes in [&wide, &tall, &warned, &wide, &tall] {
            let expected = screencap::raw(bytes).unwrap();
            assert_eq!(read(&mut reader, bytes, 3).unwrap(), expected);
        }
    }

    proptest! {
        #[test]
        fn on_the_way_or_at_the_end_the_picture_is_the_same(
            format in 1u32..6,
            dataspace: bool,
            (width, bytes) in (1u32..9).prop_flat_map(|width| (Just(width),
                proptest::collection::vec(any::<u8>(), (width * 12) as usize))),
            portion in 1usize..40,
        ) {
            let each = [4, 4, 3, 2, 4][format as usize - 1];
            let pixels = &bytes[..width as usize * 3 * each];
            let header: &[u32] = if dataspace { &[width, 3, format, 1] } else { &[width, 3, format] };
            let output = picture(header, pixels);
            let expected = screencap::raw(&output).unwrap();
            let mut reader = RawReader::default();
            for _ in 0..3 {
                prop_assert_eq!(&read(&mut reader, &output, portion).unwrap(), &expected);
            }
        }
    }
}
