//! What Tight does to rows before it compresses them: nothing, a palette, or differences from a
//! prediction.

use super::{
    super::{
        colour::{Colour, Layout},
        error::RfbError,
        framebuffer::{Area, Framebuffer},
        wire::{Stop, Wire},
    },
    rows::Rows,
};

/// A filter and what belongs to it.
#[derive(Debug)]
pub(crate) enum Filter {
    Copy,
    Palette(Vec<Colour>),
    Gradient,
}

/// Takes a filter; `layout` is that of a pixel in Tight.
pub(crate) fn read(wire: &mut Wire<'_>, layout: &Layout) -> Result<Filter, Stop> {
    match wire.u8()? {
        0 => Ok(Filter::Copy),
        1 => {
            let count = usize::from(wire.u8()?) + 1;
            let pixels = wire.take(count * layout.bytes())?;
            let pixels = pixels.chunks_exact(layout.bytes());
            Ok(Filter::Palette(pixels.map(|p| layout.colour(p)).collect()))
        }
        2 if layout.channels(&[]).is_some() => Ok(Filter::Gradient),
        _ => Err(Stop::Fault(RfbError::Malformed {
            what: "a Tight rectangle has a filter that does not exist",
        })),
    }
}

impl Filter {
    /// Bytes of a row.
    pub(crate) fn row_bytes(&self, area: Area, layout: &Layout) -> usize {
        match self {
            Self::Copy | Self::Gradient => area.row_bytes(layout),
            Self::Palette(colours) if colours.len() <= 2 => usize::from(area.width).div_ceil(8),
            Self::Palette(_) => area.width.into(),
        }
    }
}

/// Undoes the filter and paints the rows.
pub(crate) fn decode(
    filter: &Filter,
    mut rows: Rows<'_>,
    layout: &Layout,
    screen: &mut Framebuffer,
) -> Result<(), RfbError> {
    let mut gradient = Gradient::default();
    while let Some((part, bytes)) = rows.next_rows()? {
        match filter {
            Filter::Copy => screen.draw(part, layout, bytes),
            Filter::Palette(colours) => {
                for_each_row(part, bytes, screen, |bytes, row| paint(colours, bytes, row))?;
            }
            Filter::Gradient => {
                for_each_row(part, bytes, screen, |bytes, row| {
                    gradient.paint(layout, bytes, row);
                    Ok(())
                })?;
            }
        }
    }
    rows.finish()
}

fn for_each_row(
    part: Area,
    bytes: &[u8],
    screen: &mut Framebuffer,
    mut paint: impl FnMut(&[u8], &mut [u8]) -> Result<(), RfbError>,
) -> Result<(), RfbError> {
    let length = bytes.len() / usize::from(part.height.max(1));
    for (y, bytes) in (part.y..).zip(bytes.chunks_exact(length.max(1))) {
        paint(bytes, screen.row_mut(part.x, y, part.width))?;
    }
    Ok(())
}

/// Looks each pixel up: bits for two colours, bytes for more.
fn paint(colours: &[Colour], bytes: &[u8], row: &mut [u8]) -> Result<(), RfbError> {
    let (pixels, _) = row.as_chunks_mut::<3>();
    let colour = |index: u8| {
        let colour = colours.get(usize::from(index)).copied();
        colour.ok_or(RfbError::Malformed {
            what: "a pixel has a colour that its palette lacks",
        })
    };
    if colours.len() > 2 {
        for (pixel, index) in pixels.iter_mut().zip(bytes) {
            *pixel = colour(*index)?;
        }
        return Ok(());
    }
    for (pixels, byte) in pixels.chunks_mut(8).zip(bytes) {
        for (bit, pixel) in pixels.iter_mut().enumerate() {
            *pixel = colour((byte >> (7 - bit)) & 1)?;
        }
    }
    Ok(())
}

/// The row before, with a pixel of zeros to its left.
#[derive(Debug, Default)]
struct Gradient {
    before: Vec<[u16; 3]>,
}

impl Gradient {
    /// Each channel is its left neighbour plus its upper one minus the one between them, within
    /// its range, plus the difference on the wire.
    fn paint(&mut self, layout: &Layout, bytes: &[u8], row: &mut [u8]) {
        let (pixels, _) = row.as_chunks_mut::<3>();
        self.before.resize(pixels.len() + 1, [0; 3]);
        let maximum = layout.maximum();
        let (mut left, mut corner) = ([0; 3], [0; 3]);
        let differences = bytes.chunks_exact(layout.bytes());
        for ((pixel, bytes), up) in pixels
            .iter_mut()
            .zip(differences)
            .zip(&mut self.before[1..])
        {
            let difference = layout.channels(bytes).unwrap_or_default();
            let value = std::array::from_fn(|at| {
                let predicted = i32::from(left[at]) + i32::from(up[at]) - i32::from(corner[at]);
                let predicted = predicted.clamp(0, maximum[at].into()) as u16;
                predicted.wrapping_add(difference[at]) & maximum[at]
            });
            *pixel = layout.join(value);
            (corner, left) = (*up, value);
            *up = value;
        }
    }
}
