//! DesktopSize (-223): the screen has another size now (RFC 6143 §7.8.2).
//!
//! TigerVNC announces the old size first and the new one once or twice, so an equal size is no
//! change and keeps the pixels.

use super::super::{
    error::RfbError,
    framebuffer::{Area, Framebuffer},
};

/// The new screen, or `None` if the size is the same. The rectangle's position means nothing.
pub(crate) fn decode(area: Area, screen: &Framebuffer) -> Result<Option<Framebuffer>, RfbError> {
    if Area::all(screen.size()).pixels() == area.pixels()
        && screen.size().width == u32::from(area.width)
    {
        return Ok(None);
    }
    Framebuffer::new(area.width, area.height).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_size_is_a_change() {
        let screen = Framebuffer::new(4, 3).unwrap();
        let told = |width, height| {
            let area = Area {
                x: 9,
                y: 9,
                width,
                height,
            };
            decode(area, &screen).map(|screen| screen.map(|screen| screen.size()))
        };
        assert_eq!(told(4, 3), Ok(None));
        // The same number of pixels is not the same size.
        assert_eq!(told(3, 4), Ok(Some(dart_core::Size::new(3, 4))));
        assert!(told(0, 4).is_err() && told(65_535, 4).is_err());
    }
}
