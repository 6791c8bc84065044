//! Frames to what the model sees: windows of grey pixels with a little colour.
//!
//! A window is 24x24 pixels around an image token's own 16x16. Its grey values are taken relative
//! to their mean, because what is written does not depend on the background; the mean colours of
//! its 3x3 blocks of 8 pixels say the rest.

use std::collections::HashMap;

use dart_core::{Frame, Size};

use crate::config::{CELL, ModelConfig, STRIDE, WINDOW};

const AREA: usize = (WINDOW * WINDOW) as usize;
/// Blocks along one side of a window.
const BLOCKS: usize = (WINDOW / CELL) as usize;
/// Colour numbers of a window.
const COLOURS: usize = BLOCKS * BLOCKS * 3;
/// Numbers that describe a window, filled up to a multiple of 16.
pub(crate) const INPUTS: usize = (AREA + COLOURS).next_multiple_of(16);
/// Pixels around the image, repeated from its edge.
const MARGIN: usize = ((WINDOW - STRIDE) / 2) as usize;

/// An image ready to be cut into windows.
#[derive(Debug)]
pub(crate) struct Picture {
    columns: usize,
    rows: usize,
    /// Luminance with margin.
    grey: Vec<u8>,
    grey_width: usize,
    /// Mean colour of each 8x8 block of the image with margin.
    blocks: Vec<[u8; 3]>,
    block_columns: usize,
}

impl Picture {
    /// Prepares a frame, resized to the model's image if it has another size.
    pub(crate) fn new(config: &ModelConfig, frame: &Frame) -> Self {
        let resized;
        let rgb = if frame.size() == config.image() {
            frame.rgb()
        } else {
            resized = resize(frame, config.image());
            &resized
        };
        let (width, height) = (config.image_width as usize, config.image_height as usize);
        let (grey_width, grey_height) = (width + 2 * MARGIN, height + 2 * MARGIN);
        let cell = CELL as usize;
        let (block_columns, block_rows) = (grey_width / cell, grey_height / cell);
        let mut grey = Vec::with_capacity(grey_width * grey_height);
        let mut sums = vec![[0u32; 3]; block_columns * block_rows];
        for y in 0..grey_height {
            let source_y = y.saturating_sub(MARGIN).min(height - 1);
            for x in 0..grey_width {
                let source_x = x.saturating_sub(MARGIN).min(width - 1);
                let at = (source_y * width + source_x) * 3;
                let [r, g, b] = [rgb[at], rgb[at + 1], rgb[at + 2]].map(u32::from);
                // Rec. 601 luma in 1/256.
                grey.push(((77 * r + 150 * g + 29 * b) >> 8) as u8);
                let sum = &mut sums[(y / cell) * block_columns + x / cell];
                *sum = [sum[0] + r, sum[1] + g, sum[2] + b];
            }
        }
        let blocks = sums
            .iter()
            .map(|sum| sum.map(|s| (s / (CELL * CELL)) as u8))
            .collect();
        let (columns, rows) = config.grid();
        Self {
            columns,
            rows,
            grey,
            grey_width,
            blocks,
            block_columns,
        }
    }

    fn window(&self, column: usize, row: usize) -> [u8; AREA + COLOURS] {
        let mut bytes = [0; AREA + COLOURS];
        let (stride, side) = (STRIDE as usize, WINDOW as usize);
        let corner = row * stride * self.grey_width + column * stride;
        for (y, line) in bytes[..AREA].chunks_exact_mut(side).enumerate() {
            let at = corner + y * self.grey_width;
            line.copy_from_slice(&self.grey[at..at + side]);
        }
        let step = (STRIDE / CELL) as usize;
        let corner = row * step * self.block_columns + column * step;
        for (index, colour) in bytes[AREA..].chunks_exact_mut(3).enumerate() {
            let at = corner + index / BLOCKS * self.block_columns + index % BLOCKS;
            colour.copy_from_slice(&self.blocks[at]);
        }
        bytes
    }
}

/// The distinct windows of some pictures.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    keys: Vec<[u8; AREA + COLOURS]>,
    by_hash: HashMap<u64, Vec<u32>>,
}

impl Windows {
    /// Indices of a picture's windows, row by row.
    pub(crate) fn add(&mut self, picture: &Picture) -> Vec<usize> {
        let mut indices = Vec::with_capacity(picture.rows * picture.columns);
        for row in 0..picture.rows {
            for column in 0..picture.columns {
                indices.push(self.index(&picture.window(column, row)));
            }
        }
        indices
    }

