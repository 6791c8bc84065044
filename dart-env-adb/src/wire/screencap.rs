//! What `screencap` prints: raw pixels or a PNG file, perhaps after a warning.
//!
//! Source: AOSP `frameworks/base/cmds/screencap`. The raw form begins with width, height and pixel
//! format, from Android 9 on also with a colour space, 32 bits each, low byte first; which of the two
//! it is follows from the length, not from the version. On devices with several displays a warning may
//! come first. A terminal turns each LF into CR LF; data is repaired only if the signature proves the
//! damage (repairing undamaged data would destroy it).

use dart_core::{Frame, Result, Size};
use image::{ImageFormat, ImageReader, Limits};

use super::framebuffer::Layout;
use crate::error::{Adb, AdbError, excerpt};

/// How far into the output the picture may begin, bytes.
const MAX_WARNING: usize = 4096;
/// Longest side of a screen, pixels.
const MAX_SIDE: u32 = 1 << 14;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// The signature after one and after two passes through a terminal.
const DAMAGED: [(&[u8], &[u8]); 2] = [
    (b"\x89PNG\r\r\n\x1a\r\n", b"\r\n"),
    (b"\x89PNG\r\r\r\n\x1a\r\r\n", b"\r\r\n"),
];

/// The picture in the output of `screencap`.
///
/// # Errors
/// [`Protocol`](dart_core::ErrorKind::Protocol) if there is none.
pub fn raw(output: &[u8]) -> Result<Frame> {
    shaped(output).map(|(frame, _)| frame)
}

/// The picture, and how it lies in the output.
pub(super) fn shaped(output: &[u8]) -> Result<(Frame, Shape)> {
    let layout_of = |at: usize| {
        let picture = output.get(at..)?;
        let (layout, header) = raw_layout(picture)?;
        let head = *picture.first_chunk()?;
        let shape = Shape {
            layout,
            head,
            header,
        };
        Some((at + header, shape))
    };
    // After a warning the picture begins at the start of some line.
    let lines = output.iter().take(MAX_WARNING).enumerate();
    let starts = lines
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1);
    let found = std::iter::once(0).chain(starts).find_map(layout_of);
    match found {
        Some((start, shape)) => {
            let frame = shape.layout.frame(&output[start..])?;
            Ok((frame, shape))
        }
        None => Err(no_picture("raw picture", output).at("screencap")),
    }
}

/// What two pictures of one screen have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) layout: Layout,
    /// Width, height and pixel format as they came.
    pub(super) head: [u8; 12],
    /// Length of the header, bytes.
    pub(super) header: usize,
}

/// Layout and length of the header, if `bytes` are exactly one picture.
fn raw_layout(bytes: &[u8]) -> Option<(Layout, usize)> {
    let number = |at: usize| {
        let four = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?))
    };
    let (width, height) = (number(0)?, number(4)?);
    let side = |side: u32| (1..=MAX_SIDE).contains(&side);
    if !side(width) || !side(height) {
        return None;
    }
    let size = Size::new(width, height);
    let layout = match number(8)? {
        1 | 2 => Layout::bytes(size, 4, [0, 1, 2]),
        3 => Layout::bytes(size, 3, [0, 1, 2]),
        4 => Layout::rgb565(size),
        5 => Layout::bytes(size, 4, [2, 1, 0]),
        _ => return None,
    };
    let header = bytes.len().checked_sub(layout.length())?;
    matches!(header, 12 | 16).then_some((layout, header))
}

/// The picture in the output of `screencap -p`.
///
/// # Errors
/// [`Protocol`](dart_core::ErrorKind::Protocol) if there is none.
pub fn png(output: &[u8]) -> Result<Frame> {
    decode(output).map_err(|error| error.at("screencap"))
}

fn decode(output: &[u8]) -> Adb<Frame> {
    let head = &output[..output.len().min(MAX_WARNING)];
    if let Some(start) = find(head, SIGNATURE) {
        return decode_png(&output[start..]);
    }
    for (signature, ending) in DAMAGED {
        if let Some(start) = find(head, signature) {
            return decode_png(&replaced(&output[start..], ending));
        }
    }
    Err(no_picture("PNG file", output))
}

