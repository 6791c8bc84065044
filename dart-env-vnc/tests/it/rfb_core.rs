//! The sans-I/O core on hand-made streams: each message, each encoding on a 4x4 screen, and the
//! properties that hold for any bytes.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use dart_core::{ScreenPx, Size};
use dart_env_vnc::rfb::{Event, ProtocolVersion, RfbError, Update, message};
use proptest::prelude::*;

use crate::rfb_stream::{
    COPY_RECT, CURSOR, DESKTOP_SIZE, LAST_RECT, Outcome, RAW, Stream, feed, run,
};

const RED: [u8; 3] = [255, 0, 0];
const GREEN: [u8; 3] = [0, 255, 0];
const BLUE: [u8; 3] = [0, 0, 255];
const BLACK: [u8; 3] = [0; 3];
const ALL: [u16; 4] = [0, 0, 4, 4];

/// The last request in the output: whether incremental, and its size.
fn last_request(outcome: &Outcome) -> (bool, u16, u16) {
    let request = &outcome.output[outcome.output.len() - 10..];
    assert_eq!(request[0], 3, "the last message is no update request");
    let field = |at: usize| u16::from_be_bytes([request[at], request[at + 1]]);
    (request[1] == 1, field(6), field(8))
}

fn last_update(outcome: &Outcome) -> Update {
    match outcome.events.last() {
        Some(Event::Updated(update)) => *update,
        other => panic!("the last event is {other:?}"),
    }
}

#[test]
fn the_3_8_handshake() {
    let outcome = run(&Stream::ready(4, 4));
    assert_eq!(outcome.error, None);
    let [Event::Connected(init)] = &outcome.events[..] else {
        panic!("{:?}", outcome.events);
    };
    assert_eq!(
        (init.version, init.size),
        (ProtocolVersion::V3_8, Size::new(4, 4))
    );
    assert_eq!(init.name, "test");
    let mut expected = b"RFB 003.008\n\x01\x01".to_vec();
    message::set_pixel_format(dart_env_vnc::rfb::PixelFormat::WIRE, &mut expected);
    message::set_encodings(
        &dart_env_vnc::rfb::Offer::default().encodings,
        &mut expected,
    );
    message::update_request(
        false,
        dart_env_vnc::rfb::Area::all(init.size),
        &mut expected,
    );
    assert_eq!(outcome.output, expected);
}

#[test]
fn the_3_7_handshake_has_no_result_for_none() {
    let stream = Stream::new().bytes(b"RFB 003.007\n").bytes(&[2, 2, 1]);
    let outcome = run(&stream.init(4, 4, b"").update(1).fill(ALL, RED));
    assert_eq!(outcome.error, None);
    assert!(outcome.output.starts_with(b"RFB 003.007\n\x01\x01"));
    assert_eq!(outcome.pixel(3, 3), RED);
}

#[test]
fn the_3_3_handshake_is_decided_by_the_server() {
    let stream = Stream::new().bytes(b"RFB 003.003\n").u32(1);
    let outcome = run(&stream.init(4, 4, b"").update(1).fill(ALL, RED));
    assert_eq!(outcome.error, None);
    // No security type is sent: ClientInit follows the version at once.
    assert!(
        outcome
            .output
            .starts_with(b"RFB 003.003\n\x01\x00\x00\x00\x00\x20")
    );
    assert_eq!(outcome.pixel(0, 0), RED);
}

#[test]
fn vnc_auth_in_every_version() {
    let challenge = [7; 16];
    for (version, offer) in [
        (b"RFB 003.003\n", &[0, 0, 0, 2][..]),
        (b"RFB 003.007\n", &[1, 2]),
        (b"RFB 003.008\n", &[2, 19, 2]),
        (b"RFB 003.889\n", &[1, 2]),
    ] {
        let start = Stream::new().bytes(version).bytes(offer).bytes(&challenge);
        let accepted = start
            .clone()
            .u32(0)
            .init(4, 4, b"")
            .update(1)
            .fill(ALL, GREEN);
        let outcome = feed(Some("secret"), [accepted.0.as_slice()]);
        assert_eq!(outcome.error, None, "{version:?}");
        assert_eq!(outcome.pixel(1, 1), GREEN);

        let refused = start.u32(1).u32(5).bytes(b"nope\n");
        let outcome = feed(Some("secret"), [refused.0.as_slice()]);
        assert!(
            matches!(outcome.error, Some(RfbError::WrongPassword { .. })),
            "{version:?}"
        );
    }
    let asked = Stream::new().bytes(b"RFB 003.008\n").bytes(&[1, 2]);
    assert_eq!(run(&asked).error, Some(RfbError::PasswordMissing));
}

