//! Hextile (5): tiles of 16x16, each raw or a background with rectangles on it (RFC 6143 §7.7.4).
//!
//! A tile is one unit: a rectangle is never held as a whole.

use super::super::{
    colour::{BLACK, Colour, Layout},
    error::RfbError,
    framebuffer::{Area, Framebuffer},
    limits::MAX_REPAINTS,
    wire::{Stop, Wire, check_limit},
};

/// Side of a tile.
pub(crate) const SIDE: u16 = 16;

const RAW: u8 = 1;
const BACKGROUND: u8 = 2;
const FOREGROUND: u8 = 4;
const RECTANGLES: u8 = 8;
const COLOURED: u8 = 16;

/// The colours that a tile takes over from the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Colours {
    background: Colour,
    foreground: Colour,
}

impl Default for Colours {
    fn default() -> Self {
        Self {
            background: BLACK,
            foreground: BLACK,
        }
    }
}

/// A tile as it came.
#[derive(Debug)]
pub(crate) enum Tile<'a> {
    Raw(&'a [u8]),
    Painted {
        colours: Colours,
        coloured: bool,
        rectangles: &'a [u8],
    },
}

/// Takes the tile at `area`; `layout` is that of a whole pixel.
pub(crate) fn read<'a>(
    wire: &mut Wire<'a>,
    area: Area,
    before: Colours,
    layout: &Layout,
) -> Result<Tile<'a>, Stop> {
    let bytes = layout.bytes();
    let kind = wire.u8()?;
    if kind & RAW != 0 {
        return wire.take(area.pixels() as usize * bytes).map(Tile::Raw);
    }
    let mut colours = before;
    if kind & BACKGROUND != 0 {
        colours.background = layout.colour(wire.take(bytes)?);
    }
    if kind & FOREGROUND != 0 {
        colours.foreground = layout.colour(wire.take(bytes)?);
    }
    let coloured = kind & COLOURED != 0;
    let count = if kind & RECTANGLES == 0 {
        0
    } else {
        usize::from(wire.u8()?)
    };
    let length = if coloured { bytes + 2 } else { 2 };
    Ok(Tile::Painted {
        colours,
        coloured,
        rectangles: wire.take(count * length)?,
    })
}

/// Paints the tile, and gives the colours that the next one takes over and the pixels of the
/// rectangles on the background.
pub(crate) fn decode(
    tile: &Tile<'_>,
    area: Area,
    before: Colours,
    layout: &Layout,
    screen: &mut Framebuffer,
) -> Result<(Colours, u64), RfbError> {
    let (colours, coloured, rectangles) = match *tile {
        Tile::Raw(pixels) => {
            screen.draw(area, layout, pixels);
            return Ok((before, 0));
        }
        Tile::Painted {
            colours,
            coloured,
            rectangles,
        } => (colours, coloured, rectangles),
    };
    screen.fill(area, colours.background);
    let pixel = if coloured { layout.bytes() } else { 0 };
    let mut painted = 0;
    for rectangle in rectangles.chunks_exact(pixel + 2) {
        let (pixel, place) = rectangle.split_at(pixel);
        let [corner, size] = [place[0], place[1]];
        let part = area.part(Area {
            x: (corner >> 4).into(),
            y: (corner & 15).into(),
            width: u16::from(size >> 4) + 1,
            height: u16::from(size & 15) + 1,
        })?;
        painted += part.pixels();
        let limit = area.pixels() * MAX_REPAINTS;
        check_limit("area painted by subrectangles", painted, limit)?;
        let colour = if coloured {
            layout.colour(pixel)
        } else {
            colours.foreground
        };
        screen.fill(part, colour);
    }
    Ok((colours, painted))
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{colour, pixel::PixelFormat},
        *,
    };

    const AREA: Area = Area {
        x: 1,
        y: 0,
        width: 3,
        height: 2,
    };
    const O: Colour = [0; 3];
    const A: Colour = [1, 2, 3];
    const B: Colour = [4, 5, 6];
    const C: Colour = [7, 8, 9];

    fn run(tiles: &[&[u8]]) -> Result<Vec<Colour>, Stop> {
        let layout = colour::Colours::new(&PixelFormat::WIRE).pixel;
        let mut screen = Framebuffer::new(4, 2).unwrap();
        let mut colours = Colours::default();
        for bytes in tiles {
            let mut wire = Wire::new(bytes);
            let tile = read(&mut wire, AREA, colours, &layout)?;
            (colours, _) = decode(&tile, AREA, colours, &layout, &mut screen)?;
            assert_eq!(wire.left(), 0);
        }
        Ok(screen.rgb().as_chunks::<3>().0.to_vec())
    }

    #[test]
    fn raw() {
        let pixels = [1u8, 2, 3, 4, 5, 6].map(|n| [n, n, n, 0]);
        let seen = run(&[&[&[1][..], pixels.as_flattened()].concat()]).unwrap();
        assert_eq!(seen, [O, [1; 3], [2; 3], [3; 3], O, [4; 3], [5; 3], [6; 3]]);
    }

    #[test]
    fn a_background() {
        assert_eq!(run(&[&[2, 3, 2, 1, 0]]).unwrap(), [O, A, A, A, O, A, A, A]);
    }

    #[test]
    fn rectangles_in_the_foreground() {
        let seen = run(&[&[14, 3, 2, 1, 0, 6, 5, 4, 0, 1, 0x10, 0x11]]).unwrap();
        assert_eq!(seen, [O, A, B, B, O, A, B, B]);
    }

    #[test]
    fn rectangles_of_their_own_colours() {
        let bytes = [
            26, 3, 2, 1, 0, 2, 6, 5, 4, 0, 0x00, 0x00, 9, 8, 7, 0, 0x21, 0x00,
        ];
        assert_eq!(run(&[&bytes]).unwrap(), [O, B, A, A, O, A, A, C]);
    }

    #[test]
    fn colours_are_taken_over_also_past_a_raw_tile() {
        let first = [14, 3, 2, 1, 0, 6, 5, 4, 0, 0];
        let raw = [&[1][..], &[9; 24]].concat();
        let third = [8, 1, 0x00, 0x20];
        assert_eq!(
            run(&[&first, &raw, &third]).unwrap(),
            [O, B, B, B, O, A, A, A]
        );
    }

    #[test]
    fn what_lies_outside_the_tile_is_refused() {
        for place in [[0x20, 0x10], [0x01, 0x01], [0xff, 0xff], [0x30, 0x00]] {
            let bytes = [&[8, 1][..], &place].concat();
            assert!(matches!(run(&[&bytes]), Err(Stop::Fault(_))), "{place:?}");
        }
    }

    #[test]
    fn painting_the_same_again_and_again_is_refused() {
        let bytes = [&[8, 255][..], &[0x00, 0x21].repeat(255)].concat();
        assert!(matches!(
            run(&[&bytes]),
            Err(Stop::Fault(RfbError::TooLarge { .. }))
        ));
    }
}
