//! Tight (7) and TightPNG (-260): one colour, JPEG, PNG, or filtered rows through one of four
//! streams of zlib (as described with rfbproto).
//!
//! TurboVNC's form without zlib has the number that means PNG in TightPNG; the encoding decides
//! (libvncserver and noVNC do so too).

use super::{
    super::{
        colour::Colours,
        error::RfbError,
        framebuffer::{Area, Framebuffer},
        limits::max_compressed,
        wire::{Stop, Wire, check_limit},
    },
    inflate::Inflater,
    jpeg, png,
    rows::Rows,
    tight_filter::{self, Filter},
};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Tight,
    Png,
}

/// Data shorter than this are not compressed and have no length.
const SHORT: usize = 12;

const FILTERED: u8 = 4;

/// Pixels as they came.
#[derive(Debug)]
enum Body<'a> {
    Fill(&'a [u8]),
    Jpeg(&'a [u8]),
    Png(&'a [u8]),
    Rows {
        filter: Filter,
        /// The stream, or none if the rows are plain.
        stream: Option<usize>,
        data: &'a [u8],
    },
}

/// A rectangle as it came.
#[derive(Debug)]
pub(crate) struct Rect<'a> {
    /// One bit for each stream that begins anew.
    resets: u8,
    body: Body<'a>,
}

/// A length of one to three bytes, seven bits in each but the last.
fn compact_length(wire: &mut Wire<'_>) -> Result<u32, Stop> {
    let mut length = 0;
    for shift in [0, 7, 14] {
        let byte = u32::from(wire.u8()?);
        if shift == 14 {
            return Ok(length | byte << shift);
        }
        length |= (byte & 127) << shift;
        if byte < 128 {
            break;
        }
    }
    Ok(length)
}

fn counted<'a>(wire: &mut Wire<'a>, area: Area) -> Result<&'a [u8], Stop> {
    let length = compact_length(wire)?;
    let limit = max_compressed(area);
    check_limit("compressed data", length.into(), limit.into())?;
    wire.take(length as usize)
}

/// Takes a rectangle.
pub(crate) fn read<'a>(
    wire: &mut Wire<'a>,
    area: Area,
    variant: Variant,
    colours: &Colours,
) -> Result<Rect<'a>, Stop> {
    let control = wire.u8()?;
    let body = match (control >> 4, variant) {
        (8, _) => Body::Fill(wire.take(colours.tight.bytes())?),
        (9, _) => Body::Jpeg(counted(wire, area)?),
        (10, Variant::Png) => Body::Png(counted(wire, area)?),
        (kind @ (0..8 | 10 | 14), Variant::Tight) => read_rows(wire, area, kind, colours)?,
        _ => {
            return Err(Stop::Fault(RfbError::Malformed {
                what: "a Tight rectangle has a form that its encoding lacks",
            }));
        }
    };
    Ok(Rect {
        resets: control & 15,
        body,
    })
}

/// Takes filtered rows. The two low bits of `kind` number the stream, unless there is none.
fn read_rows<'a>(
    wire: &mut Wire<'a>,
    area: Area,
    kind: u8,
    colours: &Colours,
) -> Result<Body<'a>, Stop> {
    let filter = if kind & FILTERED == 0 {
        Filter::Copy
    } else {
        tight_filter::read(wire, &colours.tight)?
    };
    let length = filter.row_bytes(area, &colours.tight) * usize::from(area.height);
    let stream = usize::from(kind & 3);
    let (stream, data) = if length < SHORT {
        (None, wire.take(length)?)
    } else if kind < 8 {
        (Some(stream), counted(wire, area)?)
    } else {
        (None, counted(wire, area)?)
    };
    Ok(Body::Rows {
        filter,
        stream,
        data,
    })
}

/// The four streams.
#[derive(Debug, Default)]
pub(crate) struct Streams([Inflater; 4]);

