//! A malicious server's rectangles: one row for each class of fault that decoders of VNC clients have
//! had. Every row is a typed error, before anything large is allocated.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{io::Write, time::Instant};

use flate2::{Compression, write::ZlibEncoder};

use crate::rfb_stream::{DESKTOP_SIZE, Stream, feed, run};

const RRE: i32 = 2;
const CORRE: i32 = 4;
const HEXTILE: i32 = 5;
const ZLIB: i32 = 6;
const TIGHT: i32 = 7;
const TRLE: i32 = 15;
const ZRLE: i32 = 16;
const ZYWRLE: i32 = 17;
const X_CURSOR: i32 = -240;
const TIGHT_PNG: i32 = -260;
const ALPHA_CURSOR: i32 = -314;

const ALL: [u16; 4] = [0, 0, 4, 4];

fn update() -> Stream {
    Stream::ready(4, 4).update(1)
}

fn whole(encoding: i32, bytes: &[u8]) -> Stream {
    update().rect(ALL, encoding).bytes(bytes)
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.flush().unwrap();
    encoder.get_ref().clone()
}

/// A length of 32 bits and compressed data.
fn counted(encoding: i32, bytes: &[u8]) -> Stream {
    let data = zlib(bytes);
    update()
        .rect(ALL, encoding)
        .u32(data.len() as u32)
        .bytes(&data)
}

/// Control byte (and filter), a compact length, and compressed data.
fn tight(head: &[u8], bytes: &[u8]) -> Stream {
    let data = zlib(bytes);
    let length = [
        data.len() as u8 | 0x80,
        (data.len() >> 7) as u8 | 0x80,
        (data.len() >> 14) as u8,
    ];
    whole(TIGHT, &[head, &length, &data].concat())
}

fn sub_rectangle(encoding: i32, place: &[u8]) -> Stream {
    whole(encoding, &[&[0, 0, 0, 1][..], &[0; 8], place].concat())
}

