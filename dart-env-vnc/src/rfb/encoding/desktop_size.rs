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
