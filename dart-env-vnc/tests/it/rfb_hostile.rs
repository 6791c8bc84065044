//! A malicious server: one row for each class of fault that VNC clients have had and that this
//! part of the protocol can have. Every row is a typed error, before anything large is allocated.

use dart_env_vnc::rfb::{Event, RfbError, limits};

use crate::rfb_stream::{COPY_RECT, CURSOR, DESKTOP_SIZE, RAW, Stream, run};

fn greeted(bytes: &[u8]) -> Stream {
    Stream::new().bytes(b"RFB 003.008\n").bytes(bytes)
}

fn update() -> Stream {
    Stream::ready(4, 4).update(1)
}

/// The class, a stream, and a word of the error.
#[allow(clippy::too_many_lines, reason = "a table, one row a class of fault")]
fn rows() -> Vec<(&'static str, Stream, &'static str)> {
    let many = |count: u16, rect: &Stream| {
        let head = Stream::ready(4, 4).update(count);
        head.bytes(&rect.0.repeat(count.into()))
    };
    let empty = Stream::new().rect([0; 4], RAW);
    let copy = Stream::new().rect([0, 0, 4, 4], COPY_RECT).u32(0);
    let grow = Stream::new()
        .rect([0, 0, 8, 8], DESKTOP_SIZE)
        .rect([0, 0, 4, 4], DESKTOP_SIZE);
    let chat = Stream::ready(4, 4).bytes(&[11, 0, 0, 0]).u32(u32::MAX);
    let cut_text = Stream::ready(4, 4).bytes(&[3, 0, 0, 0]);
    let init = |width, height| {
        let head = greeted(&[1, 1]).u32(0);
        head.init(width, height, b"")
    };
    vec![
        (
            "CVE-2019-15690, CVE-2019-20788: cursor area overflows",
            update().rect([0, 0, 65_535, 65_535], CURSOR),
            "cursor side",
        ),
        (
            "cursor of more than 1024 rows",
            update().rect([0, 0, 1, 1025], CURSOR),
            "cursor side",
        ),
        (
            "CVE-2018-20019 family: name of 4 GiB",
            greeted(&[1, 1])
                .u32(0)
                .u16(4)
                .u16(4)
                .format(1)
                .u32(u32::MAX),
            "desktop name",
        ),
        (
            "CVE-2018-20748: reason of 4 GiB",
            greeted(&[0]).u32(u32::MAX),
            "reason",
        ),
        (
            "reason of 4 GiB in the 3.3 layout",
            Stream::new().bytes(b"RFB 003.003\n").u32(0).u32(u32::MAX),
            "reason",
        ),
        (
            "reason of 4 GiB after the security type",
            greeted(&[1, 1]).u32(1).u32(u32::MAX),
            "reason",
        ),
        (
            "CVE-2018-15126 family: clipboard text of 4 GiB",
            cut_text.clone().u32(i32::MAX as u32),
            "clipboard text",
        ),
        (
            "extended clipboard message of 2 GiB",
            cut_text.clone().u32(i32::MIN as u32),
            "clipboard text",
        ),
        (
            "extended clipboard message without flags",
            cut_text.clone().u32(u32::MAX).bytes(&[1]),
            "too short",
        ),
        (
            "noVNC#1939: damaged zlib in the clipboard",
            cut_text
                .clone()
                .u32(-9i32 as u32)
                .u32(0x1000_0001)
                .bytes(&[7; 5]),
            "clipboard data are damaged",
        ),
        (
            "fence of 65 bytes",
            Stream::ready(4, 4)
                .bytes(&[248, 0, 0, 0])
                .u32(0)
                .bytes(&[65]),
            "fence",
        ),
        (
            "clipboard text just beyond the limit",
            cut_text.u32(limits::MAX_DROPPED_TEXT_BYTES + 1),
            "clipboard text",
        ),
        ("CVE-2020-14405: text chat", chat, "message type 11"),
        (
            "CVE-2016-9941: raw rectangle to the right of the screen",
            update().fill([1, 0, 4, 1], [9; 3]),
            "outside the framebuffer",
        ),
        (
            "raw rectangle below the screen",
            update().fill([0, 4, 1, 1], [9; 3]),
            "outside the framebuffer",
        ),
        (
            "rectangle whose edges overflow 16 bits",
            update().rect([65_535, 65_535, 65_535, 65_535], RAW),
            "outside the framebuffer",
        ),
        (
            "CVE-2017-5581 kind: copy to outside",
            update().rect([3, 3, 2, 2], COPY_RECT).u32(0),
            "outside the framebuffer",
        ),
        (
            "copy from outside",
            update().rect([0, 0, 2, 2], COPY_RECT).u16(3).u16(3),
            "outside the framebuffer",
        ),
        (
            "copy from beyond 16 bits",
            update().rect([0, 0, 2, 2], COPY_RECT).u32(u32::MAX),
            "outside the framebuffer",
        ),
        (
            "CVE-2018-7225 kind: framebuffer of 65535x65535",
            init(65_535, 65_535),
            "framebuffer side",
        ),
        (
            "framebuffer of 256 Mpx",
            init(16_384, 16_384),
            "framebuffer area",
        ),
        (
            "framebuffer of no pixels",
            init(0, 600),
            "framebuffer is empty",
        ),
        (
            "resize to 65535x65535",
            update().rect([0, 0, 65_535, 65_535], DESKTOP_SIZE),
            "framebuffer side",
        ),
        (
            "resize to nothing",
            update().rect([0; 4], DESKTOP_SIZE),
            "framebuffer is empty",
        ),
        (
            "resize makes later rectangles lie outside",
            Stream::ready(4, 4)
                .update(2)
                .rect([0, 0, 2, 2], DESKTOP_SIZE)
                .fill([0, 0, 4, 4], [1; 3]),
            "outside the framebuffer",
        ),
        (
            "flood of empty rectangles",
            many(2000, &empty),
            "empty rectangles",
        ),
        (
            "flood of copies of the whole screen",
            many(2000, &copy),
            "area painted",
        ),
        ("flood of size changes", many(40, &grow), "size changes"),
        (
            "CVE-2016-9942 Ultra, UltraZip: not offered",
            update().rect([0, 0, 4, 4], 9),
            "encoding 9",
        ),
        (
            "noVNC#550, #1663: unknown pseudo-encodings derail",
            update().rect([0, 0, 4, 4], -313),
            "encoding -313",
        ),
        (
            "ExtendedDesktopSize of 65535x65535",
            update().rect([0, 0, 65_535, 65_535], -308).u32(0),
            "framebuffer side",
        ),
        (
            "flood of replies to a size that nobody asked for",
            many(2000, &Stream::new().rect([1, 1, 4, 4], -308).u32(0)),
            "announcements",
        ),
        (
            "unknown message type",
            Stream::ready(4, 4).bytes(&[255]),
            "message type 255",
        ),
        (
            "security types that we do not speak",
            greeted(&[255]).bytes(&[200; 255]),
            "security types",
        ),
        (
            "security type of 32 bits in the 3.3 layout",
            Stream::new().bytes(b"RFB 003.003\n").u32(0x0100_0001),
            "security types",
        ),
        (
            "another protocol",
            Stream::new().bytes(b"SSH-2.0-OpenSSH_9.2\r\n"),
            "does not speak RFB",
        ),
        (
            "another protocol, first byte only",
            Stream::new().bytes(b"H"),
            "does not speak RFB",
        ),
        (
            "a version that is no number",
            Stream::new().bytes(b"RFB 00x.00y\n"),
            "does not speak RFB",
        ),
        (
            "a version without end",
            Stream::new().bytes(b"RFB 003.0080"),
            "does not speak RFB",
        ),
    ]
}