/// The class, a stream, and a word of the error.
#[allow(clippy::too_many_lines, reason = "a table, one row a class of fault")]
fn rows() -> Vec<(&'static str, Stream, &'static str)> {
    let bomb = vec![0; 8 << 20];
    let palette = |kind: u8, entries: usize| [&[kind][..], &vec![1; entries * 3]].concat();
    let outside = |encoding| update().rect([1, 0, 4, 4], encoding).bytes(&[0; 64]);
    let jpeg = [&[0x90, 20, 0xff, 0xd8][..], &[0xff, 0xc2, 0, 16], &[8; 14]].concat();
    vec![
        (
            "CVE-2017-5581, CVE-2016-9941: RRE rectangle outside",
            sub_rectangle(RRE, &[0, 3, 0, 3, 0, 2, 0, 2]),
            "outside its rectangle",
        ),
        (
            "RRE rectangle whose edge overflows 16 bits",
            sub_rectangle(RRE, &[255; 8]),
            "outside its rectangle",
        ),
        (
            "CVE-2016-9941: CoRRE rectangle outside",
            sub_rectangle(CORRE, &[3, 3, 2, 2]),
            "outside its rectangle",
        ),
        (
            "CVE-2018-20750 kind: 4 G of RRE rectangles",
            whole(RRE, &[255; 4]),
            "number of subrectangles",
        ),
        (
            "4 G of CoRRE rectangles",
            whole(CORRE, &[255; 4]),
            "number of subrectangles",
        ),
        (
            "CVE-2018-20748 kind: Hextile rectangle outside its tile",
            whole(HEXTILE, &[8, 1, 0x33, 0x11]),
            "outside its rectangle",
        ),
        (
            "Hextile tile painted 255 times over",
            whole(
                HEXTILE,
                &[&[8, 255][..], &[0x00, 0x33].repeat(255)].concat(),
            ),
            "area painted",
        ),
        (
            "CVE-2019-15692 kind: 4 GiB of Zlib",
            whole(ZLIB, &[255; 4]),
            "compressed data",
        ),
        (
            "CVE-2018-15126 kind: 2 GiB of ZRLE",
            whole(ZRLE, &[127, 255, 255, 255]),
            "compressed data",
        ),
        (
            "4 GiB of ZYWRLE",
            whole(ZYWRLE, &[255; 4]),
            "compressed data",
        ),
        ("zlib bomb in Zlib", counted(ZLIB, &bomb), "go on after"),
        (
            "zlib bomb in ZRLE",
            counted(ZRLE, &[&[1, 0, 0, 0][..], &bomb].concat()),
            "go on after",
        ),
        ("zlib bomb in Tight", tight(&[0], &bomb), "go on after"),
        (
            "LibVNC 540332be: Tight rows beyond the rectangle",
            tight(&[0], &[7; 5 * 12]),
            "go on after",
        ),
        (
            "Tight rows that end early",
            tight(&[0], &[7; 3 * 12]),
            "end before",
        ),
        (
            "LibVNC 5b270544: Tight gradient beyond the rectangle",
            tight(&[0x40, 2], &[7; 5 * 12]),
            "go on after",
        ),
        (
            "CVE-2019-15693 kind: Tight filter that does not exist",
            whole(TIGHT, &[0x40, 9]),
            "filter",
        ),
        (
            "noVNC#41, #145: Tight control byte that does not exist",
            whole(TIGHT, &[0xf0]),
            "form",
        ),
        (
            "Tight palette that lacks a colour",
            tight(&[0x40, 1, 2, 1, 1, 1, 2, 2, 2, 3, 3, 3], &[200; 16]),
            "palette lacks",
        ),
        (
            "noVNC#1979: damaged zlib in Tight",
            whole(TIGHT, &[&[0, 12][..], &[0xaa; 12]].concat()),
            "damaged",
        ),
        (
            "Tight without zlib, of another length",
            whole(TIGHT, &[&[0xa0, 47][..], &[1; 47]].concat()),
            "end before",
        ),
        (
            "basic compression in TightPNG",
            whole(TIGHT_PNG, &[0x00, 1, 1]),
            "form",
        ),
        (
            "JPEG that is none",
            whole(TIGHT, &[0x90, 3, 1, 2, 3]),
            "JPEG",
        ),
        ("progressive JPEG", whole(TIGHT, &jpeg), "JPEG"),
        (
            "JPEG of 65535x65535",
            whole(
                TIGHT,
                &[
                    0x90, 21, 0xff, 0xd8, 0xff, 0xc0, 0, 17, 8, 255, 255, 255, 255, 3, 1, 0x11, 0,
                    2, 0x11, 0, 3, 0x11, 0,
                ],
            ),
            "another size",
        ),
        (
            "PNG that is none",
            whole(TIGHT_PNG, &[0xa0, 4, 1, 2, 3, 4]),
            "PNG",
        ),
        (
            "CVE-2014-0011: ZRLE run beyond its tile",
            counted(ZRLE, &[128, 0, 0, 0, 255, 255, 0]),
            "longer than its tile",
        ),
        (
            "LibVNC 8f6b47dd: ZRLE palette of 127 packed",
            counted(ZRLE, &palette(127, 127)),
            "form",
        ),
        (
            "ZRLE number beyond the palette",
            counted(ZRLE, &[&palette(130, 2)[..], &[7; 16]].concat()),
            "palette lacks",
        ),
        (
            "ZRLE palette that is used again",
            counted(ZRLE, &[129, 0, 0, 0]),
            "form",
        ),
        (
            "ZRLE that ends within a tile",
            counted(ZRLE, &[0, 1, 2, 3]),
            "end before",
        ),
        (
            "ZYWRLE wavelet within a wavelet that ends early",
            counted(ZYWRLE, &[0, 0, 0, 1]),
            "end before",
        ),
        (
            "LibVNC e33d9c93: TRLE run beyond its tile",
            whole(TRLE, &[128, 0, 0, 0, 255, 255, 0]),
            "longer than its tile",
        ),
        (
            "TRLE palette used again before there was one",
            whole(TRLE, &[127, 0]),
            "form",
        ),
        (
            "TRLE palette too large to pack",
            whole(TRLE, &[&[17][..], &[0; 64]].concat()),
            "form",
        ),
        (
            "CVE-2019-15690, CVE-2019-20788: XCursor area overflows",
            update().rect([0, 0, 65_535, 65_535], X_CURSOR),
            "cursor side",
        ),
        (
            "CursorWithAlpha area overflows",
            update().rect([0, 0, 65_535, 65_535], ALPHA_CURSOR),
            "cursor side",
        ),
        (
            "CursorWithAlpha within CursorWithAlpha",
            whole(ALPHA_CURSOR, &ALPHA_CURSOR.to_be_bytes()),
            "encoding of a cursor",
        ),
        (
            "RRE outside the screen",
            outside(RRE),
            "outside the framebuffer",
        ),
        (
            "Hextile outside the screen",
            outside(HEXTILE),
            "outside the framebuffer",
        ),
        (
            "Zlib outside the screen",
            outside(ZLIB),
            "outside the framebuffer",
        ),
        (
            "Tight outside the screen",
            outside(TIGHT),
            "outside the framebuffer",
        ),
        (
            "TRLE outside the screen",
            outside(TRLE),
            "outside the framebuffer",
        ),
        (
            "ZRLE outside the screen",
            outside(ZRLE),
            "outside the framebuffer",
        ),
    ]
}

