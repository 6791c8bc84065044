//! The server's screen as we know it: RGB pixels and what has changed in them.

use std::fmt;

use dart_core::Size;

use super::{
    error::RfbError,
    limits::{MAX_PIXELS, MAX_SIDE},
    pixel,
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

    /// Remembers that `area` changes.
    fn touch(&mut self, area: Area) {
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

    /// Paints `area` with pixels in wire format.
    pub(crate) fn paint(&mut self, area: Area, pixels: &[u8]) {
        self.touch(area);
        let length = usize::from(area.width) * pixel::PixelFormat::BYTES;
        if length == 0 {
            return;
        }
        for (y, row) in (area.y..).zip(pixels.chunks_exact(length)) {
            let start = self.offset(area.x, y);
            let end = start + usize::from(area.width) * 3;
            pixel::to_rgb(row, &mut self.rgb[start..end]);
        }
    }

    /// Copies the pixels at (`x`, `y`) to `to`; the two may overlap.
    pub(crate) fn copy(&mut self, x: u16, y: u16, to: Area) {
        self.touch(to);
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
    fn damage_is_bounded() {
        let mut screen = Framebuffer::new(4, 4).unwrap();
        let dot = Area {
            width: 1,
            height: 1,
            ..Area::default()
        };
        for _ in 0..10_000 {
            screen.paint(dot, &[0; 4]);
        }
        assert!(screen.take_damage().len() <= Framebuffer::MAX_DAMAGE);
        assert!(screen.take_damage().is_empty());
    }
}
