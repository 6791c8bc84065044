//! The server's screen as we know it: RGB pixels and what has changed in them.

use std::fmt;

use dart_core::Size;

use super::{
    colour::{Colour, Layout},
    error::RfbError,
    limits::{MAX_PIXELS, MAX_SIDE},
    wire::{Stop, Wire, check_limit},
};

/// A rectangle as it comes over the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Area {
    pub x: u16,
    pub y: u16,
    pub width: u16,
    pub height: u16,
}

impl Area {
    pub(crate) fn read(wire: &mut Wire<'_>) -> Result<Self, Stop> {
        Ok(Self {
            x: wire.u16()?,
            y: wire.u16()?,
            width: wire.u16()?,
            height: wire.u16()?,
        })
    }

    /// All of a screen. Sides beyond the wire's range are cut.
    pub fn all(size: Size) -> Self {
        let cut = |side: u32| u16::try_from(side).unwrap_or(u16::MAX);
        Self {
            x: 0,
            y: 0,
            width: cut(size.width),
            height: cut(size.height),
        }
    }

    /// One pixel.
    pub const fn pixel(x: u16, y: u16) -> Self {
        Self {
            x,
            y,
            width: 1,
            height: 1,
        }
    }

    /// Number of pixels.
    pub const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }

    /// Whether the pixel is inside.
    pub const fn contains(self, x: u16, y: u16) -> bool {
        x >= self.x && y >= self.y && x - self.x < self.width && y - self.y < self.height
    }

    /// Bytes of a row of pixels.
    pub(crate) const fn row_bytes(self, layout: &Layout) -> usize {
        self.width as usize * layout.bytes()
    }

    /// The `index`-th square of `side` pixels, row by row; those at the edges are cut. `None`
    /// after the last.
    pub(crate) fn tile(self, side: u16, index: u32) -> Option<Self> {
        let columns = u32::from(self.width.div_ceil(side));
        let row = index.checked_div(columns)?;
        if row >= u32::from(self.height.div_ceil(side)) {
            return None;
        }
        let (x, y) = ((index % columns) as u16 * side, row as u16 * side);
        Some(Self {
            x: self.x + x,
            y: self.y + y,
            width: side.min(self.width - x),
            height: side.min(self.height - y),
        })
    }

    /// A part of this rectangle, given from its corner; fails unless it lies inside.
    pub(crate) fn part(self, part: Self) -> Result<Self, RfbError> {
        let right = u32::from(part.x) + u32::from(part.width);
        let bottom = u32::from(part.y) + u32::from(part.height);
        if right > u32::from(self.width) || bottom > u32::from(self.height) {
            return Err(RfbError::Malformed {
                what: "a subrectangle lies outside its rectangle",
            });
        }
        Ok(Self {
            x: self.x + part.x,
            y: self.y + part.y,
            ..part
        })
    }

    /// Fails unless the rectangle lies inside a screen of this size.
    pub(crate) fn check_inside(self, size: Size) -> Result<(), RfbError> {
        let right = u32::from(self.x) + u32::from(self.width);
        let bottom = u32::from(self.y) + u32::from(self.height);
        if right <= size.width && bottom <= size.height {
            Ok(())
        } else {
            Err(RfbError::Malformed {
                what: "a rectangle lies outside the framebuffer",
            })
        }
    }
}

/// Pixels of the server's screen.
pub struct Framebuffer {
    size: Size,
    rgb: Vec<u8>,
    damage: Vec<Area>,
}

impl Framebuffer {
    /// More separate rectangles than this are remembered as "everything".
    const MAX_DAMAGE: usize = 256;

    /// A black screen.
    ///
    /// # Errors
    /// If the size is empty or beyond the limits.
    pub fn new(width: u16, height: u16) -> Result<Self, RfbError> {
        let longest = width.max(height);
        check_limit("framebuffer side", longest.into(), MAX_SIDE.into())?;
        let size = Size::new(width.into(), height.into());
        check_limit("framebuffer area", size.area() as u64, MAX_PIXELS as u64)?;
        if size.area() == 0 {
            return Err(RfbError::Malformed {
                what: "the framebuffer is empty",
            });
        }
        Ok(Self {
            size,
            rgb: vec![0; size.area() * 3],
            damage: vec![Area::all(size)],
        })
    }

    /// Width and height.
    pub const fn size(&self) -> Size {
        self.size
    }

    /// Red, green and blue of each pixel, rows top to bottom.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// Takes the list of rectangles that changed since the last call.
    pub fn take_damage(&mut self) -> Vec<Area> {
        std::mem::take(&mut self.damage)
    }

    /// Remembers that `area` changes. Painting itself does not: one rectangle is many strokes.
    pub(crate) fn touch(&mut self, area: Area) {
        if area.pixels() == 0 {
            return;
        }
        if self.damage.len() >= Self::MAX_DAMAGE {
            self.damage = vec![Area::all(self.size)];
        }
        self.damage.push(area);
    }

    fn offset(&self, x: u16, y: u16) -> usize {
        (usize::from(y) * self.size.width as usize + usize::from(x)) * 3
    }

