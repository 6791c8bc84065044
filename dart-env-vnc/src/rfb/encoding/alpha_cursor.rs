//! CursorWithAlpha (-314): the shape of the pointer with opacity (as registered with rfbproto).
//!
//! Its pixels may come in any encoding that the client offered; servers send Raw, and nothing else
//! is taken: a shape is small.

use super::{
    super::{
        error::RfbError,
        framebuffer::Area,
        wire::{Stop, Wire},
    },
    cursor::{CursorImage, check_sides},
    number,
};

/// Pixels as they came: red, green, blue times opacity, and opacity.
#[derive(Debug)]
pub(crate) struct Shape<'a> {
    area: Area,
    pixels: &'a [u8],
}

/// Takes the pixels; the rectangle's position is the hotspot.
pub(crate) fn read<'a>(wire: &mut Wire<'a>, area: Area) -> Result<Shape<'a>, Stop> {
    check_sides(area)?;
    let encoding = wire.i32()?;
    if encoding != number::RAW {
        return Err(Stop::Fault(RfbError::Unknown {
            what: "encoding of a cursor",
            value: encoding.into(),
        }));
    }
    let pixels = wire.take(area.pixels() as usize * 4)?;
    Ok(Shape { area, pixels })
}

/// Divides the colours by the opacity.
pub(crate) fn decode(shape: &Shape<'_>) -> CursorImage {
    let mut rgba = shape.pixels.to_vec();
    for [colour @ .., opacity] in rgba.as_chunks_mut::<4>().0 {
        let opacity = u16::from(*opacity);
        for channel in colour {
            let whole = (u16::from(*channel) * 255 + opacity / 2).checked_div(opacity);
            *channel = whole.unwrap_or(0).min(255) as u8;
        }
    }
    CursorImage::new(shape.area, rgba)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_divided_by_the_opacity() {
        let area = Area {
            width: 4,
            height: 1,
            ..Area::default()
        };
        let pixels = [10, 20, 30, 255, 100, 50, 0, 128, 7, 7, 7, 0, 255, 0, 1, 2];
        let bytes = [&[0; 4][..], &pixels].concat();
        let cursor = decode(&read(&mut Wire::new(&bytes), area).unwrap());
        let expected = [
            10, 20, 30, 255, 199, 100, 0, 128, 0, 0, 0, 0, 255, 0, 128, 2,
        ];
        assert_eq!(cursor.rgba, expected);
    }

    #[test]
    fn other_encodings_are_refused() {
        let stop = read(&mut Wire::new(&[0, 0, 0, 16]), Area::default());
        assert!(matches!(stop, Err(Stop::Fault(RfbError::Unknown { .. }))));
    }
}
