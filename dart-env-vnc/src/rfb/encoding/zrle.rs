//! ZRLE (16): tiles of 64x64 through one stream of zlib (RFC 6143 §7.7.6), and ZYWRLE (17), in
//! which some of them hold a wavelet.

use super::{
    super::{
        colour::Layout,
        error::RfbError,
        framebuffer::{Area, Framebuffer},
        limits::max_compressed,
        wire::{Stop, Wire},
    },
    inflate::{Inflater, Inflation},
    tile::{Content, Flavour, Tile},
    zywrle,
};

/// The stream, and room for a piece of it.
#[derive(Debug)]
pub(crate) struct Zrle {
    stream: Inflater,
    buffer: Vec<u8>,
    tile: Tile,
}

/// Takes the compressed data.
pub(crate) fn read<'a>(wire: &mut Wire<'a>, area: Area) -> Result<&'a [u8], Stop> {
    wire.counted("compressed data", max_compressed(area))
}

/// What is inflated and not used yet.
struct Window<'a> {
    stream: Inflation<'a>,
    buffer: &'a mut [u8],
    start: usize,
    end: usize,
}

impl Window<'_> {
    /// At least a whole tile, unless the data end before.
    fn ahead(&mut self) -> Result<&[u8], RfbError> {
        if self.end - self.start < Tile::MAX_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            self.end += self.stream.some(&mut self.buffer[self.end..])?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn finish(self) -> Result<(), RfbError> {
        if self.start == self.end {
            self.stream.finish()
        } else {
            Err(RfbError::Malformed {
                what: "compressed data go on after the rectangle",
            })
        }
    }
}

impl Zrle {
    /// Bytes to have in memory at once: some tiles.
    const BUFFER: usize = 3 * Tile::MAX_BYTES;

    pub(crate) fn new() -> Self {
        Self {
            stream: Inflater::default(),
            buffer: Vec::new(),
            tile: Tile::new(),
        }
    }

    /// Room for the tiles of TRLE.
    pub(crate) const fn tile(&mut self) -> &mut Tile {
        &mut self.tile
    }

    /// Paints the tiles; `layout` is that of a compact pixel.
    pub(crate) fn decode(
        &mut self,
        data: &[u8],
        area: Area,
        (layout, flavour): (&Layout, Flavour),
        screen: &mut Framebuffer,
    ) -> Result<(), RfbError> {
        self.buffer.resize(Self::BUFFER, 0);
        let mut window = Window {
            stream: self.stream.go_on(data),
            buffer: &mut self.buffer,
            start: 0,
            end: 0,
        };
        for part in (0..).map_while(|index| area.tile(Tile::SIDE, index)) {
            let mut wire = Wire::new(window.ahead()?);
            let size = [part.width, part.height];
            let content = match self.tile.read(&mut wire, layout, size, flavour) {
                Ok(content) => content,
                Err(Stop::Fault(error)) => return Err(error),
                Err(Stop::Incomplete) => {
                    return Err(RfbError::Malformed {
                        what: "compressed data end before the rectangle does",
                    });
                }
            };
            window.start += wire.taken();
            let pixels = part.pixels() as usize;
            if content == Content::Wavelet {
                zywrle::synthesise(self.tile.rgb_mut(pixels), size, zywrle::LEVEL);
            }
            match content {
                Content::Solid(colour) => screen.fill(part, colour),
                _ => screen.draw_rgb(part, self.tile.rgb(pixels)),
            }
        }
        window.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            super::{colour::Colours, pixel::PixelFormat},
            inflate::tests::Deflater,
        },
        *,
    };

    fn run(rectangles: &[(Area, Vec<u8>)]) -> Result<Framebuffer, RfbError> {
        let layout = Colours::new(&PixelFormat::WIRE).compact;
        let mut screen = Framebuffer::new(130, 70).unwrap();
        let (mut deflater, mut zrle) = (Deflater::new(), Zrle::new());
        for (area, bytes) in rectangles {
            let data = deflater.piece(bytes);
            zrle.decode(&data, *area, (&layout, Flavour::Zrle), &mut screen)?;
        }
        Ok(screen)
    }

    fn solid(value: u8) -> Vec<u8> {
        vec![1, value, value, value]
    }

    #[test]
    fn tiles_go_row_by_row_and_the_stream_goes_on() {
        let all = Area {
            x: 0,
            y: 0,
            width: 130,
            height: 70,
        };
        let six = (1..=6).flat_map(solid).collect();
        let corner = Area {
            x: 129,
            y: 69,
            width: 1,
            height: 1,
        };
        let screen = run(&[(all, six), (corner, solid(9))]).unwrap();
        let at = |x: usize, y: usize| screen.rgb()[(y * 130 + x) * 3];
        let seen = [
            at(0, 0),
            at(64, 0),
            at(129, 63),
            at(63, 64),
            at(64, 69),
            at(129, 69),
        ];
        assert_eq!(seen, [1, 2, 3, 4, 5, 9]);
        assert_eq!(at(128, 69), 6);
    }

    #[test]
    fn many_full_tiles_pass_through_a_small_window() {
        let all = Area {
            x: 0,
            y: 0,
            width: 128,
            height: 64,
        };
        let tile = |salt: usize| {
            let pixels = (0..64 * 64).flat_map(|n| [(n * salt) as u8, (n >> 8) as u8, n as u8]);
            [0].into_iter().chain(pixels).collect::<Vec<u8>>()
        };
        let rectangles = (1..8).map(|salt| (all, [tile(salt), tile(salt + 9)].concat()));
        let screen = run(&rectangles.collect::<Vec<_>>()).unwrap();
        for n in [0usize, 1, 255, 4095] {
            let at = ((n / 64) * 130 + n % 64) * 3;
            let [b, g, r] = [(n * 7) as u8, (n >> 8) as u8, n as u8];
            assert_eq!(screen.rgb()[at..at + 3], [r, g, b]);
        }
    }

    #[test]
    fn too_few_and_too_many_tiles_are_refused() {
        let area = Area {
            x: 0,
            y: 0,
            width: 64,
            height: 64,
        };
        assert!(run(&[(area, solid(1))]).is_ok());
        assert!(run(&[(area, Vec::new())]).is_err());
        assert!(run(&[(area, vec![1, 2])]).is_err());
        assert!(run(&[(area, [solid(1), solid(2)].concat())]).is_err());
        assert!(run(&[(area, [solid(1), vec![0; 1 << 20]].concat())]).is_err());
    }
}