    /// Some pixels of a row, to be painted. They must lie on the screen.
    pub(crate) fn row_mut(&mut self, x: u16, y: u16, width: u16) -> &mut [u8] {
        let start = self.offset(x, y);
        &mut self.rgb[start..start + usize::from(width) * 3]
    }

    fn rows_mut(&mut self, area: Area) -> impl Iterator<Item = &mut [u8]> {
        let stride = self.size.width as usize * 3;
        let (left, width) = (usize::from(area.x) * 3, usize::from(area.width) * 3);
        let rows = self.rgb.chunks_exact_mut(stride).skip(area.y.into());
        let rows = rows.take(if width == 0 { 0 } else { area.height.into() });
        rows.map(move |row| &mut row[left..left + width])
    }

    /// Paints `area` with rows of pixels.
    pub(crate) fn draw(&mut self, area: Area, layout: &Layout, pixels: &[u8]) {
        let length = area.row_bytes(layout).max(1);
        for (row, pixels) in self.rows_mut(area).zip(pixels.chunks_exact(length)) {
            layout.row(pixels, row);
        }
    }

    /// Paints `area` with rows of colours.
    pub(crate) fn draw_rgb(&mut self, area: Area, rgb: &[u8]) {
        let length = (usize::from(area.width) * 3).max(1);
        for (row, colours) in self.rows_mut(area).zip(rgb.chunks_exact(length)) {
            row.copy_from_slice(colours);
        }
    }

    /// Paints `area` with one colour.
    pub(crate) fn fill(&mut self, area: Area, colour: Colour) {
        for row in self.rows_mut(area) {
            row.as_chunks_mut::<3>().0.fill(colour);
        }
    }

    /// Paints pixels of the usual format, as a rectangle from a server would.
    #[cfg(test)]
    pub(crate) fn paint(&mut self, area: Area, pixels: &[u8]) {
        self.touch(area);
        self.draw(area, &Layout::Bgrx, pixels);
    }

    /// Copies the pixels at (`x`, `y`) to `to`; the two may overlap.
    pub(crate) fn copy(&mut self, x: u16, y: u16, to: Area) {
        let length = usize::from(to.width) * 3;
        let mut copy_row = |row: u16| {
            let from = self.offset(x, y + row);
            let target = self.offset(to.x, to.y + row);
            self.rgb.copy_within(from..from + length, target);
        };
        // Rows are copied in the order in which none is overwritten before it was read.
        if y >= to.y {
            (0..to.height).for_each(&mut copy_row);
        } else {
            (0..to.height).rev().for_each(&mut copy_row);
        }
    }
}

impl fmt::Debug for Framebuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Framebuffer({})", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bounded_before_allocation() {
        assert!(Framebuffer::new(16_385, 1).is_err());
        assert!(Framebuffer::new(16_384, 16_384).is_err());
        assert!(Framebuffer::new(0, 10).is_err());
        assert!(Framebuffer::new(16_384, 1).is_ok());
    }

    #[test]
    fn overlapping_copies_are_exact_in_every_direction() {
        for (dx, dy) in [
            (0i32, 1i32),
            (0, -1),
            (1, 0),
            (-1, 0),
            (1, 1),
            (-1, -1),
            (1, -1),
        ] {
            let mut screen = Framebuffer::new(4, 4).unwrap();
            let before = (0..48).collect::<Vec<u8>>();
            screen.rgb.copy_from_slice(&before);
            let to = Area {
                x: (1 + dx) as u16,
                y: (1 + dy) as u16,
                width: 2,
                height: 2,
            };
            screen.copy(1, 1, to);
            for y in 0..4u16 {
                for x in 0..4u16 {
                    let inside = (to.x..to.x + 2).contains(&x) && (to.y..to.y + 2).contains(&y);
                    let (sx, sy) = if inside {
                        ((i32::from(x) - dx) as u16, (i32::from(y) - dy) as u16)
                    } else {
                        (x, y)
                    };
                    let (at, from) = (screen.offset(x, y), screen.offset(sx, sy));
                    assert_eq!(screen.rgb[at..at + 3], before[from..from + 3], "{dx},{dy}");
                }
            }
        }
    }

    #[test]
    fn tiles_cover_a_rectangle_once() {
        let area = Area {
            x: 3,
            y: 5,
            width: 33,
            height: 16,
        };
        let tiles = (0..).map_while(|index| area.tile(16, index));
        let tiles = tiles.map(|tile| (tile.x, tile.y, tile.width, tile.height));
        let expected = [(3, 5, 16, 16), (19, 5, 16, 16), (35, 5, 1, 16)];
        assert_eq!(tiles.collect::<Vec<_>>(), expected);
        assert_eq!(Area { width: 0, ..area }.tile(16, 0), None);
        assert_eq!(Area { height: 0, ..area }.tile(16, 0), None);
    }

    #[test]
    fn damage_is_bounded() {
        let mut screen = Framebuffer::new(4, 4).unwrap();
        let dot = Area {
            width: 1,
            height: 1,
            ..Area::default()
        };
        for _ in 0..10_000 {
            screen.touch(dot);
        }
        assert!(screen.take_damage().len() <= Framebuffer::MAX_DAMAGE);
        assert!(screen.take_damage().is_empty());
    }
}