#[test]
fn none_is_preferred_to_vnc_auth() {
    let stream = Stream::new().bytes(b"RFB 003.008\n").bytes(&[3, 19, 2, 1]);
    let outcome = feed(Some("secret"), [stream.0.as_slice()]);
    assert_eq!(outcome.output, b"RFB 003.008\n\x01");
}

#[test]
fn unknown_security_types_are_named() {
    let stream = Stream::new().bytes(b"RFB 003.008\n").bytes(&[2, 5, 16]);
    let error = run(&stream).error.unwrap();
    assert!(error.to_string().contains("[5, 16]"), "{error}");
}

#[test]
fn raw() {
    let stream = Stream::ready(4, 4)
        .update(2)
        .fill(ALL, RED)
        .fill([1, 2, 2, 1], BLUE);
    let outcome = run(&stream);
    assert_eq!(outcome.pixel(0, 2), RED);
    assert_eq!(outcome.pixel(1, 2), BLUE);
    assert_eq!(outcome.pixel(2, 2), BLUE);
    assert_eq!(outcome.pixel(3, 2), RED);
    assert_eq!(outcome.pixel(1, 3), RED);
    assert_eq!(last_update(&outcome).painted, 18);
    assert_eq!(last_request(&outcome), (true, 4, 4));
}

#[test]
fn copy_rect() {
    let stream = Stream::ready(4, 4)
        .update(3)
        .fill(ALL, RED)
        .fill([0, 0, 2, 2], GREEN)
        .rect([2, 2, 2, 2], COPY_RECT)
        .u16(0)
        .u16(0);
    let outcome = run(&stream);
    assert_eq!(outcome.pixel(3, 3), GREEN);
    assert_eq!(outcome.pixel(2, 1), RED);
    assert_eq!(outcome.error, None);
}

#[test]
fn cursor_is_kept_apart_from_the_pixels() {
    let stream = Stream::ready(4, 4)
        .update(2)
        .fill(ALL, RED)
        .rect([1, 0, 2, 1], CURSOR)
        .bytes(&[3, 2, 1, 0, 6, 5, 4, 0, 0b0100_0000]);
    let outcome = run(&stream);
    let cursor = outcome.core.cursor().unwrap();
    assert_eq!(cursor.size, Size::new(2, 1));
    assert_eq!(cursor.hotspot, ScreenPx::new(1, 0));
    assert_eq!(cursor.rgba, [1, 2, 3, 0, 4, 5, 6, 255]);
    assert_eq!(outcome.pixel(1, 0), RED);
}

#[test]
fn desktop_size_asks_for_everything_once() {
    let stream = Stream::ready(4, 4).update(1).fill(ALL, RED);
    let resized = stream.update(1).rect([0, 0, 3, 2], DESKTOP_SIZE);
    let outcome = run(&resized);
    assert_eq!(outcome.rgb(), BLACK.repeat(6));
    assert!(last_update(&outcome).resized);
    assert_eq!(last_request(&outcome), (false, 3, 2));
    let again = run(&resized.update(1).rect([0, 0, 3, 2], DESKTOP_SIZE));
    assert!(!last_update(&again).resized);
    assert_eq!(last_request(&again), (true, 3, 2));
}

#[test]
fn last_rect_ends_an_update_of_unknown_length() {
    let stream = Stream::ready(4, 4).update(0xffff).fill(ALL, BLUE);
    assert_eq!(run(&stream).updates(), 0);
    let outcome = run(&stream.rect([0; 4], LAST_RECT).bytes(&[2]));
    assert_eq!(outcome.updates(), 1);
    assert_eq!(outcome.events.last(), Some(&Event::Bell));
}

#[test]
fn other_messages_are_followed_and_dropped() {
    let stream = Stream::ready(4, 4)
        .bytes(&[2])
        .bytes(&[1, 0, 0, 0, 0, 2])
        .bytes(&[9; 12])
        .bytes(&[3, 0, 0, 0])
        .u32(5)
        .bytes(b"hello")
        .update(0)
        .update(1)
        .fill(ALL, RED);
    let outcome = run(&stream);
    assert_eq!(
        outcome.events[1..4],
        [
            Event::Bell,
            Event::ColourMap { entries: 2 },
            Event::CutText {
                text: "hello".to_owned()
            }
        ]
    );
    assert_eq!(outcome.updates(), 2);
    assert_eq!(outcome.pixel(2, 2), RED);
}

