//! TRLE (15): tiles of 16x16 (RFC 6143 §7.7.5). A tile is one unit.

use super::{
    super::{
        colour::Layout,
        framebuffer::{Area, Framebuffer},
        wire::{Stop, Wire},
    },
    tile::{Content, Flavour, Tile},
};

/// Side of a tile.
pub(crate) const SIDE: u16 = 16;

/// Takes the tile at `area`; `layout` is that of a compact pixel.
pub(crate) fn read(
    wire: &mut Wire<'_>,
    area: Area,
    layout: &Layout,
    tile: &mut Tile,
) -> Result<Content, Stop> {
    tile.read(wire, layout, [area.width, area.height], Flavour::Trle)
}

/// Paints it.
pub(crate) fn decode(content: Content, area: Area, tile: &Tile, screen: &mut Framebuffer) {
    match content {
        Content::Solid(colour) => screen.fill(area, colour),
        _ => screen.draw_rgb(area, tile.rgb(area.pixels() as usize)),
    }
}
