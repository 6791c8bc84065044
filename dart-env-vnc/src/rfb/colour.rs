//! Pixels to colours: one [`Layout`] for each way in which the bytes of a pixel can lie.
//!
//! Three ways belong to a pixel format: the whole pixel (RFC 6143 §7.4), the compressed pixel of
//! TRLE and ZRLE that leaves an unused byte out (§7.7.5), and that of Tight, which is red, green,
//! blue in the same case.

use super::pixel::PixelFormat;

/// Red, green, blue.
pub(crate) type Colour = [u8; 3];

/// Where nothing better is known.
pub(crate) const BLACK: Colour = [0; 3];

/// How the colours of a pixel lie in its bytes.
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    /// Blue, green, red, unused.
    Bgrx,
    /// Blue, green, red.
    Bgr,
    /// Red, green, blue.
    Rgb,
    /// One byte that is looked up.
    Table(Box<[Colour; 256]>),
    /// Bit fields.
    Fields(Box<Fields>),
}

/// Bit fields of a pixel of 2 to 4 bytes, and the 8-bit value of each value that a field can have.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    bytes: usize,
    big_endian: bool,
    shift: [u8; 3],
    maximum: [u16; 3],
    scaled: [Vec<u8>; 3],
}

impl Fields {
    /// `skip` low bits of the pixel are not on the wire.
    fn new(format: &PixelFormat, bytes: usize, skip: u8) -> Self {
        Self {
            bytes,
            big_endian: format.big_endian,
            shift: format.shift.map(|shift| shift - skip),
            maximum: format.maximum,
            scaled: format.maximum.map(|maximum| {
                let scale = |value: u16| scale(value, maximum);
                (0..=maximum).map(scale).collect()
            }),
        }
    }

    fn value(&self, pixel: &[u8]) -> u32 {
        let add = |value: u32, byte: &u8| (value << 8) | u32::from(*byte);
        let bytes = pixel.iter().take(self.bytes);
        if self.big_endian {
            bytes.fold(0, add)
        } else {
            bytes.rev().fold(0, add)
        }
    }

    fn channels(&self, pixel: &[u8]) -> [u16; 3] {
        let value = self.value(pixel);
        std::array::from_fn(|at| (value >> self.shift[at]) as u16 & self.maximum[at])
    }

    fn colour(&self, channels: [u16; 3]) -> Colour {
        std::array::from_fn(|at| {
            let scaled = self.scaled[at].get(usize::from(channels[at]));
            scaled.copied().unwrap_or(u8::MAX)
        })
    }
}

/// `value` of `maximum` as of 255, rounded.
fn scale(value: u16, maximum: u16) -> u8 {
    let (value, maximum) = (u32::from(value), u32::from(maximum.max(1)));
    ((value * 255 + maximum / 2) / maximum) as u8
}

/// [`Layout::Bgrx`] for rows: eight pixels at a time, which are three words on the other side.
fn bgrx_row(pixels: &[[u8; 4]], colours: &mut [Colour]) {
    let (eights, last) = pixels.as_chunks::<8>();
    let (targets, rest) = colours.as_chunks_mut::<8>();
    for (from, to) in eights.iter().zip(targets) {
        let mut pairs = [0; 4];
        for (pair, bytes) in pairs.iter_mut().zip(from.as_flattened().as_chunks::<8>().0) {
            let pixels = u64::from_be_bytes(*bytes);
            *pair = pixels >> 40 | (pixels >> 8 & 0xff_ffff) << 24;
        }
        let [a, b, c, d] = pairs;
        let words = [a | b << 48, b >> 16 | c << 32, c >> 32 | d << 16];
        let (bytes, _) = to.as_flattened_mut().as_chunks_mut::<8>();
        for (word, bytes) in words.into_iter().zip(bytes) {
            *bytes = word.to_le_bytes();
        }
    }
    for ([blue, green, red, _], to) in last.iter().zip(rest) {
        *to = [*red, *green, *blue];
    }
}

impl Layout {
    /// Bytes of one pixel, 1 to 4.
    pub(crate) const fn bytes(&self) -> usize {
        match self {
            Self::Bgrx => 4,
            Self::Bgr | Self::Rgb => 3,
            Self::Table(_) => 1,
            Self::Fields(fields) => fields.bytes,
        }
    }

