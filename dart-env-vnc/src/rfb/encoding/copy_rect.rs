//! CopyRect (1): pixels that are already on the screen (RFC 6143 §7.7.2).

use dart_core::Size;

use super::super::{
    framebuffer::{Area, Framebuffer},
    wire::{Stop, Wire},
};

/// Where the pixels come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    x: u16,
    y: u16,
}

/// Takes the source and checks that it lies on a screen of `size`.
pub(crate) fn read(wire: &mut Wire<'_>, to: Area, size: Size) -> Result<Source, Stop> {
    let source = Source {
        x: wire.u16()?,
        y: wire.u16()?,
    };
    let from = Area {
        x: source.x,
        y: source.y,
        ..to
    };
    from.check_inside(size)?;
    Ok(source)
}

/// Copies the pixels.
pub(crate) fn decode(source: Source, to: Area, screen: &mut Framebuffer) {
    screen.copy(source.x, source.y, to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_outside_the_screen_is_refused() {
        let to = Area {
            width: 2,
            height: 2,
            ..Area::default()
        };
        let size = Size::new(4, 4);
        assert!(read(&mut Wire::new(&[0, 2, 0, 2]), to, size).is_ok());
        for bytes in [[0, 3, 0, 2], [0, 2, 0, 3], [255; 4]] {
            assert!(matches!(
                read(&mut Wire::new(&bytes), to, size),
                Err(Stop::Fault(_))
            ));
        }
    }
}
