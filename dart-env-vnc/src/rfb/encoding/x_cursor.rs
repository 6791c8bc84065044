//! XCursor (-240): the shape of the pointer in two colours and two masks (RFC 6143 §7.8.1 has the
//! one with pixels; this one is registered with rfbproto).

use super::{
    super::{
        colour::{BLACK, Colour},
        framebuffer::Area,
        wire::{Stop, Wire},
    },
    cursor::{CursorImage, check_sides, mask_stride},
};

/// Colours and masks as they came.
#[derive(Debug)]
pub(crate) struct Shape<'a> {
    area: Area,
    colours: [Colour; 2],
    bitmap: &'a [u8],
    mask: &'a [u8],
}

/// Takes colours and masks; the rectangle's position is the hotspot.
pub(crate) fn read<'a>(wire: &mut Wire<'a>, area: Area) -> Result<Shape<'a>, Stop> {
    check_sides(area)?;
    let mut shape = Shape {
        area,
        colours: [BLACK; 2],
        bitmap: &[],
        mask: &[],
    };
    if area.pixels() > 0 {
        for colour in &mut shape.colours {
            colour.copy_from_slice(wire.take(3)?);
        }
        let length = mask_stride(area) * usize::from(area.height);
        shape.bitmap = wire.take(length)?;
        shape.mask = wire.take(length)?;
    }
    Ok(shape)
}

/// Joins colours and masks: set bits have the first colour.
pub(crate) fn decode(shape: &Shape<'_>) -> CursorImage {
    let stride = mask_stride(shape.area);
    let mut rgba = Vec::with_capacity(shape.area.pixels() as usize * 4);
    for y in 0..usize::from(shape.area.height) {
        for x in 0..usize::from(shape.area.width) {
            let set = |mask: &[u8]| mask[y * stride + x / 8] & (0x80 >> (x % 8)) != 0;
            rgba.extend(shape.colours[usize::from(!set(shape.bitmap))]);
            rgba.push(if set(shape.mask) { 255 } else { 0 });
        }
    }
    CursorImage::new(shape.area, rgba)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_masks_are_joined() {
        let area = Area {
            x: 1,
            y: 0,
            width: 9,
            height: 1,
        };
        let bytes = [1, 2, 3, 4, 5, 6, 0b1000_0000, 0x80, 0b1100_0000, 0];
        let mut wire = Wire::new(&bytes);
        let cursor = decode(&read(&mut wire, area).unwrap());
        assert_eq!(wire.left(), 0);
        assert_eq!(cursor.rgba[..12], [1, 2, 3, 255, 4, 5, 6, 255, 4, 5, 6, 0]);
        assert_eq!(cursor.rgba[32..], [1, 2, 3, 0]);
    }

    #[test]
    fn an_empty_one_has_no_colours() {
        let mut wire = Wire::new(&[9]);
        let cursor = decode(&read(&mut wire, Area::default()).unwrap());
        assert_eq!((cursor.rgba.len(), wire.left()), (0, 1));
    }
}