    fn index(&mut self, key: &[u8; AREA + COLOURS]) -> usize {
        let same = self.by_hash.entry(hash(key)).or_default();
        let known = same.iter().find(|i| self.keys[**i as usize] == *key);
        if let Some(index) = known {
            return *index as usize;
        }
        same.push(self.keys.len() as u32);
        self.keys.push(*key);
        self.keys.len() - 1
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The numbers that the network sees, `[windows, INPUTS]`.
    pub(crate) fn inputs(&self) -> Vec<f32> {
        let mut inputs = vec![0.0; self.keys.len() * INPUTS];
        for (key, row) in self.keys.iter().zip(inputs.chunks_exact_mut(INPUTS)) {
            let sum: u32 = key[..AREA].iter().map(|g| u32::from(*g)).sum();
            let mean = sum as f32 / AREA as f32;
            for (value, grey) in row.iter_mut().zip(&key[..AREA]) {
                *value = (f32::from(*grey) - mean) / 85.0;
            }
            for (value, colour) in row[AREA..].iter_mut().zip(&key[AREA..]) {
                *value = f32::from(*colour) / 127.5 - 1.0;
            }
        }
        inputs
    }
}

/// A fast hash of bytes; equality is checked by whoever uses it.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let chunks = bytes.chunks_exact(8);
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    let state = chunks.fold(bytes.len() as u64, |state, chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        mix(state, u64::from_le_bytes(word))
    });
    mix(mix(state, u64::from_le_bytes(last)), FACTOR)
}

/// Mean of the source pixels under each target pixel; the nearest one when enlarging.
fn resize(frame: &Frame, to: Size) -> Vec<u8> {
    let from = frame.size();
    let range = |index: u32, to: u32, from: u32| {
        let edge = |i: u32| (u64::from(i) * u64::from(from) / u64::from(to)) as u32;
        let start = edge(index);
        start..edge(index + 1).max(start + 1)
    };
    let mut rgb = Vec::with_capacity(to.area() * 3);
    for y in 0..to.height {
        let lines = range(y, to.height, from.height);
        for x in 0..to.width {
            let dots = range(x, to.width, from.width);
            let mut sum = [0u32; 3];
            for source_y in lines.clone() {
                for source_x in dots.clone() {
                    let pixel = frame.pixel(source_x, source_y).unwrap_or_default();
                    for (sum, value) in sum.iter_mut().zip(pixel) {
                        *sum += u32::from(value);
                    }
                }
            }
            let count = (lines.len() * dots.len()) as u32;
            rgb.extend(sum.map(|s| (s / count) as u8));
        }
    }
    rgb
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(size: Size, colour: impl Fn(u32, u32) -> [u8; 3]) -> Frame {
        let rgb: Vec<u8> = (0..size.height)
            .flat_map(|y| (0..size.width).map(move |x| (x, y)))
            .flat_map(|(x, y)| colour(x, y))
            .collect();
        Frame::new(size, rgb).unwrap()
    }

    #[test]
    fn a_blank_screen_has_one_window() {
        let config = ModelConfig::default();
        let blank = frame(config.image(), |_, _| [200, 100, 0]);
        let mut windows = Windows::default();
        let indices = windows.add(&Picture::new(&config, &blank));
        assert_eq!((indices.len(), windows.len()), (48, 1));
        let inputs = windows.inputs();
        assert!(inputs[..AREA].iter().all(|v| *v == 0.0));
        assert_eq!(inputs[AREA], 200.0 / 127.5 - 1.0);
        assert_eq!(inputs[AREA + 2], -1.0);
    }

    #[test]
    fn a_dot_is_seen_by_the_windows_around_it() {
        let config = ModelConfig::default();
        let dot = frame(config.image(), |x, y| {
            if (x, y) == (33, 40) { [0; 3] } else { [255; 3] }
        });
        let mut windows = Windows::default();
        let indices = windows.add(&Picture::new(&config, &dot));
        // Column 2 (pixels 28 to 51) and column 1 (12 to 35), row 2 (28 to 51).
        let lit: Vec<usize> = (0..48).filter(|i| indices[*i] != indices[47]).collect();
        assert_eq!(lit, vec![17, 18]);
    }

    #[test]
    fn resizing_averages() {
        let config = ModelConfig::default();
        let double = frame(Size::new(256, 192), |x, _| {
            [if x % 2 == 0 { 0 } else { 200 }; 3]
        });
        assert!(resize(&double, config.image()).iter().all(|v| *v == 100));
        let half = frame(Size::new(64, 48), |x, y| [(x + y) as u8; 3]);
        let large = resize(&half, config.image());
        assert_eq!(large[(95 * 128 + 127) * 3], 63 + 47);
    }
}
