//! Pixel formats (RFC 6143 §7.4).
//!
//! The server's own format is read and usually replaced: the client asks for
//! [`PixelFormat::WIRE`], which every true-colour and colour-mapped server must convert to. Another
//! format can be asked for, or the server's own be kept; then it is checked.

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

    /// 16 bits, little-endian: 5 of red, 6 of green, 5 of blue.
    pub const RGB565: Self = Self {
        bits_per_pixel: 16,
        depth: 16,
        big_endian: false,
        true_colour: true,
        maximum: [31, 63, 31],
        shift: [11, 5, 0],
    };

    /// 8 bits: 2 of blue, 3 of green, 3 of red.
    pub const BGR233: Self = Self {
        bits_per_pixel: 8,
        depth: 8,
        big_endian: false,
        true_colour: true,
        maximum: [7, 7, 3],
        shift: [0, 3, 6],
    };

    /// 8 bits that number the colours of a map, which the server chooses and tells.
    pub const MAPPED: Self = Self {
        bits_per_pixel: 8,
        depth: 8,
        big_endian: false,
        true_colour: false,
        maximum: [0; 3],
        shift: [0; 3],
    };

    /// The same with the bytes in the other order.
    pub const fn swapped(self) -> Self {
        Self {
            big_endian: !self.big_endian,
            ..self
        }
    }

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
            // A colour without bits still has to have a place to be shifted from.
            let length = (u16::BITS - maximum.leading_zeros()).max(1);
            u32::from(shift) + length <= bits
        };
        let colours = self.maximum.into_iter().zip(self.shift);
        let readable = match (bits, self.true_colour) {
            (8 | 16 | 32, true) => colours.into_iter().all(inside),
            // A map of more than 256 colours has not been seen.
            (8, false) => true,
            _ => false,
        };
        if readable {
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
    fn formats_that_cannot_be_read_are_refused() {
        let with = |change: fn(&mut PixelFormat)| {
            let mut format = PixelFormat::WIRE;
            change(&mut format);
            format.check()
        };
        assert_eq!(with(|_| ()), Ok(()));
        assert!(with(|format| format.bits_per_pixel = 24).is_err());
        assert!(with(|format| format.bits_per_pixel = 16).is_err());
        assert!(with(|format| format.shift[0] = 25).is_err());
        assert!(with(|format| format.shift[0] = 255).is_err());
        let shifted_out = |format: &mut PixelFormat| (format.maximum[0], format.shift[0]) = (0, 32);
        assert!(with(shifted_out).is_err());
        assert!(with(|format| format.true_colour = false).is_err());
    }
}
