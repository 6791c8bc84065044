//! PNG inside TightPNG: a picture of the rectangle's size.

use std::io::Cursor;

use png::{ColorType, Decoder, Limits, Transformations};

use super::super::{error::RfbError, framebuffer::Area};

const DAMAGED: RfbError = RfbError::Malformed {
    what: "a PNG picture is damaged",
};

/// The picture's colours; opacity means nothing on a screen.
pub(crate) fn decode(data: &[u8], area: Area) -> Result<Vec<u8>, RfbError> {
    let pixels = area.pixels() as usize;
    // A row of 16-bit colour with opacity twice, and tables.
    let limits = Limits {
        bytes: usize::from(area.width) * 16 + (1 << 20),
    };
    let mut decoder = Decoder::new_with_limits(Cursor::new(data), limits);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let head = decoder.read_header_info().map_err(|_| DAMAGED)?;
    if (head.width, head.height) != (area.width.into(), area.height.into()) {
        return Err(RfbError::Malformed {
            what: "a picture has another size than its rectangle",
        });
    }
    let mut reader = decoder.read_info().map_err(|_| DAMAGED)?;
    let size = reader.output_buffer_size().ok_or(DAMAGED)?;
    let mut out = vec![0; size.min(pixels * 4)];
    let frame = reader.next_frame(&mut out).map_err(|_| DAMAGED)?;
    let channels = match frame.color_type {
        ColorType::Rgb => return Ok(out),
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgba => 4,
        ColorType::Indexed => return Err(DAMAGED),
    };
    let colours = out.chunks_exact(channels).flat_map(|pixel| match *pixel {
        [red, green, blue, _] => [red, green, blue],
        _ => [pixel[0]; 3],
    });
    Ok(colours.collect())
}

#[cfg(test)]
mod tests {
    use image::{DynamicImage, ImageFormat};

    use super::*;

    const AREA: Area = Area {
        x: 0,
        y: 0,
        width: 3,
        height: 2,
    };

    #[test]
    fn every_colour_type_becomes_red_green_blue() {
        let rgb = image::RgbImage::from_fn(3, 2, |x, y| image::Rgb([x as u8, x as u8, y as u8]));
        let colour = DynamicImage::from(rgb);
        let grey = DynamicImage::from(colour.to_luma8());
        for (picture, like) in [
            (DynamicImage::from(colour.to_rgba8()), &colour),
            (DynamicImage::from(colour.to_rgb16()), &colour),
            (DynamicImage::from(grey.to_luma_alpha8()), &grey),
            (grey.clone(), &grey),
        ] {
            let mut bytes = Cursor::new(Vec::new());
            picture.write_to(&mut bytes, ImageFormat::Png).unwrap();
            let seen = decode(&bytes.into_inner(), AREA).unwrap();
            assert_eq!(seen, like.to_rgb8().into_raw());
        }
    }

    #[test]
    fn damaged_pictures_are_refused() {
        let mut bytes = Cursor::new(Vec::new());
        image::RgbImage::new(3, 2)
            .write_to(&mut bytes, ImageFormat::Png)
            .unwrap();
        let bytes = bytes.into_inner();
        for length in 0..bytes.len() - 16 {
            assert!(decode(&bytes[..length], AREA).is_err(), "{length}");
        }
    }
}
