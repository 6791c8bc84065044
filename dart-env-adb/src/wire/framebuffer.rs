//! The header of the framebuffer service (`framebuffer:`), and pixels of any layout.
//!
//! Source: AOSP `packages/modules/adb`, `framebuffer_service.h`. Numbers of 32 bits, low byte first:
//! version (1, or 2 with a colour space), bits of a pixel, (colour space), size, width, height, then
//! offset and length in bits of red, *blue*, green and alpha.

use std::sync::Arc;

use dart_core::{Frame, Result, Size};

use crate::error::{Adb, AdbError};

/// Length of the longest header, bytes.
pub const MAX_HEADER: usize = 56;

/// Where in a pixel a colour is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// Lowest bit.
    pub offset: u32,
    /// Number of bits, 0 to 8.
    pub length: u32,
}

impl Channel {
    const fn new(offset: u32, length: u32) -> Self {
        Self { offset, length }
    }
}

/// How a picture lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Width and height.
    pub size: Size,
    /// Bytes of a pixel, 2 to 4.
    pub bytes_per_pixel: usize,
    /// Red, green, blue.
    pub channels: [Channel; 3],
}

impl Layout {
    /// Eight bits for each colour, one after another, the first at byte `order[0]` and so on.
    pub(crate) const fn bytes(size: Size, bytes_per_pixel: usize, order: [u32; 3]) -> Self {
        let [r, g, b] = order;
        Self {
            size,
            bytes_per_pixel,
            channels: [
                Channel::new(r * 8, 8),
                Channel::new(g * 8, 8),
                Channel::new(b * 8, 8),
            ],
        }
    }

    /// Five, six and five bits, red the highest.
    pub(crate) const fn rgb565(size: Size) -> Self {
        Self {
            size,
            bytes_per_pixel: 2,
            channels: [Channel::new(11, 5), Channel::new(5, 6), Channel::new(0, 5)],
        }
    }

    /// Bytes of the whole picture.
    pub const fn length(&self) -> usize {
        self.size.area() * self.bytes_per_pixel
    }

    /// The picture in `pixels`, of which more than [`length`](Self::length) bytes are left alone.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) if there are too few bytes or the size is out
    /// of bounds.
    pub fn frame(&self, pixels: &[u8]) -> Result<Frame> {
        let area = self.size.area();
        if area == 0 || area > Frame::MAX_PIXELS || pixels.len() < self.length() {
            let found = format!("{} bytes for {}", pixels.len(), self.size);
            return Err(AdbError::malformed("a picture does not fit its size", found).at("screen"));
        }
        let mut shared = blank(area * 3);
        let rgb = Arc::make_mut(&mut shared);
        self.convert(&pixels[..self.length()], rgb);
        Frame::new(self.size, shared)
    }

    /// Whole pixels as red, green and blue.
    pub(super) fn convert(&self, pixels: &[u8], rgb: &mut [u8]) {
        match (self.bytes_per_pixel, self.byte_order()) {
            (4, Some([0, 1, 2])) => without_fourth(pixels, rgb),
            (3, Some([0, 1, 2])) => rgb.copy_from_slice(pixels),
            _ => self.gather(pixels, rgb),
        }
    }

    /// The bytes of red, green and blue, if each has one of its own.
    fn byte_order(&self) -> Option<[u32; 3]> {
        let whole = |c: &Channel| c.length == 8 && c.offset.is_multiple_of(8);
        let all = self.channels.iter().all(whole);
        all.then(|| self.channels.map(|c| c.offset / 8))
    }

    fn gather(&self, pixels: &[u8], rgb: &mut [u8]) {
        let whole = pixels.chunks_exact(self.bytes_per_pixel);
        for (to, from) in rgb.chunks_exact_mut(3).zip(whole) {
            let little_endian = from.iter().rev();
            let value = little_endian.fold(0, |value: u32, byte| value << 8 | u32::from(*byte));
            for (byte, channel) in to.iter_mut().zip(self.channels) {
                let most = (1 << channel.length) - 1;
                let part = (value >> channel.offset) & most;
                *byte = (part * 255).checked_div(most).unwrap_or(0) as u8;
            }
        }
    }
}

/// Shared memory to be filled in place: making it out of a vector would copy that.
pub(super) fn blank(length: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0, length).collect()
}

/// The first three of each four bytes; four pixels at a time, as three numbers of 32 bits.
fn without_fourth(pixels: &[u8], rgb: &mut [u8]) {
    let (fours, last) = pixels.as_chunks::<16>();
    let (twelves, rest) = rgb.as_chunks_mut::<12>();
    for (to, from) in twelves.iter_mut().zip(fours) {
        let pixel = |at: usize| {
            let bytes = [from[at], from[at + 1], from[at + 2], from[at + 3]];
            u32::from_le_bytes(bytes) & 0xff_ffff
        };
        let [a, b, c, d] = [pixel(0), pixel(4), pixel(8), pixel(12)];
        let words = [a | b << 24, b >> 8 | c << 16, c >> 16 | d << 8];
        for (place, word) in to.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
    }
    for (to, from) in rest.chunks_exact_mut(3).zip(last.chunks_exact(4)) {
        to.copy_from_slice(&from[..3]);
    }
}

