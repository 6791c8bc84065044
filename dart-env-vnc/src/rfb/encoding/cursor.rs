//! Cursor (-239): the shape of the pointer (RFC 6143 §7.8.1).
//!
//! Offering it takes the pointer out of the pixels: screenshots do not depend on where it is.

use std::fmt;

use dart_core::{ScreenPx, Size};

use super::super::{
    framebuffer::Area,
    limits::MAX_CURSOR_SIDE,
    pixel::{PixelFormat, to_rgb},
    wire::{Stop, Wire, check_limit},
};

/// The shape of the pointer.
#[derive(Clone, PartialEq, Eq)]
pub struct CursorImage {
    /// Width and height; 0x0 is an invisible pointer.
    pub size: Size,
    /// The pixel that points, from the top left of the shape.
    pub hotspot: ScreenPx,
    /// Red, green, blue and opacity (0 or 255) of each pixel, rows top to bottom.
    pub rgba: Vec<u8>,
}

impl fmt::Debug for CursorImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CursorImage({})", self.size)
    }
}

/// Pixels and mask as they came.
#[derive(Debug)]
pub(crate) struct Shape<'a> {
    area: Area,
    pixels: &'a [u8],
    mask: &'a [u8],
}

/// Takes pixels and mask; the rectangle's position is the hotspot.
pub(crate) fn read<'a>(wire: &mut Wire<'a>, area: Area) -> Result<Shape<'a>, Stop> {
    let longest = area.width.max(area.height);
    check_limit("cursor side", longest.into(), MAX_CURSOR_SIDE.into())?;
    let pixels = wire.take(area.pixels() as usize * PixelFormat::BYTES)?;
    let mask = wire.take(mask_stride(area) * usize::from(area.height))?;
    Ok(Shape { area, pixels, mask })
}

fn mask_stride(area: Area) -> usize {
    usize::from(area.width).div_ceil(8)
}

/// Joins pixels and mask.
pub(crate) fn decode(shape: &Shape<'_>) -> CursorImage {
    let Shape { area, pixels, mask } = *shape;
    let (width, stride) = (usize::from(area.width), mask_stride(area));
    let mut rgba = vec![0; area.pixels() as usize * 4];
    for (index, (from, to)) in pixels
        .chunks_exact(PixelFormat::BYTES)
        .zip(rgba.chunks_exact_mut(4))
        .enumerate()
    {
        let (x, y) = (index % width, index / width);
        let seen = mask[y * stride + x / 8] & (0x80 >> (x % 8)) != 0;
        to_rgb(from, &mut to[..3]);
        to[3] = if seen { 255 } else { 0 };
    }
    CursorImage {
        size: Size::new(area.width.into(), area.height.into()),
        hotspot: ScreenPx::new(area.x.into(), area.y.into()),
        rgba,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_and_mask_are_joined() {
        let area = Area {
            x: 1,
            y: 0,
            width: 2,
            height: 2,
        };
        let bytes = [
            3,
            2,
            1,
            0,
            6,
            5,
            4,
            0,
            9,
            8,
            7,
            0,
            12,
            11,
            10,
            0,
            0b1000_0000,
            0b0100_0000,
        ];
        let mut wire = Wire::new(&bytes);
        let cursor = decode(&read(&mut wire, area).unwrap());
        assert_eq!(wire.left(), 0);
        assert_eq!(cursor.hotspot, ScreenPx::new(1, 0));
        assert_eq!(
            cursor.rgba,
            [1, 2, 3, 255, 4, 5, 6, 0, 7, 8, 9, 0, 10, 11, 12, 255]
        );
    }

    #[test]
    fn an_empty_cursor_is_an_invisible_one() {
        let cursor = decode(&read(&mut Wire::new(&[]), Area::default()).unwrap());
        assert_eq!(cursor.size, Size::new(0, 0));
    }

    #[test]
    fn a_huge_cursor_is_refused_before_its_pixels_arrive() {
        let area = Area {
            width: 1025,
            height: 1,
            ..Area::default()
        };
        assert!(matches!(
            read(&mut Wire::new(&[]), area),
            Err(Stop::Fault(_))
        ));
    }
}
