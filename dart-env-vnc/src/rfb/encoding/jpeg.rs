//! JPEG inside Tight: a baseline picture of the rectangle's size.

use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

use super::super::{error::RfbError, framebuffer::Area};

const DAMAGED: RfbError = RfbError::Malformed {
    what: "a JPEG picture is damaged",
};

/// Fails unless the header announces a picture that is worth its work.
///
/// Progressive pictures are refused: no server sends them, and thousands of scans over a large
/// rectangle fit into few bytes.
fn check(data: &[u8], area: Area) -> Result<(), RfbError> {
    let mut rest = data.strip_prefix(&[0xff, 0xd8]).ok_or(DAMAGED)?;
    loop {
        let (marker, after) = match rest {
            [0xff, 0xff, ..] => {
                rest = &rest[1..];
                continue;
            }
            [0xff, marker, after @ ..] => (*marker, after),
            _ => return Err(DAMAGED),
        };
        let [high, low, ..] = *after else {
            return Err(DAMAGED);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (segment, next) = after.split_at_checked(length.max(2)).ok_or(DAMAGED)?;
        match (marker, segment) {
            (0xc0 | 0xc1, [_, _, 8, h0, h1, w0, w1, 1 | 3, ..]) => {
                let size = [[*w0, *w1], [*h0, *h1]].map(u16::from_be_bytes);
                if size == [area.width, area.height] {
                    return Ok(());
                }
                return Err(RfbError::Malformed {
                    what: "a picture has another size than its rectangle",
                });
            }
            // Tables, comments and application data come before the frame.
            (0xc4 | 0xdb | 0xdd | 0xe0..=0xef | 0xfe, _) => rest = next,
            _ => {
                return Err(RfbError::Malformed {
                    what: "a JPEG picture is of a kind that no server sends",
                });
            }
        }
    }
}

/// The picture's colours.
pub(crate) fn decode(data: &[u8], area: Area) -> Result<Vec<u8>, RfbError> {
    check(data, area)?;
    let options = DecoderOptions::default()
        .set_max_width(area.width.into())
        .set_max_height(area.height.into())
        .set_strict_mode(true)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(data), options);
    let rgb = decoder.decode().map_err(|_| DAMAGED)?;
    if rgb.len() == area.pixels() as usize * 3 {
        Ok(rgb)
    } else {
        Err(DAMAGED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Area = Area {
        x: 0,
        y: 0,
        width: 16,
        height: 8,
    };

    fn picture() -> Vec<u8> {
        let picture =
            image::RgbImage::from_fn(16, 8, |x, y| image::Rgb([x as u8 * 9, 80, y as u8]));
        let mut bytes = std::io::Cursor::new(Vec::new());
        picture
            .write_to(&mut bytes, image::ImageFormat::Jpeg)
            .unwrap();
        bytes.into_inner()
    }

    #[test]
    fn progressive_and_damaged_pictures_are_refused() {
        let good = picture();
        assert_eq!(decode(&good, AREA).unwrap().len(), 16 * 8 * 3);
        let frame = good
            .windows(2)
            .position(|pair| pair == [0xff, 0xc0])
            .unwrap();
        let mut progressive = good.clone();
        progressive[frame + 1] = 0xc2;
        assert!(decode(&progressive, AREA).is_err());
        for length in 0..good.len() - 20 {
            assert!(decode(&good[..length], AREA).is_err(), "{length}");
        }
    }

    #[test]
    fn the_size_is_checked_before_anything_is_decoded() {
        let mut huge = picture();
        let frame = huge
            .windows(2)
            .position(|pair| pair == [0xff, 0xc0])
            .unwrap();
        huge[frame + 5..frame + 9].copy_from_slice(&[0xff; 4]);
        let error = decode(&huge, AREA).unwrap_err();
        assert!(error.to_string().contains("another size"));
    }
}