/// How many bytes a header of this version has; the version is its first number.
///
/// # Errors
/// [`Protocol`](dart_core::ErrorKind::Protocol) for a version that is neither 1 nor 2.
pub fn header_length(version: u32) -> Result<usize> {
    length_of(version).map_err(|error| error.at("framebuffer"))
}

pub(crate) fn length_of(version: u32) -> Adb<usize> {
    match version {
        1 => Ok(MAX_HEADER - 4),
        2 => Ok(MAX_HEADER),
        other => Err(AdbError::malformed("unknown framebuffer version", other)),
    }
}

/// Reads a header, version included.
///
/// # Errors
/// [`Protocol`](dart_core::ErrorKind::Protocol) if it is too short or its numbers contradict each
/// other or a screen.
pub fn parse(header: &[u8]) -> Result<Layout> {
    read(header).map_err(|error| error.at("framebuffer"))
}

pub(crate) fn read(header: &[u8]) -> Adb<Layout> {
    let numbers: Vec<u32> = header
        .chunks_exact(4)
        .map(|n| u32::from_le_bytes([n[0], n[1], n[2], n[3]]))
        .collect();
    let rest = match numbers.as_slice() {
        [1, bits, rest @ ..] | [2, bits, _, rest @ ..] if rest.len() == 11 => (bits, rest),
        _ => return Err(AdbError::malformed("no framebuffer header", numbers.len())),
    };
    let (&bits, rest) = rest;
    let channel = |at: usize| Channel::new(rest[at], rest[at + 1]);
    let layout = Layout {
        size: Size::new(rest[1], rest[2]),
        bytes_per_pixel: (bits / 8) as usize,
        // Blue comes before green.
        channels: [channel(3), channel(7), channel(5)],
    };
    let side = |side: u32| (1..=1 << 14).contains(&side);
    let inside = |c: &Channel| c.length <= 8 && c.offset < bits && c.offset + c.length <= bits;
    let possible = matches!(bits, 16 | 24 | 32)
        && side(layout.size.width)
        && side(layout.size.height)
        && layout.size.area() <= Frame::MAX_PIXELS
        && rest[0] as usize >= layout.length()
        && layout.channels.iter().all(inside);
    if possible {
        Ok(layout)
    } else {
        let found = format!("{numbers:?}");
        Err(AdbError::malformed("impossible framebuffer", found))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    #[test]
    fn a_bgra_picture_has_its_colours() {
        let bytes = header(&[2, 32, 0, 8, 2, 1, 16, 8, 0, 8, 8, 8, 24, 8]);
        let layout = parse(&bytes).unwrap();
        let frame = layout.frame(&[3, 2, 1, 255, 30, 20, 10, 255]).unwrap();
        assert_eq!(frame.rgb(), [1, 2, 3, 10, 20, 30]);
        assert_eq!(header_length(2).unwrap(), bytes.len());
    }

    #[test]
    fn a_565_picture_has_its_colours() {
        let bytes = header(&[1, 16, 4, 2, 1, 11, 5, 0, 5, 5, 6, 0, 0]);
        let frame = parse(&bytes).unwrap().frame(&[0x00, 0xf8, 0xe0, 0x07]);
        assert_eq!(frame.unwrap().rgb(), [255, 0, 0, 0, 255, 0]);
    }

    #[test]
    fn contradictions_are_refused() {
        let good = [1, 32, 8, 2, 1, 0, 8, 16, 8, 8, 8, 24, 8];
        assert!(parse(&header(&good)).is_ok());
        for (at, value) in [
            (0, 3),
            (1, 8),
            (2, 7),
            (3, 0),
            (4, 1 << 20),
            (5, 32),
            (6, 9),
        ] {
            let mut bad = good;
            bad[at] = value;
            assert!(parse(&header(&bad)).is_err(), "{at}");
        }
        assert!(parse(b"").is_err() && header_length(16).is_err());
    }

    proptest! {
        #[test]
        fn the_fourth_byte_is_left_out(pixels in proptest::collection::vec(any::<[u8; 4]>(), 0..50)) {
            let mut rgb = vec![0; pixels.len() * 3];
            without_fourth(pixels.as_flattened(), &mut rgb);
            let expected: Vec<u8> = pixels.iter().flat_map(|p| [p[0], p[1], p[2]]).collect();
            prop_assert_eq!(rgb, expected);
        }

        #[test]
        fn no_header_makes_it_panic(numbers in proptest::collection::vec(0u32..40, 0..15)) {
            if let Ok(layout) = parse(&header(&numbers)) {
                prop_assert!(layout.frame(&vec![7; layout.length()]).is_ok());
                prop_assert!(layout.frame(&vec![7; layout.length() - 1]).is_err());
            }
        }
    }
}
