//! Pictures: what `screencap` prints, raw or PNG, and framebuffers with their header. The first byte
//! chooses. A picture is as large as it says, and the same read whole or on the way.

#![no_main]

use dart_core::Frame;
use dart_env_adb::wire::{framebuffer, raw_reader::RawReader, screencap};
use dart_env_adb_fuzz::pieces;

fn framebuffer(data: &[u8]) -> dart_core::Result<Frame> {
    let version = data
        .first_chunk()
        .map_or(0, |four| u32::from_le_bytes(*four));
    let length = framebuffer::header_length(version)?.min(data.len());
    let (header, pixels) = data.split_at(length);
    let layout = framebuffer::parse(header)?;
    assert!(layout.length() <= 4 * Frame::MAX_PIXELS);
    let frame = layout.frame(pixels);
    assert_eq!(frame.is_ok(), pixels.len() >= layout.length());
    frame
}

/// The second byte is the size of the pieces. One picture, then the rest of the data as another, which
/// may or may not be like it; then the first once more.
fn on_the_way(data: &[u8]) -> dart_core::Result<Frame> {
    let mut reader = RawReader::default();
    let mut read = |bytes: &[u8], size: u8| {
        reader.restart();
        pieces(bytes, size).try_for_each(|piece| reader.push(piece))?;
        reader.finish()
    };
    let [size, data @ ..] = data else {
        return read(b"", 0);
    };
    let (first, second) = data.split_at(data.len() / 2);
    for bytes in [first, second, first] {
        let _ = read(bytes, *size);
    }
    let whole = screencap::raw(data);
    let frame = read(data, *size).or_else(|_| read(data, 255));
    assert_eq!(frame.is_ok(), whole.is_ok());
    for size in [*size, 0, 255] {
        if let Ok(whole) = &whole {
            assert_eq!(whole, &read(data, size)?);
        }
    }
    frame
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    let frame = match kind % 4 {
        0 => screencap::raw(data),
        1 => screencap::png(data),
        2 => framebuffer(data),
        _ => on_the_way(data),
    };
    if let Ok(frame) = frame {
        assert_eq!(frame.rgb().len(), frame.size().area() * 3);
    }
});
