//! RRE (2) and CoRRE (4): a background and rectangles on it (RFC 6143 §7.7.3; CoRRE as in the
//! first RFB specification: the same with coordinates of one byte).

use super::super::{
    colour::Layout,
    error::RfbError,
    framebuffer::{Area, Framebuffer},
    limits::{MAX_REPAINTS, max_compressed},
    wire::{Stop, Wire, check_limit},
};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Rre,
    Corre,
}

impl Variant {
    /// Bytes of a rectangle's position and size.
    const fn bytes(self) -> usize {
        match self {
            Self::Rre => 8,
            Self::Corre => 4,
        }
    }
}

/// Background and rectangles as they came.
#[derive(Debug)]
pub(crate) struct Rectangles<'a> {
    variant: Variant,
    background: &'a [u8],
    parts: &'a [u8],
}

/// Takes all of it; `layout` is that of a whole pixel.
pub(crate) fn read<'a>(
    wire: &mut Wire<'a>,
    area: Area,
    variant: Variant,
    layout: &Layout,
) -> Result<Rectangles<'a>, Stop> {
    let length = (layout.bytes() + variant.bytes()) as u64;
    let limit = u64::from(max_compressed(area)) / length;
    let count = u64::from(wire.u32()?);
    check_limit("number of subrectangles", count, limit)?;
    Ok(Rectangles {
        variant,
        background: wire.take(layout.bytes())?,
        parts: wire.take((count * length) as usize)?,
    })
}

/// Paints them, if each lies inside `area` and all together are no more than an honest server's.
/// Gives the pixels that they have, the background apart.
pub(crate) fn decode(
    read: &Rectangles<'_>,
    area: Area,
    layout: &Layout,
    screen: &mut Framebuffer,
) -> Result<u64, RfbError> {
    screen.fill(area, layout.colour(read.background));
    let mut painted = 0;
    let length = layout.bytes() + read.variant.bytes();
    for rectangle in read.parts.chunks_exact(length) {
        let (pixel, place) = rectangle.split_at(layout.bytes());
        let [x, y, width, height] = match (read.variant, place) {
            (Variant::Rre, [a, b, c, d, e, f, g, h]) => {
                [[*a, *b], [*c, *d], [*e, *f], [*g, *h]].map(u16::from_be_bytes)
            }
            (Variant::Corre, [x, y, width, height]) => [*x, *y, *width, *height].map(u16::from),
            _ => [0; 4],
        };
        let part = Area {
            x,
            y,
            width,
            height,
        };
        let part = area.part(part)?;
        painted += part.pixels();
        check_limit(
            "area painted by subrectangles",
            painted,
            area.pixels() * MAX_REPAINTS,
        )?;
        screen.fill(part, layout.colour(pixel));
    }
    Ok(painted)
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{colour::Colours, pixel::PixelFormat},
        *,
    };

    const AREA: Area = Area {
        x: 1,
        y: 1,
        width: 3,
        height: 2,
    };

    fn run(variant: Variant, bytes: &[u8]) -> Result<Vec<[u8; 3]>, Stop> {
        let layout = Colours::new(&PixelFormat::WIRE).pixel;
        let mut screen = Framebuffer::new(4, 3).unwrap();
        let mut wire = Wire::new(bytes);
        let rectangles = read(&mut wire, AREA, variant, &layout)?;
        decode(&rectangles, AREA, &layout, &mut screen)?;
        assert_eq!(wire.left(), 0);
        Ok(screen.rgb().as_chunks::<3>().0.to_vec())
    }

    #[test]
    fn rectangles_lie_on_the_background_in_both_variants() {
        let head = [0, 0, 0, 1, 3, 2, 1, 0, 6, 5, 4, 0];
        let rre = run(
            Variant::Rre,
            &[&head[..], &[0, 1, 0, 0, 0, 2, 0, 1]].concat(),
        );
        let corre = run(Variant::Corre, &[&head[..], &[1, 0, 2, 1]].concat());
        let (o, b, s) = ([0; 3], [1, 2, 3], [4, 5, 6]);
        let expected = [[o; 4], [o, b, s, s], [o, b, b, b]].concat();
        assert_eq!(rre.unwrap(), expected);
        assert_eq!(corre.unwrap(), expected);
    }

    #[test]
    fn no_rectangles_are_a_plain_background() {
        let all = run(Variant::Rre, &[0, 0, 0, 0, 3, 2, 1, 0]).unwrap();
        assert_eq!(all[5], [1, 2, 3]);
        assert_eq!(all[0], [0; 3]);
    }

    #[test]
    fn what_lies_outside_is_refused() {
        for place in [[1, 0, 3, 1], [0, 1, 1, 2], [255; 4], [3, 0, 1, 1]] {
            let bytes = [&[0, 0, 0, 1][..], &[0; 8], &place].concat();
            assert!(
                matches!(run(Variant::Corre, &bytes), Err(Stop::Fault(_))),
                "{place:?}"
            );
        }
    }

    #[test]
    fn a_count_beyond_reason_is_refused_at_once() {
        let stop = run(Variant::Rre, &[255; 4]).unwrap_err();
        assert!(matches!(stop, Stop::Fault(RfbError::TooLarge { .. })));
    }

    #[test]
    fn painting_the_same_again_and_again_is_refused() {
        let bytes = [
            &[0, 0, 0, 20][..],
            &[0; 4],
            &[1, 1, 1, 0, 0, 0, 3, 2].repeat(20),
        ]
        .concat();
        let stop = run(Variant::Corre, &bytes).unwrap_err();
        assert!(matches!(stop, Stop::Fault(RfbError::TooLarge { .. })));
    }
}