#[test]
fn every_row_is_a_typed_error() {
    for (class, stream, word) in rows() {
        let mut outcome = run(&stream);
        let error = outcome.error.take();
        let error = error.unwrap_or_else(|| panic!("{class}: no error"));
        assert!(error.to_string().contains(word), "{class}: {error}");
        assert!(outcome.core.input().capacity() < 1 << 20, "{class}: memory");
    }
}

#[test]
fn every_row_fails_the_same_way_byte_by_byte() {
    for (class, stream, _) in rows() {
        // How much of a strange greeting is quoted depends on what has arrived; nothing else does.
        let kind = |error: Option<RfbError>| error.map(|error| std::mem::discriminant(&error));
        let whole = kind(run(&stream).error);
        let bytes = kind(crate::rfb_stream::feed(None, stream.0.chunks(1)).error);
        assert_eq!(whole, bytes, "{class}");
    }
}

/// CVE-2019-15694, CVE-2019-15695: absurd pixel formats. Ours replaces them, so they mean nothing.
#[test]
fn absurd_pixel_formats_are_replaced() {
    let formats: [[u8; 13]; 4] = [
        [0; 13],
        [255; 13],
        [8, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [32, 24, 1, 255, 0, 255, 0, 255, 0, 255, 200, 100, 77],
    ];
    for format in formats {
        let stream = greeted(&[1, 1])
            .u32(0)
            .u16(4)
            .u16(4)
            .bytes(&format)
            .bytes(&[0; 3]);
        let stream = stream.u32(0).update(1).fill([0, 0, 4, 4], [1, 2, 3]);
        let outcome = run(&stream);
        assert_eq!(outcome.error, None);
        assert_eq!(outcome.pixel(3, 3), [1, 2, 3]);
    }
}

#[test]
fn a_clipboard_at_the_limit_is_taken_and_no_more_is_held() {
    let bytes = limits::MAX_CUT_TEXT_BYTES;
    let mut stream = Stream::ready(4, 4).bytes(&[3, 0, 0, 0]).u32(bytes);
    stream.0.resize(stream.0.len() + bytes as usize, b'x');
    let stream = stream.update(1).fill([0, 0, 4, 4], [7; 3]);
    let mut outcome = crate::rfb_stream::feed(None, stream.0.chunks(1000));
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.pixel(0, 0), [7; 3]);
    let text = outcome.events.iter().find_map(|event| match event {
        Event::CutText { text } => Some(text.len()),
        _ => None,
    });
    assert_eq!(text, Some(bytes as usize));
    assert!(outcome.core.input().capacity() <= 4 << 20);
}

