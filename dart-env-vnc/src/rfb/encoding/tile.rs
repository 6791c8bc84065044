//! A tile of TRLE or ZRLE: raw, one colour, a palette, or run lengths (RFC 6143 §7.7.5, §7.7.6).

use super::super::{
    colour::{BLACK, Colour, Layout},
    error::RfbError,
    wire::{Stop, Wire},
};

/// Which tiles are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Tiles of 16x16, which may use the palette of the one before.
    Trle,
    /// Tiles of 64x64.
    Zrle,
    /// ZRLE in which a raw tile is one with a wavelet in it, itself in any form.
    Zywrle,
}

/// What is in a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Solid(Colour),
    /// Pixels in [`Tile::rgb`].
    Pixels,
    /// The same, as coefficients of a wavelet.
    Wavelet,
}

/// Room for the pixels of a tile, and the last palette.
pub(crate) struct Tile {
    rgb: Box<[u8]>,
    palette: Palette,
}

impl std::fmt::Debug for Tile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tile({} colours)", self.palette.length)
    }
}

#[derive(Clone, Copy)]
struct Palette {
    colours: [Colour; 128],
    length: usize,
}

impl Palette {
    const NONE: Self = Self {
        colours: [BLACK; 128],
        length: 0,
    };

    fn read(wire: &mut Wire<'_>, length: usize, layout: &Layout) -> Result<Self, Stop> {
        let mut palette = Self {
            length,
            ..Self::NONE
        };
        let bytes = wire.take(length * layout.bytes())?;
        let pixels = bytes.chunks_exact(layout.bytes());
        for (colour, pixel) in palette.colours.iter_mut().zip(pixels) {
            *colour = layout.colour(pixel);
        }
        Ok(palette)
    }

    fn get(&self, index: u8) -> Result<Colour, RfbError> {
        let known = self.colours.get(..self.length);
        let colour = known.and_then(|colours| colours.get(usize::from(index)));
        colour.copied().ok_or(RfbError::Malformed {
            what: "a pixel has a colour that its palette lacks",
        })
    }
}

const fn unknown() -> Stop {
    Stop::Fault(RfbError::Malformed {
        what: "a tile has a form that its encoding lacks",
    })
}

/// Sets `pixels` to one colour.
fn paint(pixels: &mut [u8], colour: Colour) {
    pixels.as_chunks_mut::<3>().0.fill(colour);
}

/// A run's length: bytes that are added, the last of which is not 255.
fn run_length(wire: &mut Wire<'_>) -> Result<usize, Stop> {
    let mut length = 1;
    loop {
        let byte = wire.u8()?;
        length += usize::from(byte);
        if byte != 255 {
            return Ok(length);
        }
    }
}

impl Tile {
    /// Longest side.
    pub(crate) const SIDE: u16 = 64;

    /// Most bytes of a tile: its form twice (with a wavelet), and runs of one with four bytes of
    /// pixel each. A palette makes the pixels smaller than it is.
    pub(crate) const MAX_BYTES: usize = 2 + 64 * 64 * 5;

    pub(crate) fn new() -> Self {
        let side = usize::from(Self::SIDE);
        Self {
            rgb: vec![0; side * side * 3].into(),
            palette: Palette::NONE,
        }
    }

    /// A rectangle begins: it knows nothing of palettes.
    pub(crate) const fn forget_palette(&mut self) {
        self.palette.length = 0;
    }

    /// The first `pixels` pixels.
    pub(crate) fn rgb(&self, pixels: usize) -> &[u8] {
        &self.rgb[..pixels * 3]
    }

    /// The first `pixels` pixels, to be changed.
    pub(crate) fn rgb_mut(&mut self, pixels: usize) -> &mut [u8] {
        &mut self.rgb[..pixels * 3]
    }

