//! The wavelet of ZYWRLE (17): piecewise-linear Haar on luma and two differences of colour.
//!
//! After Senecal and others, "An improved N-bit to N-bit reversible Haar-like transform" (2004), and
//! the reversible colour transform of JPEG 2000; the order of the coefficients is that of
//! libvncserver and QEMU. Both derive the number of levels from the JPEG quality that the client
//! wishes, and use one level without a wish or with a high quality. Those are all we ask for.
//!
//! Exact for channels of 8 bits. With fewer, as in 16-bit formats that nobody asks for together with
//! this encoding, the coefficients are read from scaled channels and the colours are a little off.

/// How often the wavelet was applied.
pub(crate) const LEVEL: u32 = 1;

/// Two difference channels and luma, in the places of red, blue and green.
type Coefficients = [i8; 3];

/// One step of the transform; it is its own inverse. The result fits: of two numbers with one
/// sign the difference does, of two with different signs the sum does, and the other one of the
/// pair is one of the two or its negative.
fn haar(low: i8, high: i8) -> (i8, i8) {
    let (a, b) = (i32::from(low), i32::from(high));
    let (sum, difference) = if (a < 0) == (b < 0) {
        let difference = a - b;
        let same = (difference < 0) == (a < 0);
        (if same { a } else { b }, difference)
    } else {
        let sum = a + b;
        let same = (sum < 0) == (b < 0);
        (sum, if same { -b } else { a })
    };
    (sum as i8, difference as i8)
}

fn step(values: &mut [Coefficients], low: usize, high: usize) {
    let (a, b) = (values[low], values[high]);
    let pairs: [(i8, i8); 3] = std::array::from_fn(|channel| haar(a[channel], b[channel]));
    values[low] = pairs.map(|(low, _)| low);
    values[high] = pairs.map(|(_, high)| high);
}

/// Undoes one level: columns, then rows. `width` and `height` are multiples of twice the distance.
fn undo(values: &mut [Coefficients], [width, height]: [usize; 2], level: u32) {
    let near = 1 << level;
    for x in (0..width).step_by(near) {
        for y in (0..height).step_by(near * 2) {
            step(values, y * width + x, (y + near) * width + x);
        }
    }
    for y in (0..height).step_by(near) {
        for x in (0..width).step_by(near * 2) {
            step(values, y * width + x, y * width + x + near);
        }
    }
}

/// Where the coefficients go, in the order in which they come: the finest level first, of each
/// level both differences, vertical ones, horizontal ones; the means last.
fn order([width, height]: [usize; 2], levels: u32) -> impl Iterator<Item = usize> {
    let bands = (0..levels).flat_map(move |level| {
        let last = usize::from(level + 1 != levels);
        (last..4).rev().map(move |band| (level, band))
    });
    bands.flat_map(move |(level, band)| {
        let near = 1usize << level;
        let (left, top) = ((band & 1) * near, (band >> 1) * near);
        let rows = (top..height).step_by(near * 2);
        rows.flat_map(move |y| {
            let columns = (left..width).step_by(near * 2);
            columns.map(move |x| y * width + x)
        })
    })
}

fn to_rgb([v, y, u]: Coefficients) -> [u8; 3] {
    let (v, y, u) = (i32::from(v) << 1, i32::from(y) + 128, i32::from(u) << 1);
    let green = y - ((u + v) >> 2);
    [v + green, green, u + green].map(|channel| channel.clamp(0, 255) as u8)
}

