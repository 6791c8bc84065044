//! Cursor (-239): the shape of the pointer (RFC 6143 §7.8.1).
//!
//! Offering it takes the pointer out of the pixels: screenshots do not depend on where it is.

use std::fmt;

use dart_core::{ScreenPx, Size};

use super::super::{
    colour::Layout,
    error::RfbError,
    framebuffer::Area,
    limits::MAX_CURSOR_SIDE,
    wire::{Stop, Wire, check_limit},
};

/// The shape of the pointer.
#[derive(Clone, PartialEq, Eq)]
pub struct CursorImage {
    /// Width and height; 0x0 is an invisible pointer.
    pub size: Size,
    /// The pixel that points, from the top left of the shape.
    pub hotspot: ScreenPx,
    /// Red, green, blue and opacity of each pixel, rows top to bottom.
    pub rgba: Vec<u8>,
}

impl fmt::Debug for CursorImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CursorImage({})", self.size)
    }
}

impl CursorImage {
    /// A shape from its rectangle, whose position is the hotspot.
    pub(crate) fn new(area: Area, rgba: Vec<u8>) -> Self {
        Self {
            size: Size::new(area.width.into(), area.height.into()),
            hotspot: ScreenPx::new(area.x.into(), area.y.into()),
            rgba,
        }
    }
}

/// Fails if the shape is larger than any pointer.
pub(crate) fn check_sides(area: Area) -> Result<(), RfbError> {
    let longest = area.width.max(area.height);
    check_limit("cursor side", longest.into(), MAX_CURSOR_SIDE.into())
}

/// Pixels and mask as they came.
#[derive(Debug)]
pub(crate) struct Shape<'a> {
    area: Area,
    pixels: &'a [u8],
    mask: &'a [u8],
}

/// Takes pixels and mask; `layout` is that of a whole pixel.
pub(crate) fn read<'a>(
    wire: &mut Wire<'a>,
    area: Area,
    layout: &Layout,
) -> Result<Shape<'a>, Stop> {
    check_sides(area)?;
    let pixels = wire.take(area.pixels() as usize * layout.bytes())?;
    let mask = wire.take(mask_stride(area) * usize::from(area.height))?;
    Ok(Shape { area, pixels, mask })
}

/// Bytes of a row of a mask.
pub(crate) fn mask_stride(area: Area) -> usize {
    usize::from(area.width).div_ceil(8)
}

/// Joins pixels and mask.
pub(crate) fn decode(shape: &Shape<'_>, layout: &Layout) -> CursorImage {
    let Shape { area, pixels, mask } = *shape;
    let (width, stride) = (usize::from(area.width), mask_stride(area));
    let mut rgba = Vec::with_capacity(area.pixels() as usize * 4);
    for (index, pixel) in pixels.chunks_exact(layout.bytes()).enumerate() {
        let (x, y) = (index % width, index / width);
        let seen = mask[y * stride + x / 8] & (0x80 >> (x % 8)) != 0;
        rgba.extend(layout.colour(pixel));
        rgba.push(if seen { 255 } else { 0 });
    }
    CursorImage::new(area, rgba)
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
        let cursor = decode(
            &read(&mut wire, area, &Layout::Bgrx).unwrap(),
            &Layout::Bgrx,
        );
        assert_eq!(wire.left(), 0);
        assert_eq!(cursor.hotspot, ScreenPx::new(1, 0));
        assert_eq!(
            cursor.rgba,
            [1, 2, 3, 255, 4, 5, 6, 0, 7, 8, 9, 0, 10, 11, 12, 255]
        );
    }

    #[test]
    fn an_empty_cursor_is_an_invisible_one() {
        let cursor = decode(
            &read(&mut Wire::new(&[]), Area::default(), &Layout::Bgrx).unwrap(),
            &Layout::Bgrx,
        );
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
            read(&mut Wire::new(&[]), area, &Layout::Bgrx),
            Err(Stop::Fault(_))
        ));
    }
}