    /// Takes a tile of `width` x `height` pixels; `layout` is that of a compact pixel. If bytes are
    /// missing, the palette is as before.
    pub(crate) fn read(
        &mut self,
        wire: &mut Wire<'_>,
        layout: &Layout,
        [width, height]: [u16; 2],
        flavour: Flavour,
    ) -> Result<Content, Stop> {
        let [width, height] = [width, height].map(usize::from);
        let kind = wire.u8()?;
        if kind == 0 && flavour == Flavour::Zywrle {
            let size = [width, height].map(|side| side as u16);
            return Ok(match self.read(wire, layout, size, Flavour::Zrle)? {
                Content::Solid(colour) => {
                    paint(self.rgb_mut(width * height), colour);
                    Content::Wavelet
                }
                _ => Content::Wavelet,
            });
        }
        let again = flavour == Flavour::Trle && self.palette.length > 0;
        let pixels = &mut self.rgb[..width * height * 3];
        let palette = match kind {
            0 => {
                layout.row(wire.take(width * height * layout.bytes())?, pixels);
                return Ok(Content::Pixels);
            }
            1 => return Ok(Content::Solid(layout.colour(wire.take(layout.bytes())?))),
            128 => {
                plain_runs(wire, layout, pixels)?;
                return Ok(Content::Pixels);
            }
            127 | 129 if again => self.palette,
            2..=16 | 130.. => Palette::read(wire, (kind & 127).into(), layout)?,
            _ => return Err(unknown()),
        };
        if kind < 128 {
            packed(wire, &palette, width, pixels)?;
        } else {
            palette_runs(wire, &palette, pixels)?;
        }
        self.palette = palette;
        Ok(Content::Pixels)
    }
}

/// Rows of numbers of 1, 2 or 4 bits.
fn packed(
    wire: &mut Wire<'_>,
    palette: &Palette,
    width: usize,
    pixels: &mut [u8],
) -> Result<(), Stop> {
    let bits = match palette.length {
        0..=2 => 1,
        3..=4 => 2,
        5..=16 => 4,
        _ => return Err(unknown()),
    };
    let in_a_byte = 8 / bits;
    for row in pixels.chunks_exact_mut(width * 3) {
        let bytes = wire.take(width.div_ceil(in_a_byte))?;
        for (pixels, byte) in row.chunks_mut(in_a_byte * 3).zip(bytes) {
            let mut byte = *byte;
            for pixel in pixels.as_chunks_mut::<3>().0 {
                *pixel = palette.get(byte >> (8 - bits))?;
                byte <<= bits;
            }
        }
    }
    Ok(())
}

/// Splits a run off the pixels.
#[allow(clippy::mut_mut, reason = "the slice is shortened in place")]
fn run<'a>(pixels: &mut &'a mut [u8], length: usize) -> Result<&'a mut [u8], RfbError> {
    let all = std::mem::take(pixels);
    let (run, rest) = all
        .split_at_mut_checked(length * 3)
        .ok_or(RfbError::Malformed {
            what: "a run is longer than its tile",
        })?;
    *pixels = rest;
    Ok(run)
}

/// A colour and a length each.
fn plain_runs(wire: &mut Wire<'_>, layout: &Layout, mut pixels: &mut [u8]) -> Result<(), Stop> {
    while !pixels.is_empty() {
        let colour = layout.colour(wire.take(layout.bytes())?);
        let length = run_length(wire)?;
        paint(run(&mut pixels, length)?, colour);
    }
    Ok(())
}

