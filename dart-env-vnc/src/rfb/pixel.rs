//! Pixel formats (RFC 6143 §7.4).
//!
//! The server's own format is read, checked for nothing and replaced: the client asks for
//! [`PixelFormat::WIRE`], which every true-colour and colour-mapped server must convert to.

use super::{
    error::RfbError,
    wire::{Stop, Wire},
};

/// How the colours of a pixel lie in its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub struct PixelFormat {
    pub bits_per_pixel: u8,
    pub depth: u8,
    pub big_endian: bool,
    pub true_colour: bool,
    pub maximum: [u16; 3],
    pub shift: [u8; 3],
}

impl PixelFormat {
    /// Bytes of one pixel in [`WIRE`](Self::WIRE).
    pub(crate) const BYTES: usize = 4;

    /// What we ask for: 32 bits, little-endian, bytes blue, green, red, unused. It is what all
    /// servers seen use natively, so that they need not convert.
    pub const WIRE: Self = Self {
        bits_per_pixel: 32,
        depth: 24,
        big_endian: false,
        true_colour: true,
        maximum: [255; 3],
        shift: [16, 8, 0],
    };

    pub(crate) fn read(wire: &mut Wire<'_>) -> Result<Self, Stop> {
        let [bits_per_pixel, depth] = [wire.u8()?, wire.u8()?];
        // libvncserver sends 255 for true: any value but zero is true.
        let [big_endian, true_colour] = [wire.u8()? != 0, wire.u8()? != 0];
        let maximum = [wire.u16()?, wire.u16()?, wire.u16()?];
        let shift = [wire.u8()?, wire.u8()?, wire.u8()?];
        wire.take(3)?;
        Ok(Self {
            bits_per_pixel,
            depth,
            big_endian,
            true_colour,
            maximum,
            shift,
        })
    }

    /// Fails unless the pixels can be read: 8, 16 or 32 bits, and colours within them.
    pub(crate) fn check(self) -> Result<(), RfbError> {
        let bits = u32::from(self.bits_per_pixel);
        let inside = |(maximum, shift): (u16, u8)| {
            u32::from(shift) + (u16::BITS - maximum.leading_zeros()) <= bits
        };
        let colours = self.maximum.into_iter().zip(self.shift);
        let whole = matches!(bits, 8 | 16 | 32);
        if whole && (!self.true_colour || colours.into_iter().all(inside)) {
            Ok(())
        } else {
            Err(RfbError::Malformed {
                what: "the pixel format makes no sense",
            })
        }
    }

    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.extend([
            self.bits_per_pixel,
            self.depth,
            self.big_endian.into(),
            self.true_colour.into(),
        ]);
        for maximum in self.maximum {
            out.extend(maximum.to_be_bytes());
        }
        out.extend(self.shift);
        out.extend([0; 3]);
    }
}

/// Converts pixels of [`PixelFormat::WIRE`] to red, green, blue.
pub(crate) fn to_rgb(wire: &[u8], rgb: &mut [u8]) {
    let (pixels, _) = wire.as_chunks::<{ PixelFormat::BYTES }>();
    let (colours, _) = rgb.as_chunks_mut::<3>();
    for ([blue, green, red, _], to) in pixels.iter().zip(colours) {
        *to = [*red, *green, *blue];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_survives_the_wire() {
        let mut bytes = Vec::new();
        PixelFormat::WIRE.write(&mut bytes);
        assert_eq!(bytes.len(), 16);
        let read = PixelFormat::read(&mut Wire::new(&bytes)).unwrap();
        assert_eq!(read, PixelFormat::WIRE);
    }

    #[test]
    fn blue_comes_first_on_the_wire() {
        let mut rgb = [0; 6];
        to_rgb(&[3, 2, 1, 0, 30, 20, 10, 255], &mut rgb);
        assert_eq!(rgb, [1, 2, 3, 10, 20, 30]);
    }
}