#[test]
fn rectangles_without_area_are_harmless() {
    let stream = Stream::ready(4, 4)
        .update(3)
        .rect([0, 0, 0, 4], RAW)
        .rect([4, 4, 0, 0], RAW)
        .rect([0, 4, 4, 0], COPY_RECT)
        .u16(0)
        .u16(0);
    let outcome = run(&stream);
    assert_eq!((outcome.error.clone(), outcome.updates()), (None, 1));
    assert_eq!(last_update(&outcome).painted, 0);
}

#[test]
fn an_error_stays() {
    let mut outcome = run(&Stream::ready(4, 4).bytes(&[77]));
    let error = outcome.error.take().unwrap();
    outcome.core.input().extend_from_slice(&[2]);
    assert_eq!(outcome.core.next_event(), Err(error));
}

/// A piece of a stream that is right as long as the screen is 8x6.
fn any_piece() -> impl Strategy<Value = Stream> {
    let area = (0u16..8, 0u16..6).prop_flat_map(|(x, y)| (Just(x), Just(y), 0..=8 - x, 0..=6 - y));
    let area = area.prop_map(|(x, y, width, height)| [x, y, width, height]);
    let fill = (area.clone(), any::<[u8; 3]>());
    let copy =
        (area, 0u16..3, 0u16..3).prop_filter("inside", |(a, x, y)| x + a[2] <= 8 && y + a[3] <= 6);
    prop_oneof![
        fill.prop_map(|(area, colour)| Stream::new().update(1).fill(area, colour)),
        copy.prop_map(|(area, x, y)| {
            let rect = Stream::new().update(0xffff).rect(area, COPY_RECT);
            rect.u16(x).u16(y).rect([0; 4], LAST_RECT)
        }),
        Just(Stream::new().update(1).rect([0, 0, 8, 6], DESKTOP_SIZE)),
        Just(
            Stream::new()
                .update(1)
                .rect([1, 1, 3, 2], CURSOR)
                .bytes(&[5; 26])
        ),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|text| {
            let head = Stream::new().bytes(&[3, 0, 0, 0]).u32(text.len() as u32);
            head.bytes(&text)
        }),
        Just(Stream::new().bytes(&[1, 0, 0, 0, 0, 1]).bytes(&[1; 6])),
        Just(Stream::new().bytes(&[2])),
    ]
}

fn cut<'a>(bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut pieces) = (bytes, Vec::new());
    for size in sizes.iter().cycle() {
        let (piece, left) = rest.split_at((*size).min(rest.len()));
        pieces.push(piece);
        rest = left;
        if rest.is_empty() {
            break;
        }
    }
    pieces
}

proptest! {
    #[test]
    fn chunking_does_not_matter(
        pieces in proptest::collection::vec(any_piece(), 0..12),
        tail in proptest::collection::vec(any::<u8>(), 0..30),
        sizes in proptest::collection::vec(1usize..40, 1..8),
    ) {
        let mut bytes = Stream::ready(8, 6).0;
        for piece in &pieces {
            bytes.extend(&piece.0);
        }
        bytes.extend(tail);
        let whole = feed(None, [bytes.as_slice()]);
        let cut = feed(None, cut(&bytes, &sizes));
        prop_assert_eq!(&whole.events, &cut.events);
        prop_assert_eq!(&whole.error, &cut.error);
        prop_assert_eq!(&whole.output, &cut.output);
        prop_assert_eq!(whole.rgb(), cut.rgb());
        prop_assert_eq!(whole.core.cursor(), cut.core.cursor());
    }

    #[test]
    fn well_formed_pieces_are_all_taken(pieces in proptest::collection::vec(any_piece(), 0..12)) {
        let mut bytes = Stream::ready(8, 6).0;
        for piece in &pieces {
            bytes.extend(&piece.0);
        }
        let outcome = feed(None, [bytes.as_slice()]);
        prop_assert_eq!(outcome.error, None);
        prop_assert_eq!(outcome.events.len(), pieces.len() + 1);
    }

    #[test]
    fn no_bytes_panic_in_the_handshake(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        feed(Some("secret"), [bytes.as_slice()]);
        for start in [&b"RFB 003.003\n"[..], b"RFB 003.007\n", b"RFB 003.008\n", b"RFB 003.008\n\x01\x02"] {
            feed(Some("secret"), [start, bytes.as_slice()]);
        }
    }

    #[test]
    fn no_bytes_panic_after_the_handshake(
        bytes in proptest::collection::vec(prop_oneof![3 => 0u8..6, 1 => any::<u8>()], 0..600),
        rects in any::<bool>(),
    ) {
        let mut stream = Stream::ready(8, 6);
        if rects {
            stream = stream.update(300);
        }
        let outcome = feed(None, [stream.0.as_slice(), bytes.as_slice()]);
        prop_assert!(outcome.core.screen().is_none_or(|screen| screen.rgb().len() < 64 << 20));
    }
}