/// A number each, and a length if the number's top bit is set.
fn palette_runs(wire: &mut Wire<'_>, palette: &Palette, mut pixels: &mut [u8]) -> Result<(), Stop> {
    while !pixels.is_empty() {
        let number = wire.u8()?;
        let colour = palette.get(number & 127)?;
        let length = if number & 128 == 0 {
            1
        } else {
            run_length(wire)?
        };
        paint(run(&mut pixels, length)?, colour);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{colour::Colours, pixel::PixelFormat},
        *,
    };

    const A: Colour = [1, 2, 3];
    const B: Colour = [4, 5, 6];
    const C: Colour = [7, 8, 9];

    fn compact(colours: &[Colour]) -> Vec<u8> {
        colours.iter().flat_map(|[r, g, b]| [*b, *g, *r]).collect()
    }

    fn run_with(
        tile: &mut Tile,
        bytes: &[u8],
        size: [u16; 2],
        flavour: Flavour,
    ) -> Result<Vec<Colour>, Stop> {
        let layout = Colours::new(&PixelFormat::WIRE).compact;
        let mut wire = Wire::new(bytes);
        let count = usize::from(size[0]) * usize::from(size[1]);
        let content = tile.read(&mut wire, &layout, size, flavour)?;
        assert_eq!(wire.left(), 0);
        Ok(match content {
            Content::Solid(colour) => vec![colour; count],
            _ => tile.rgb(count).as_chunks::<3>().0.to_vec(),
        })
    }

    fn go(bytes: &[u8], size: [u16; 2]) -> Result<Vec<Colour>, Stop> {
        run_with(&mut Tile::new(), bytes, size, Flavour::Zrle)
    }

    #[test]
    fn raw_and_solid() {
        let raw = [&[0][..], &compact(&[A, B, C, A])].concat();
        assert_eq!(go(&raw, [2, 2]).unwrap(), [A, B, C, A]);
        let solid = [&[1][..], &compact(&[B])].concat();
        assert_eq!(go(&solid, [2, 2]).unwrap(), [B; 4]);
    }

    #[test]
    fn packed_palettes_of_each_width() {
        // Rows begin at a byte: two rows of three pixels.
        let two = [&[2][..], &compact(&[A, B]), &[0b0110_0000, 0b1000_0000]].concat();
        assert_eq!(go(&two, [3, 2]).unwrap(), [A, B, B, B, A, A]);
        let three = [&[3][..], &compact(&[A, B, C]), &[0b0001_1000, 0b1010_0000]].concat();
        assert_eq!(go(&three, [3, 2]).unwrap(), [A, B, C, C, C, A]);
        let five = [
            &[5][..],
            &compact(&[A, B, C, C, C]),
            &[0x01, 0x20, 0x00, 0x10],
        ]
        .concat();
        assert_eq!(go(&five, [3, 2]).unwrap(), [A, B, C, A, A, B]);
    }

    #[test]
    fn runs() {
        let plain = [&[128][..], &compact(&[A]), &[2], &compact(&[B]), &[0]].concat();
        assert_eq!(go(&plain, [2, 2]).unwrap(), [A, A, A, B]);
        let palette = [&[130][..], &compact(&[A, B]), &[0, 129, 1, 0]].concat();
        assert_eq!(go(&palette, [2, 2]).unwrap(), [A, B, B, A]);
        // 1 + 255 + 255 + 1 pixels.
        let long = [&[128][..], &compact(&[C]), &[255, 255, 1]].concat();
        assert_eq!(go(&long, [64, 8]).unwrap(), vec![C; 512]);
    }

    #[test]
    fn trle_uses_a_palette_again() {
        let mut tile = Tile::new();
        let mut trle = |bytes: &[u8]| run_with(&mut tile, bytes, [2, 1], Flavour::Trle);
        assert!(
            matches!(trle(&[127, 0]), Err(Stop::Fault(_))),
            "nothing to use again"
        );
        let first = [&[2][..], &compact(&[A, B]), &[0b0100_0000]].concat();
        assert_eq!(trle(&first).unwrap(), [A, B]);
        assert_eq!(trle(&[127, 0b1000_0000]).unwrap(), [B, A]);
        assert_eq!(trle(&[129, 129, 1]).unwrap(), [B, B]);
        // A tile that is not whole does not count.
        let cut = [&[130][..], &compact(&[C, C]), &[128]].concat();
        assert!(matches!(trle(&cut), Err(Stop::Incomplete)));
        assert_eq!(trle(&[127, 0]).unwrap(), [A, A]);
    }

    #[test]
    fn a_palette_of_runs_may_be_too_large_to_pack() {
        let mut tile = Tile::new();
        let many = [&[128 + 17][..], &compact(&[A; 17]), &[0, 16]].concat();
        run_with(&mut tile, &many, [2, 1], Flavour::Trle).unwrap();
        let packed = run_with(&mut tile, &[127, 0], [2, 1], Flavour::Trle);
        assert!(matches!(packed, Err(Stop::Fault(_))));
    }

    #[test]
    fn forms_runs_and_colours_that_do_not_exist_are_refused() {
        for kind in (17..=127).chain([129]) {
            assert!(
                matches!(go(&[kind; 400], [2, 2]), Err(Stop::Fault(_))),
                "{kind}"
            );
        }
        let run_beyond = [&[128][..], &compact(&[A]), &[4]].concat();
        let colour_beyond = [&[130][..], &compact(&[A, B]), &[2, 0, 0, 0]].concat();
        let packed_beyond = [&[3][..], &compact(&[A, B, C]), &[0xff, 0xff]].concat();
        for bytes in [run_beyond, colour_beyond, packed_beyond] {
            assert!(
                matches!(go(&bytes, [2, 2]), Err(Stop::Fault(_))),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn no_tile_is_longer_than_the_bound() {
        let layout = Colours::new(&PixelFormat {
            maximum: [1023; 3],
            shift: [20, 10, 0],
            depth: 30,
            ..PixelFormat::WIRE
        });
        assert_eq!(layout.compact.bytes(), 4);
        let longest = [&[0, 128][..], &[0; 5].repeat(64 * 64)].concat();
        assert_eq!(longest.len(), Tile::MAX_BYTES);
        let mut wire = Wire::new(&longest);
        let content = Tile::new().read(&mut wire, &layout.compact, [64, 64], Flavour::Zywrle);
        assert_eq!((content.unwrap(), wire.left()), (Content::Wavelet, 0));
    }
}
