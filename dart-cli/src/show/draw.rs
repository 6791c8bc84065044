//! Draws an action into the frame it was decided on.

use std::io::Cursor;

use anyhow::{Context, Result};
use dart_core::{Action, Frame, ScreenPx};
use image::{ImageFormat, Rgb, RgbImage, imageops::FilterType};

/// Frames narrower than this are enlarged by a whole factor, so that a person can see them.
const COMFORTABLE_WIDTH: u32 = 480;

const MARK: Rgb<u8> = Rgb([230, 30, 60]);
const HALO: Rgb<u8> = Rgb([255, 255, 255]);

/// The frame as PNG; a ring marks each point of the action, a line joins start and end.
pub(super) fn png(frame: &Frame, action: Option<&Action>) -> Result<Vec<u8>> {
    let size = frame.size();
    let picture = RgbImage::from_raw(size.width, size.height, frame.rgb().to_vec())
        .context("a frame has three bytes for each pixel")?;
    let scale = COMFORTABLE_WIDTH.div_ceil(size.width).clamp(1, 8);
    let enlarged = (size.width * scale, size.height * scale);
    let mut picture =
        image::imageops::resize(&picture, enlarged.0, enlarged.1, FilterType::Nearest);
    let place = |point: ScreenPx| {
        let middle = |v: i32| v * scale as i32 + scale as i32 / 2;
        (middle(point.x), middle(point.y))
    };
    let points: Vec<_> = action
        .into_iter()
        .flat_map(Action::points)
        .map(place)
        .collect();
    if let [from, to] = points[..] {
        line(&mut picture, from, to);
    }
    for point in points {
        ring(&mut picture, point, 9);
    }
    let mut bytes = Cursor::new(Vec::new());
    picture
        .write_to(&mut bytes, ImageFormat::Png)
        .context("cannot encode a PNG")?;
    Ok(bytes.into_inner())
}

fn put(picture: &mut RgbImage, x: i32, y: i32, colour: Rgb<u8>) {
    if let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y))
        && let Some(pixel) = picture.get_pixel_mut_checked(x, y)
    {
        *pixel = colour;
    }
}

/// A ring of `radius`, red inside white, so that it is seen on any background.
fn ring(picture: &mut RgbImage, (x, y): (i32, i32), radius: i32) {
    for dy in -radius - 1..=radius + 1 {
        for dx in -radius - 1..=radius + 1 {
            let distance = f64::from(dx * dx + dy * dy).sqrt() - f64::from(radius);
            if distance.abs() <= 1.6 {
                let colour = if distance.abs() <= 0.8 { MARK } else { HALO };
                put(picture, x + dx, y + dy, colour);
            }
        }
    }
    put(picture, x, y, MARK);
}

fn line(picture: &mut RgbImage, from: (i32, i32), to: (i32, i32)) {
    let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).max(1);
    for step in 0..=steps {
        let between = |a: i32, b: i32| a + (b - a) * step / steps;
        put(picture, between(from.0, to.0), between(from.1, to.1), MARK);
    }
}

#[cfg(test)]
mod tests {
    use dart_core::Size;

    use super::*;

    #[test]
    fn the_mark_is_where_the_click_is() {
        let frame = Frame::new(Size::new(120, 90), vec![0; 120 * 90 * 3]).unwrap();
        let bytes = png(&frame, Some(&Action::click(ScreenPx::new(60, 45)))).unwrap();
        let picture = image::load_from_memory(&bytes).unwrap().to_rgb8();
        assert_eq!(picture.dimensions(), (480, 360));
        assert_eq!(*picture.get_pixel(242, 182), MARK);
        assert_eq!(*picture.get_pixel(242 + 9, 182), MARK);
        assert_eq!(*picture.get_pixel(0, 0), Rgb([0, 0, 0]));
    }

    #[test]
    fn marks_at_the_edge_stay_inside() {
        let frame = Frame::new(Size::new(16, 16), vec![9; 16 * 16 * 3]).unwrap();
        let drag = Action::DragTo {
            from: Some(ScreenPx::new(0, 0)),
            to: ScreenPx::new(15, 15),
        };
        assert!(png(&frame, Some(&drag)).is_ok());
    }
}
