//! A picture in memory: filled rectangles, frames, lines of pixels and text.

use dart_core::{Rect, Size};

use crate::font::{self, ADVANCE};

/// Red, green, blue.
pub(crate) type Rgb = [u8; 3];

/// 8-bit RGB pixels, rows top to bottom. Everything drawn is clipped to the picture.
#[derive(Clone, Debug)]
pub(crate) struct Canvas {
    size: Size,
    rgb: Vec<u8>,
}

impl Canvas {
    /// A black picture.
    pub(crate) fn new(size: Size) -> Self {
        let rgb = vec![0; size.area() * 3];
        Self { size, rgb }
    }

    /// The bytes.
    pub(crate) fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// Fills everything.
    pub(crate) fn clear(&mut self, color: Rgb) {
        fill_pixels(&mut self.rgb, color);
    }

    /// Fills `rect`.
    pub(crate) fn fill(&mut self, rect: Rect, color: Rgb) {
        let (width, height) = (self.size.width as i32, self.size.height as i32);
        let (left, top) = (rect.x.clamp(0, width), rect.y.clamp(0, height));
        let right = (rect.x + rect.width as i32).clamp(left, width);
        let bottom = (rect.y + rect.height as i32).clamp(top, height);
        for y in top..bottom {
            let row = (y * width) as usize;
            let span = (row + left as usize) * 3..(row + right as usize) * 3;
            fill_pixels(&mut self.rgb[span], color);
        }
    }

    /// Draws the border of `rect`, `thickness` pixels inwards.
    pub(crate) fn frame(&mut self, rect: Rect, thickness: u32, color: Rgb) {
        let Rect {
            x,
            y,
            width,
            height,
        } = rect;
        let t = thickness as i32;
        let (right, bottom) = (x + width as i32, y + height as i32);
        self.fill(Rect::new(x, y, width, thickness), color);
        self.fill(Rect::new(x, bottom - t, width, thickness), color);
        self.fill(Rect::new(x, y, thickness, height), color);
        self.fill(Rect::new(right - t, y, thickness, height), color);
    }

    /// Sets one pixel.
    pub(crate) fn dot(&mut self, x: i32, y: i32, color: Rgb) {
        if x >= 0 && y >= 0 && x < self.size.width as i32 && y < self.size.height as i32 {
            let at = (y as usize * self.size.width as usize + x as usize) * 3;
            self.rgb[at..at + 3].copy_from_slice(&color);
        }
    }

    /// Draws `rows` of bits with the top left corner at (`x`, `y`), the highest of `width` bits on
    /// the left.
    pub(crate) fn bits<R>(&mut self, (x, y): (i32, i32), width: u32, rows: &[R], color: Rgb)
    where
        R: Copy + Into<u16>,
    {
        for (dy, row) in (0..).zip(rows) {
            let row: u16 = (*row).into();
            for dx in 0..width {
                if (row >> (width - 1 - dx)) & 1 == 1 {
                    self.dot(x + dx as i32, y + dy, color);
                }
            }
        }
    }

    /// Writes `text` with its top left corner at (`x`, `y`).
    pub(crate) fn text(
        &mut self,
        (x, y): (i32, i32),
        text: impl Iterator<Item = char>,
        color: Rgb,
    ) {
        for (index, c) in (0..).zip(text) {
            self.bits((x + index * ADVANCE, y), 5, font::glyph(c), color);
        }
    }

    /// A picture of `size` in which each pixel of this one is a square of `scale` pixels, cut at
    /// the right and at the bottom.
    pub(crate) fn enlarged(&self, size: Size, scale: u32) -> Vec<u8> {
        let (row_bytes, scale) = (size.width as usize * 3, scale as usize);
        let mut out = vec![0; size.area() * 3];
        let source = self.rgb.chunks_exact(self.size.width as usize * 3);
        for (from, block) in source.zip(out.chunks_mut(row_bytes * scale)) {
            let (first, others) = block.split_at_mut(row_bytes);
            for (pixel, square) in from.chunks_exact(3).zip(first.chunks_mut(3 * scale)) {
                for copy in square.chunks_exact_mut(3) {
                    copy.copy_from_slice(pixel);
                }
            }
            for other in others.chunks_exact_mut(row_bytes) {
                other.copy_from_slice(first);
            }
        }
        out
    }
}

fn fill_pixels(bytes: &mut [u8], color: Rgb) {
    for pixel in bytes.chunks_exact_mut(3) {
        pixel.copy_from_slice(&color);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INK: Rgb = [1, 2, 3];

    fn inked(canvas: &Canvas) -> usize {
        canvas.rgb().chunks_exact(3).filter(|p| **p == INK).count()
    }

    #[test]
    fn drawing_is_clipped() {
        let mut canvas = Canvas::new(Size::new(10, 8));
        canvas.fill(Rect::new(-5, -5, 7, 7), INK);
        assert_eq!(inked(&canvas), 4);
        canvas.fill(Rect::new(8, 6, 100, 100), INK);
        assert_eq!(inked(&canvas), 8);
        canvas.text((9, 7), "###".chars(), INK);
        canvas.frame(Rect::new(20, 20, 5, 5), 1, INK);
        assert_eq!(inked(&canvas), 8);
    }

    #[test]
    fn enlarging_repeats_pixels_and_cuts() {
        let mut canvas = Canvas::new(Size::new(2, 2));
        canvas.dot(1, 0, INK);
        let out = canvas.enlarged(Size::new(5, 4), 3);
        assert_eq!(out.len(), 5 * 4 * 3);
        let ink: Vec<usize> = (0..20).filter(|i| out[i * 3..i * 3 + 3] == INK).collect();
        assert_eq!(ink, [3, 4, 8, 9, 13, 14]);
    }
}
