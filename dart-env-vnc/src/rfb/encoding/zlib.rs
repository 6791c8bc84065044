//! Zlib (6): raw pixels through one stream of zlib (as registered with rfbproto).

use super::{
    super::{
        colour::Layout,
        error::RfbError,
        framebuffer::{Area, Framebuffer},
        limits::max_compressed,
        wire::{Stop, Wire},
    },
    inflate::Inflater,
    rows::Rows,
};

/// Takes the compressed data.
pub(crate) fn read<'a>(wire: &mut Wire<'a>, area: Area) -> Result<&'a [u8], Stop> {
    wire.counted("compressed data", max_compressed(area))
}

/// Paints the pixels; `layout` is that of a whole pixel.
pub(crate) fn decode(
    data: &[u8],
    area: Area,
    layout: &Layout,
    stream: &mut Inflater,
    screen: &mut Framebuffer,
) -> Result<(), RfbError> {
    let mut rows = Rows::inflated(stream.go_on(data), area, area.row_bytes(layout));
    while let Some((part, pixels)) = rows.next_rows()? {
        screen.draw(part, layout, pixels);
    }
    rows.finish()
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

    #[test]
    fn the_stream_goes_on_over_rectangles() {
        let layout = Colours::new(&PixelFormat::WIRE).pixel;
        let mut screen = Framebuffer::new(4, 3).unwrap();
        let (mut deflater, mut stream) = (Deflater::new(), Inflater::default());
        for (y, value) in [(0, 1), (1, 2)] {
            let area = Area {
                x: 1,
                y,
                width: 2,
                height: 2,
            };
            let piece = deflater.piece(&[value; 16]);
            let bytes = [&(piece.len() as u32).to_be_bytes()[..], &piece].concat();
            let mut wire = Wire::new(&bytes);
            let data = read(&mut wire, area).unwrap();
            decode(data, area, &layout, &mut stream, &mut screen).unwrap();
        }
        let rows = screen.rgb().chunks(12).map(|row| (row[0], row[3], row[8]));
        assert_eq!(rows.collect::<Vec<_>>(), [(0, 1, 1), (0, 2, 2), (0, 2, 2)]);
    }

    #[test]
    fn a_bomb_is_refused_at_the_size_of_the_rectangle() {
        let layout = Colours::new(&PixelFormat::WIRE).pixel;
        let mut screen = Framebuffer::new(4, 3).unwrap();
        let area = Area::all(screen.size());
        let bomb = Deflater::new().piece(&vec![0; 1 << 20]);
        assert!(bomb.len() < 2000);
        let mut stream = Inflater::default();
        let error = decode(&bomb, area, &layout, &mut stream, &mut screen).unwrap_err();
        assert!(error.to_string().contains("go on"));
    }
}