/// Turns the coefficients of a tile into its pixels, in place.
///
/// Columns and rows beyond a multiple of the coarsest step are plain pixels and come after the
/// coefficients: those to the right, those below, the corner.
pub(crate) fn synthesise(rgb: &mut [u8], size: [u16; 2], levels: u32) {
    let [width, height] = size.map(usize::from);
    let [inner_width, inner_height] = [width, height].map(|side| side >> levels << levels);
    if inner_width == 0 || inner_height == 0 {
        return;
    }
    let inner = [inner_width, inner_height];
    let mut values = vec![[0; 3]; inner_width * inner_height];
    let (pixels, _) = rgb.as_chunks_mut::<3>();
    let (coded, plain) = pixels.split_at(inner_width * inner_height);
    for (pixel, place) in coded.iter().zip(order(inner, levels)) {
        values[place] = pixel.map(|byte| byte as i8);
    }
    let plain = plain.to_vec();
    for level in (0..levels).rev() {
        undo(&mut values, inner, level);
    }
    for (y, row) in values.chunks_exact(inner_width).enumerate() {
        for (to, value) in pixels[y * width..].iter_mut().zip(row) {
            *to = to_rgb(*value);
        }
    }
    let right = (0..inner_height).flat_map(|y| (inner_width..width).map(move |x| (x, y)));
    let below = (inner_height..height).flat_map(|y| (0..inner_width).map(move |x| (x, y)));
    let corner = (inner_height..height).flat_map(|y| (inner_width..width).map(move |x| (x, y)));
    for ((x, y), pixel) in right.chain(below).chain(corner).zip(plain) {
        pixels[y * width + x] = pixel;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server does, without quantisation.
    fn analyse(rgb: &[[u8; 3]], size: [u16; 2], levels: u32) -> Vec<[u8; 3]> {
        let [width, height] = size.map(usize::from);
        let [inner_width, inner_height] = [width, height].map(|side| side >> levels << levels);
        let inner = [inner_width, inner_height];
        let mut values = Vec::new();
        for y in 0..inner_height {
            for [r, g, b] in &rgb[y * width..y * width + inner_width] {
                let [r, g, b] = [*r, *g, *b].map(i32::from);
                let luma = ((r + 2 * g + b) >> 2) - 128;
                let all = [(r - g) >> 1, luma, (b - g) >> 1];
                values.push(all.map(|value| value.max(-127) as i8));
            }
        }
        for level in 0..levels {
            let near = 1 << level;
            for y in (0..inner_height).step_by(near) {
                for x in (0..inner_width).step_by(near * 2) {
                    step(&mut values, y * inner_width + x, y * inner_width + x + near);
                }
            }
            for x in (0..inner_width).step_by(near) {
                for y in (0..inner_height).step_by(near * 2) {
                    step(
                        &mut values,
                        y * inner_width + x,
                        (y + near) * inner_width + x,
                    );
                }
            }
        }
        let coded = order(inner, levels).map(|place| values[place].map(|value| value as u8));
        let mut out = coded.collect::<Vec<_>>();
        let row = |y: usize, columns: std::ops::Range<usize>| {
            rgb[y * width + columns.start..y * width + columns.end].to_vec()
        };
        out.extend((0..inner_height).flat_map(|y| row(y, inner_width..width)));
        out.extend((inner_height..height).flat_map(|y| row(y, 0..inner_width)));
        out.extend((inner_height..height).flat_map(|y| row(y, inner_width..width)));
        out
    }

    #[test]
    fn a_step_undoes_itself() {
        for low in -127..=127i8 {
            for high in -127..=127 {
                let (a, b) = haar(low, high);
                assert_eq!(haar(a, b), (low, high));
            }
        }
    }

    #[test]
    fn every_place_is_filled_once() {
        for levels in 1..=3 {
            let mut places = order([16, 24], levels).collect::<Vec<_>>();
            places.sort_unstable();
            assert_eq!(places, (0..16 * 24).collect::<Vec<_>>(), "{levels}");
        }
    }

    #[test]
    fn tiles_come_back_up_to_the_rounding_of_colour() {
        for (size, levels) in [([64, 64], 1), ([64, 64], 2), ([37, 21], 1), ([23, 9], 3)] {
            let count = usize::from(size[0]) * usize::from(size[1]);
            let pixels = (0..count).map(|n| [(n * 7) as u8, (n * 3) as u8, (n / 5) as u8]);
            let pixels = pixels.collect::<Vec<_>>();
            let mut rgb = analyse(&pixels, size, levels).as_flattened().to_vec();
            synthesise(&mut rgb, size, levels);
            for (at, (seen, sent)) in rgb.iter().zip(pixels.as_flattened()).enumerate() {
                // One bit of each difference of colour is lost.
                assert!(
                    seen.abs_diff(*sent) <= 3,
                    "{size:?} {levels} {at}: {seen} {sent}"
                );
            }
        }
    }

    #[test]
    fn a_tile_too_small_for_the_wavelet_is_plain() {
        let mut rgb = [1, 2, 3, 4, 5, 6];
        synthesise(&mut rgb, [1, 2], 1);
        assert_eq!(rgb, [1, 2, 3, 4, 5, 6]);
    }
}