/// Whoever copies a long document must not lose the connection, nor hold the document.
#[test]
fn a_clipboard_beyond_the_limit_is_passed_over() {
    let sides = limits::MAX_CUT_TEXT_BYTES as i32 + 5;
    for length in [sides, -sides] {
        let head = Stream::ready(4, 4).bytes(&[3, 0, 0, 0]);
        let mut stream = head.bytes(&length.to_be_bytes());
        stream.0.resize(stream.0.len() + sides as usize, b'x');
        let stream = stream.update(1).fill([0, 0, 4, 4], [7; 3]);
        let outcome = crate::rfb_stream::feed(None, stream.0.chunks(1000));
        assert_eq!(outcome.error, None);
        assert_eq!(outcome.pixel(0, 0), [7; 3]);
        let unknown = |event: &&Event| matches!(event, Event::CutTextUnknown);
        assert_eq!(outcome.events.iter().filter(unknown).count(), 1);
        let mut core = outcome.core;
        assert!(core.input().capacity() < 64 << 10);
    }
}

#[test]
fn a_server_cannot_print_to_our_terminal() {
    let stream = greeted(&[0]).u32(12).bytes(b"a\x1b[2Jb\r\nc\0d\x07");
    match run(&stream).error {
        Some(RfbError::Refused { reason }) => assert!(!reason.chars().any(char::is_control)),
        other => panic!("{other:?}"),
    }
}