impl Streams {
    /// Paints a rectangle.
    pub(crate) fn decode(
        &mut self,
        rect: &Rect<'_>,
        area: Area,
        colours: &Colours,
        screen: &mut Framebuffer,
    ) -> Result<(), RfbError> {
        for (number, stream) in self.0.iter_mut().enumerate() {
            if rect.resets & (1 << number) != 0 {
                stream.reset();
            }
        }
        match &rect.body {
            Body::Fill(pixel) => screen.fill(area, colours.tight.colour(pixel)),
            Body::Jpeg(data) => screen.draw_rgb(area, &jpeg::decode(data, area)?),
            Body::Png(data) => screen.draw_rgb(area, &png::decode(data, area)?),
            Body::Rows {
                filter,
                stream,
                data,
            } => {
                let row = filter.row_bytes(area, &colours.tight);
                let rows = match stream.and_then(|number| self.0.get_mut(number)) {
                    Some(stream) => Rows::inflated(stream.go_on(data), area, row),
                    None => Rows::plain(data, area, row),
                };
                tight_filter::decode(filter, rows, &colours.tight, screen)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::pixel::PixelFormat, inflate::tests::Deflater},
        *,
    };

    const AREA: Area = Area {
        x: 0,
        y: 0,
        width: 4,
        height: 2,
    };

    fn run_as(variant: Variant, rects: &[&[u8]]) -> Result<Vec<[u8; 3]>, Stop> {
        let colours = Colours::new(&PixelFormat::WIRE);
        let mut screen = Framebuffer::new(4, 2).unwrap();
        let mut streams = Streams::default();
        for bytes in rects {
            let mut wire = Wire::new(bytes);
            let rect = read(&mut wire, AREA, variant, &colours)?;
            streams.decode(&rect, AREA, &colours, &mut screen)?;
            assert_eq!(wire.left(), 0);
        }
        Ok(screen.rgb().as_chunks::<3>().0.to_vec())
    }

    fn run(rects: &[&[u8]]) -> Result<Vec<[u8; 3]>, Stop> {
        run_as(Variant::Tight, rects)
    }

    /// A rectangle: control and filter bytes, then compressed data.
    fn packed(head: &[u8], data: &[u8]) -> Vec<u8> {
        assert!(data.len() < 128);
        [head, &[data.len() as u8], data].concat()
    }

    #[test]
    fn a_fill_is_red_green_blue() {
        assert_eq!(run(&[&[0x80, 1, 2, 3]]).unwrap(), [[1, 2, 3]; 8]);
    }

    #[test]
    fn lengths_of_one_to_three_bytes() {
        let length = |bytes: &[u8]| compact_length(&mut Wire::new(bytes)).unwrap();
        assert_eq!(length(&[0x7f]), 127);
        assert_eq!(length(&[0x90, 0x4e]), 10_000);
        assert_eq!(length(&[0xff, 0xff, 0xff]), 4_194_303);
        assert!(compact_length(&mut Wire::new(&[0x80, 0x80])).is_err());
    }

    #[test]
    fn copied_rows_in_two_streams_that_go_on() {
        let pixels = (0..24).collect::<Vec<u8>>();
        let (mut zero, mut two) = (Deflater::new(), Deflater::new());
        let first = packed(&[0x00], &zero.piece(&pixels));
        let other = packed(&[0x20], &two.piece(&[7; 24]));
        let third = packed(&[0x00], &zero.piece(&pixels));
        let seen = run(&[&first, &other, &third]).unwrap();
        assert_eq!(seen.as_flattened(), pixels);
    }

    #[test]
    fn a_stream_begins_anew_when_told() {
        let piece = Deflater::new().piece(&[5; 24]);
        let (first, again) = (packed(&[0x10], &piece), packed(&[0x12], &piece));
        assert_eq!(run(&[&first, &again]).unwrap(), [[5; 3]; 8]);
        assert!(run(&[&first, &packed(&[0x10], &piece)]).is_err());
        // A fill may reset as well.
        let fill = [0x82, 1, 1, 1];
        assert_eq!(run(&[&first, &fill, &first]).unwrap(), [[5; 3]; 8]);
    }

    #[test]
    fn a_palette_of_two_has_one_bit_a_pixel_and_short_data_are_plain() {
        let bytes = [0x40, 1, 1, 9, 9, 9, 1, 2, 3, 0b0110_0000, 0b1000_0000];
        let (a, b) = ([9; 3], [1, 2, 3]);
        assert_eq!(run(&[&bytes]).unwrap(), [a, b, b, a, b, a, a, a]);
    }

    #[test]
    fn a_larger_palette_has_a_byte_a_pixel() {
        let bytes = [
            0x50, 1, 2, 9, 9, 9, 1, 2, 3, 4, 5, 6, 0, 1, 2, 2, 1, 0, 0, 0,
        ];
        let (a, b, c) = ([9; 3], [1, 2, 3], [4, 5, 6]);
        assert_eq!(run(&[&bytes]).unwrap(), [a, b, c, c, b, a, a, a]);
    }

    #[test]
    fn a_gradient_is_predicted_from_three_neighbours() {
        // Each pixel is left + up - corner; differences of zero continue the gradient.
        let mut differences = [0; 24];
        differences[..6].copy_from_slice(&[10, 20, 250, 1, 1, 1]);
        differences[12..15].copy_from_slice(&[2, 0, 0]);
        let data = Deflater::new().piece(&differences);
        let seen = run(&[&packed(&[0x60, 2], &data)]).unwrap();
        assert_eq!(
            seen[..4],
            [[10, 20, 250], [11, 21, 251], [11, 21, 251], [11, 21, 251]]
        );
        assert_eq!(
            seen[4..],
            [[12, 20, 250], [13, 21, 251], [13, 21, 251], [13, 21, 251]]
        );
    }

    #[test]
    fn rows_without_zlib() {
        let pixels = (0..24).collect::<Vec<u8>>();
        let plain = packed(&[0xa0], &pixels);
        assert_eq!(run(&[&plain]).unwrap().as_flattened(), pixels);
        let filtered = packed(&[0xe0, 0], &pixels);
        assert_eq!(run(&[&filtered]).unwrap().as_flattened(), pixels);
        for wrong in [&pixels[..23], &[&pixels[..], &[0]].concat()] {
            assert!(matches!(
                run(&[&packed(&[0xa0], wrong)]),
                Err(Stop::Fault(_))
            ));
        }
    }

    #[test]
    fn forms_that_do_not_exist_are_refused() {
        for control in [0xb0, 0xc0, 0xd0, 0xf0] {
            assert!(matches!(run(&[&[control]]), Err(Stop::Fault(_))));
        }
        for control in [0x00, 0x40, 0xe0] {
            let seen = run_as(Variant::Png, &[&[control]]);
            assert!(matches!(seen, Err(Stop::Fault(_))));
        }
        assert!(
            matches!(run(&[&[0x40, 3]]), Err(Stop::Fault(_))),
            "filter 3"
        );
        let beyond = [
            0x40, 1, 2, 9, 9, 9, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 1, 0, 0, 0,
        ];
        assert!(
            matches!(run(&[&beyond]), Err(Stop::Fault(_))),
            "colour 3 of 3"
        );
    }

    #[test]
    fn png_and_jpeg_have_the_size_of_the_rectangle_or_are_refused() {
        let image = |width, height, format| {
            let picture = image::RgbImage::from_pixel(width, height, image::Rgb([200, 100, 50]));
            let mut bytes = std::io::Cursor::new(Vec::new());
            picture.write_to(&mut bytes, format).unwrap();
            let bytes = bytes.into_inner();
            let length = [bytes.len() as u8 | 128, (bytes.len() >> 7) as u8];
            [&length[..], &bytes].concat()
        };
        let png = |w, h| [&[0xa0][..], &image(w, h, image::ImageFormat::Png)].concat();
        let jpeg = |w, h| [&[0x90][..], &image(w, h, image::ImageFormat::Jpeg)].concat();
        let seen = run_as(Variant::Png, &[&png(4, 2)]).unwrap();
        assert_eq!(seen, [[200, 100, 50]; 8]);
        for variant in [Variant::Tight, Variant::Png] {
            let seen = run_as(variant, &[&jpeg(4, 2)]).unwrap();
            let far = seen.as_flattened().iter().zip([200, 100, 50].repeat(8));
            assert!(far.clone().all(|(a, b)| a.abs_diff(b) < 4), "{seen:?}");
        }
        for (w, h) in [(4, 3), (8, 1), (2, 2), (4000, 1)] {
            assert!(matches!(
                run_as(Variant::Png, &[&png(w, h)]),
                Err(Stop::Fault(_))
            ));
            assert!(matches!(run(&[&jpeg(w, h)]), Err(Stop::Fault(_))));
        }
    }
}