fn decode_png(bytes: &[u8]) -> Adb<Frame> {
    let mut reader = ImageReader::with_format(std::io::Cursor::new(bytes), ImageFormat::Png);
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(4 * Frame::MAX_PIXELS as u64);
    reader.limits(limits);
    let bad = |error: &dyn std::fmt::Display| AdbError::malformed("a bad PNG file", error);
    let image = reader.decode().map_err(|error| bad(&error))?.into_rgb8();
    let size = Size::new(image.width(), image.height());
    Frame::new(size, image.into_raw()).map_err(|error| bad(&error))
}

fn no_picture(what: &'static str, output: &[u8]) -> AdbError {
    let start = excerpt(output, 120);
    let found = format!("no {what} in {} bytes that begin {start:?}", output.len());
    AdbError::malformed("screencap printed something else", found)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

/// `bytes` with LF in place of `ending`.
fn replaced(bytes: &[u8], ending: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        if rest.starts_with(ending) {
            clean.push(b'\n');
            rest = &rest[ending.len()..];
        } else {
            clean.push(*first);
            rest = tail;
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use dart_core::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    const WARNING: &[u8] = b"[Warning] Multiple displays were found, but no display id was specified!\nA display id can be specified with the [-d display-id] option.\n";

    fn raw_of(numbers: &[u32], pixels: &[u8]) -> Vec<u8> {
        let header = numbers.iter().flat_map(|n| n.to_le_bytes());
        header.chain(pixels.iter().copied()).collect()
    }

    fn png_of(rgb: &[u8], size: Size) -> Vec<u8> {
        let image = image::RgbImage::from_raw(size.width, size.height, rgb.to_vec()).unwrap();
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    fn through_terminal(bytes: &[u8], ending: &[u8]) -> Vec<u8> {
        let byte = |b: &u8| {
            if *b == b'\n' {
                ending.to_vec()
            } else {
                vec![*b]
            }
        };
        bytes.iter().flat_map(byte).collect()
    }

    #[test]
    fn both_headers_and_all_formats_are_read() {
        let rgba = [1, 2, 3, 255, 4, 5, 6, 255];
        let expected = [1, 2, 3, 4, 5, 6];
        assert_eq!(raw(&raw_of(&[2, 1, 1], &rgba)).unwrap().rgb(), expected);
        assert_eq!(raw(&raw_of(&[2, 1, 2, 0], &rgba)).unwrap().rgb(), expected);
        let rgb = raw(&raw_of(&[2, 1, 3, 1], &expected)).unwrap();
        assert_eq!(rgb.rgb(), expected);
        let bgra = raw(&raw_of(&[1, 1, 5, 1], &[3, 2, 1, 0])).unwrap();
        assert_eq!(bgra.rgb(), [1, 2, 3]);
        let green = raw(&raw_of(&[1, 1, 4], &[0xe0, 0x07])).unwrap();
        assert_eq!(green.rgb(), [0, 255, 0]);
    }

    #[test]
    fn what_is_no_picture_is_named() {
        let short = raw_of(&[2, 1, 1], &[0; 7]);
        for bytes in [&b""[..], b"sh: screencap: not found", &short] {
            let error = raw(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
            assert!(png(bytes).is_err());
        }
        assert!(png(b"\x89PNG\r\n\x1a\nrubbish").is_err());
    }

    #[test]
    fn a_huge_png_is_refused_before_it_is_decoded() {
        let mut bytes = png_of(&[0; 3], Size::new(1, 1));
        bytes[16..20].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
        assert!(png(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn pictures_survive_warnings_and_terminals(
            (width, rgb) in (1u32..6).prop_flat_map(|w| (Just(w), proptest::collection::vec(
                prop_oneof![Just(10u8), Just(13u8), any::<u8>()], (w * 3) as usize))),
            warned: bool,
        ) {
            let size = Size::new(width, 1);
            let frame = Frame::new(size, rgb.clone()).unwrap();
            let warning = if warned { WARNING } else { b"" };
            let file = [warning, &png_of(&rgb, size)].concat();
            prop_assert_eq!(png(&file).unwrap(), frame.clone());
            for ending in [&b"\r\n"[..], b"\r\r\n"] {
                prop_assert_eq!(png(&through_terminal(&file, ending)).unwrap(), frame.clone());
            }
            let raw_file = [warning, &raw_of(&[width, 1, 3, 1], &rgb)].concat();
            prop_assert_eq!(raw(&raw_file).unwrap(), frame);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), signed: bool) {
            let bytes = if signed { [SIGNATURE, &bytes[..]].concat() } else { bytes };
            let _ = (raw(&bytes), png(&bytes));
        }
    }
}