#[test]
fn every_row_is_a_typed_error() {
    for (class, stream, word) in rows() {
        let begun = Instant::now();
        let mut outcome = run(&stream);
        let error = outcome.error.take();
        let error = error.unwrap_or_else(|| panic!("{class}: no error"));
        assert!(error.to_string().contains(word), "{class}: {error}");
        assert!(outcome.core.input().capacity() < 1 << 20, "{class}: memory");
        assert!(begun.elapsed().as_millis() < 500, "{class}: time");
    }
}

#[test]
fn every_row_fails_the_same_way_byte_by_byte() {
    for (class, stream, _) in rows() {
        let whole = run(&stream).error;
        let bytes = feed(None, stream.0.chunks(1)).error;
        assert_eq!(whole, bytes, "{class}");
    }
}

/// CVE-2019-15694: a gradient in a rectangle without area.
#[test]
fn rectangles_without_area_are_harmless_in_every_encoding() {
    let empty = zlib(&[]);
    let length = (empty.len() as u32).to_be_bytes();
    let counted = [&length[..], &empty].concat();
    let cases: [(i32, &[u8]); 8] = [
        (RRE, &[0; 8]),
        (CORRE, &[0; 8]),
        (HEXTILE, &[]),
        (TRLE, &[]),
        (ZLIB, &counted),
        (ZRLE, &counted),
        (TIGHT, &[0x40, 2]),
        (TIGHT, &[0x40, 1, 1, 1, 1, 1, 2, 2, 2]),
    ];
    for size in [[0, 0, 0, 4], [4, 4, 0, 0], [0, 4, 4, 0]] {
        for (encoding, bytes) in cases {
            let stream = update().rect(size, encoding).bytes(bytes).bytes(&[2]);
            let outcome = run(&stream);
            assert_eq!(outcome.error, None, "{encoding} {size:?}");
            assert_eq!(outcome.updates(), 1, "{encoding} {size:?}");
            assert_eq!(outcome.events.len(), 3, "{encoding} {size:?}");
        }
    }
}

/// Rectangles on rectangles count too, and another size of the screen is no new allowance.
#[test]
fn the_allowance_of_an_update_cannot_be_multiplied() {
    let sub = |encoding: i32, count: u32, one: &[u8]| {
        let head = Stream::new().rect(ALL, encoding).u32(count).bytes(&[0; 4]);
        head.bytes(&one.repeat(count as usize))
    };
    // Four rectangles, each painted twice with a whole one on top.
    let rre = sub(RRE, 2, &[&[0; 8][..], &[0, 4, 0, 4]].concat());
    let corre = sub(CORRE, 2, &[0, 0, 0, 0, 0, 0, 4, 4]);
    let hextile = Stream::new()
        .rect(ALL, HEXTILE)
        .bytes(&[8, 2, 0, 0x33, 0, 0x33]);
    for (name, one) in [("RRE", rre), ("CoRRE", corre), ("Hextile", hextile)] {
        let stream = |count: u16| {
            let stream = Stream::ready(4, 4).update(count);
            stream.bytes(&one.0.repeat(count.into()))
        };
        assert_eq!(run(&stream(2)).error, None, "{name}");
        let error = run(&stream(4)).error.unwrap();
        assert!(
            error.to_string().contains("area painted"),
            "{name}: {error}"
        );
    }
    let wide = Stream::new()
        .rect([0, 0, 4, 4], DESKTOP_SIZE)
        .fill(ALL, [1; 3])
        .rect([0, 0, 5, 4], DESKTOP_SIZE)
        .fill([0, 0, 5, 4], [1; 3]);
    let stream = Stream::ready(4, 4).update(40);
    let error = run(&stream.bytes(&wide.0.repeat(10))).error.unwrap();
    assert!(error.to_string().contains("area painted"), "{error}");
}

/// A server may not make the client paint for ever: what one update paints is bounded in every
/// encoding.
#[test]
fn a_flood_of_whole_screens_is_refused_in_every_encoding() {
    let cases: [(i32, &[u8]); 6] = [
        (RRE, &[0; 8]),
        (CORRE, &[0; 8]),
        (HEXTILE, &[0]),
        (TRLE, &[1, 0, 0, 0]),
        (TIGHT, &[0x80, 1, 2, 3]),
        (TIGHT_PNG, &[0x80, 1, 2, 3]),
    ];
    for (encoding, bytes) in cases {
        let one = Stream::new().rect(ALL, encoding).bytes(bytes);
        let stream = Stream::ready(4, 4).update(100);
        let outcome = run(&stream.bytes(&one.0.repeat(100)));
        let error = outcome.error.unwrap();
        assert!(
            error.to_string().contains("area painted"),
            "{encoding}: {error}"
        );
    }
}