    /// The colour of the first pixel in `pixel`.
    #[allow(
        clippy::match_same_arms,
        reason = "the arms name the bytes in different orders"
    )]
    pub(crate) fn colour(&self, pixel: &[u8]) -> Colour {
        match (self, pixel) {
            (Self::Bgrx | Self::Bgr, [blue, green, red, ..]) => [*red, *green, *blue],
            (Self::Rgb, [red, green, blue, ..]) => [*red, *green, *blue],
            (Self::Table(table), [index, ..]) => table[usize::from(*index)],
            (Self::Fields(fields), pixel) => fields.colour(fields.channels(pixel)),
            _ => BLACK,
        }
    }

    /// Converts pixels to red, green, blue, as many as both slices hold.
    pub(crate) fn row(&self, pixels: &[u8], rgb: &mut [u8]) {
        let (colours, _) = rgb.as_chunks_mut::<3>();
        match self {
            Self::Bgrx => bgrx_row(pixels.as_chunks().0, colours),
            Self::Bgr => {
                for ([blue, green, red], to) in pixels.as_chunks::<3>().0.iter().zip(colours) {
                    *to = [*red, *green, *blue];
                }
            }
            Self::Rgb => {
                for (from, to) in pixels.as_chunks::<3>().0.iter().zip(colours) {
                    *to = *from;
                }
            }
            Self::Table(table) => {
                for (index, to) in pixels.iter().zip(colours) {
                    *to = table[usize::from(*index)];
                }
            }
            Self::Fields(fields) => {
                for (pixel, to) in pixels.chunks_exact(fields.bytes).zip(colours) {
                    *to = fields.colour(fields.channels(pixel));
                }
            }
        }
    }

    /// The channels of a pixel before they are scaled to 8 bits; `None` if it has no channels.
    pub(crate) fn channels(&self, pixel: &[u8]) -> Option<[u16; 3]> {
        match self {
            Self::Fields(fields) => Some(fields.channels(pixel)),
            Self::Table(_) => None,
            _ => Some(self.colour(pixel).map(u16::from)),
        }
    }

    /// The largest value of each channel.
    pub(crate) fn maximum(&self) -> [u16; 3] {
        match self {
            Self::Fields(fields) => fields.maximum,
            _ => [255; 3],
        }
    }

    /// The colour of channels, each at most its maximum.
    pub(crate) fn join(&self, channels: [u16; 3]) -> Colour {
        match self {
            Self::Fields(fields) => fields.colour(channels),
            _ => channels.map(|channel| channel as u8),
        }
    }
}

/// The layouts of a pixel format.
#[derive(Clone, Debug)]
pub(crate) struct Colours {
    /// Of a whole pixel.
    pub(crate) pixel: Layout,
    /// Of a pixel in TRLE and ZRLE.
    pub(crate) compact: Layout,
    /// Of a pixel in Tight.
    pub(crate) tight: Layout,
    mapped: bool,
}

impl Colours {
    /// For a format that passed [`PixelFormat::check`]. A colour map is black until it is told.
    pub(crate) fn new(format: &PixelFormat) -> Self {
        let pixel = Self::whole(format);
        Self {
            compact: Self::compact(format).unwrap_or_else(|| pixel.clone()),
            tight: if Self::is_wide(format) && format.maximum == [255; 3] && format.depth == 24 {
                Layout::Rgb
            } else {
                pixel.clone()
            },
            pixel,
            mapped: !format.true_colour,
        }
    }

    fn whole(format: &PixelFormat) -> Layout {
        match format.bits_per_pixel {
            8 if !format.true_colour => Layout::Table(Box::new([BLACK; 256])),
            8 => {
                let fields = Fields::new(format, 1, 0);
                let table =
                    std::array::from_fn(|index| fields.colour(fields.channels(&[index as u8])));
                Layout::Table(Box::new(table))
            }
            16 => Layout::Fields(Box::new(Fields::new(format, 2, 0))),
            _ if Self::is_bgr(format) => Layout::Bgrx,
            _ => Layout::Fields(Box::new(Fields::new(format, 4, 0))),
        }
    }

    const fn is_wide(format: &PixelFormat) -> bool {
        format.true_colour && format.bits_per_pixel == 32
    }

    fn is_bgr(format: &PixelFormat) -> bool {
        !format.big_endian && format.maximum == [255; 3] && format.shift == [16, 8, 0]
    }

    /// Three bytes, if a pixel has four of which one is never used.
    fn compact(format: &PixelFormat) -> Option<Layout> {
        if !Self::is_wide(format) || format.depth > 24 {
            return None;
        }
        if Self::is_bgr(format) {
            return Some(Layout::Bgr);
        }
        let channels = || format.maximum.into_iter().zip(format.shift);
        let low = channels().all(|(maximum, shift)| u64::from(maximum) << shift < 1 << 24);
        let high = format.shift.iter().all(|shift| *shift >= 8);
        let skip = match (low, high) {
            (true, _) => 0,
            (false, true) => 8,
            (false, false) => return None,
        };
        Some(Layout::Fields(Box::new(Fields::new(format, 3, skip))))
    }

