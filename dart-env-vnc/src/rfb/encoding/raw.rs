//! Raw (0): the pixels, row by row (RFC 6143 §7.7.1).
//!
//! Rows are taken as they arrive, so that a large rectangle is never held twice.

use super::super::{
    colour::Layout,
    framebuffer::{Area, Framebuffer},
    wire::{Stop, Wire},
};

/// Some whole rows of a rectangle.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    area: Area,
    pixels: &'a [u8],
}

impl Rows<'_> {
    /// How many rows.
    pub(crate) const fn count(&self) -> u16 {
        self.area.height
    }
}

/// Takes as many whole rows of `area`, of which `done` were taken before, as have
/// arrived; `layout` is that of a whole pixel.
pub(crate) fn read<'a>(
    wire: &mut Wire<'a>,
    area: Area,
    done: u16,
    layout: &Layout,
) -> Result<Rows<'a>, Stop> {
    let length = area.row_bytes(layout);
    let missing = area.height.saturating_sub(done);
    if length == 0 || missing == 0 {
        return Ok(Rows {
            area: Area {
                height: missing,
                ..area
            },
            pixels: &[],
        });
    }
    let arrived = wire.left() / length;
    let height = missing.min(u16::try_from(arrived).unwrap_or(u16::MAX));
    if height == 0 {
        return Err(Stop::Incomplete);
    }
    Ok(Rows {
        area: Area {
            y: area.y + done,
            height,
            ..area
        },
        pixels: wire.take(length * usize::from(height))?,
    })
}

/// Paints the rows.
pub(crate) fn decode(rows: &Rows<'_>, layout: &Layout, screen: &mut Framebuffer) {
    screen.draw(rows.area, layout, rows.pixels);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_as_they_arrive() {
        let area = Area {
            x: 1,
            y: 1,
            width: 2,
            height: 2,
        };
        let bytes = (1..=16).collect::<Vec<u8>>();
        let mut screen = Framebuffer::new(4, 4).unwrap();
        assert!(matches!(
            read(&mut Wire::new(&bytes[..7]), area, 0, &Layout::Bgrx),
            Err(Stop::Incomplete)
        ));
        let mut wire = Wire::new(&bytes[..15]);
        let first = read(&mut wire, area, 0, &Layout::Bgrx).unwrap();
        assert_eq!((first.count(), wire.taken()), (1, 8));
        decode(&first, &Layout::Bgrx, &mut screen);
        let second = read(&mut Wire::new(&bytes[8..]), area, 1, &Layout::Bgrx).unwrap();
        decode(&second, &Layout::Bgrx, &mut screen);
        let mut expected = vec![0; 48];
        expected[15..21].copy_from_slice(&[3, 2, 1, 7, 6, 5]);
        expected[27..33].copy_from_slice(&[11, 10, 9, 15, 14, 13]);
        assert_eq!(screen.rgb(), expected);
    }
}