    /// The colour map gets an entry. Without effect if the format has no map.
    pub(crate) fn set(&mut self, index: u16, [red, green, blue]: [u16; 3]) {
        let colour = [red, green, blue].map(|channel| (channel >> 8) as u8);
        for layout in [&mut self.pixel, &mut self.compact, &mut self.tight] {
            if let (true, Layout::Table(table)) = (self.mapped, layout)
                && let Some(entry) = table.get_mut(usize::from(index))
            {
                *entry = colour;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(bits: u8, big_endian: bool, maximum: [u16; 3], shift: [u8; 3]) -> PixelFormat {
        PixelFormat {
            bits_per_pixel: bits,
            depth: if bits == 32 { 24 } else { bits },
            big_endian,
            true_colour: true,
            maximum,
            shift,
        }
    }

    #[test]
    fn our_own_format_needs_no_arithmetic() {
        let colours = Colours::new(&PixelFormat::WIRE);
        assert_eq!(colours.pixel.colour(&[3, 2, 1, 9]), [1, 2, 3]);
        assert_eq!(colours.compact.colour(&[3, 2, 1]), [1, 2, 3]);
        assert_eq!(colours.tight.colour(&[1, 2, 3]), [1, 2, 3]);
        assert!(matches!(colours.pixel, Layout::Bgrx));
    }

    #[test]
    fn sixteen_bits_in_both_orders() {
        for (big_endian, bytes) in [(false, [0x1f, 0xf8]), (true, [0xf8, 0x1f])] {
            let colours = Colours::new(&format(16, big_endian, [31, 63, 31], [11, 5, 0]));
            assert_eq!(colours.pixel.colour(&bytes), [255, 0, 255], "{big_endian}");
            assert_eq!(colours.compact.bytes(), 2);
        }
    }

    #[test]
    fn thirty_two_bits_in_both_orders_and_both_positions() {
        // (big-endian, shift of red, whole pixel, compact pixel) of red 1, green 2, blue 3.
        let cases: [(bool, u8, [u8; 4], [u8; 3]); 4] = [
            (false, 16, [3, 2, 1, 0], [3, 2, 1]),
            (true, 16, [0, 1, 2, 3], [1, 2, 3]),
            (false, 24, [0, 3, 2, 1], [3, 2, 1]),
            (true, 24, [1, 2, 3, 0], [1, 2, 3]),
        ];
        for (big_endian, red, whole, compact) in cases {
            let shift = [red, red - 8, red - 16];
            let colours = Colours::new(&format(32, big_endian, [255; 3], shift));
            assert_eq!(
                colours.pixel.colour(&whole),
                [1, 2, 3],
                "{big_endian} {red}"
            );
            assert_eq!(
                colours.compact.colour(&compact),
                [1, 2, 3],
                "{big_endian} {red}"
            );
            assert_eq!(colours.tight.colour(&[1, 2, 3]), [1, 2, 3]);
        }
    }

    #[test]
    fn ten_bits_a_channel_are_not_compact() {
        let mut wide = format(32, false, [1023; 3], [20, 10, 0]);
        wide.depth = 30;
        let colours = Colours::new(&wide);
        assert_eq!(colours.compact.bytes(), 4);
        assert_eq!(colours.tight.bytes(), 4);
        let pixel = ((1023u32 << 20) | (512 << 10)).to_le_bytes();
        assert_eq!(colours.pixel.colour(&pixel), [255, 128, 0]);
    }

    #[test]
    fn eight_bits_and_a_colour_map() {
        let colours = Colours::new(&format(8, false, [7, 7, 3], [0, 3, 6]));
        assert_eq!(colours.pixel.colour(&[0b1100_0111]), [255, 0, 255]);
        let mut mapped = format(8, false, [0; 3], [0; 3]);
        mapped.true_colour = false;
        let mut colours = Colours::new(&mapped);
        colours.set(7, [0xffff, 0x8080, 0]);
        colours.set(256, [0xffff; 3]);
        assert_eq!(colours.tight.colour(&[7]), [255, 128, 0]);
        let mut rgb = [9; 6];
        colours.pixel.row(&[7, 8], &mut rgb);
        assert_eq!(rgb, [255, 128, 0, 0, 0, 0]);
    }

    #[test]
    fn a_row_is_its_pixels() {
        let formats = [
            PixelFormat::WIRE,
            format(16, true, [31, 63, 31], [11, 5, 0]),
            format(8, false, [7, 7, 3], [0, 3, 6]),
            format(32, true, [255; 3], [24, 16, 8]),
        ];
        for format in formats {
            let colours = Colours::new(&format);
            for layout in [&colours.pixel, &colours.compact, &colours.tight] {
                let pixels = (0..layout.bytes() as u8 * 11).map(|b| b.wrapping_mul(19));
                let pixels = pixels.collect::<Vec<_>>();
                let mut rgb = [0; 33];
                layout.row(&pixels, &mut rgb);
                let one_by_one = pixels.chunks(layout.bytes()).map(|p| layout.colour(p));
                assert_eq!(
                    rgb.as_slice(),
                    one_by_one.collect::<Vec<_>>().as_flattened()
                );
            }
        }
    }
}
