//! Fault reports of other VNC clients, each as a test of its kind. The numbers count the reports;
//! those about decoders are with the decoders, and 7 has a real server in `rfb_xtigervnc`.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::time::{Duration, Instant};

use dart_core::{Action, Device, ErrorKind, Key, MouseButton, NamedKey, ScreenPx, Size};
use dart_env_vnc::{VncDevice, rfb::RfbError};

use crate::{
    rfb_extensions::screens,
    rfb_faults::scripted,
    rfb_server::{FakeServer, Input, Mode, Quirk, SIZE},
    rfb_stream::{Stream, run},
};

async fn pair(quirk: Quirk) -> (FakeServer, VncDevice) {
    let server = FakeServer::start(quirk).await;
    let device = VncDevice::connect(server.config()).await.unwrap();
    server.log();
    (server, device)
}

fn keys(log: &[Input]) -> Vec<(u32, bool)> {
    let keys = log.iter().filter_map(|input| match input {
        Input::Key { keysym, down } => Some((*keysym, *down)),
        Input::Code { .. } | Input::Pointer { .. } => None,
    });
    keys.collect()
}

/// vncdotool#267, vncdotool#315, libvncserver#743, rfbproto#37: a full request is answered by
/// pseudo-rectangles alone.
#[tokio::test]
async fn case_01_02_pseudo_only_updates_do_not_complete_a_capture() {
    let (server, mut device) = pair(Quirk::PseudoOnly).await;
    for _ in 0..5 {
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!(frame.rgb(), server.rgb());
    }
}

/// vncdotool#90: the first update holds only the size; the frame is not black.
#[tokio::test]
async fn case_03_a_first_update_without_pixels_is_not_a_frame() {
    let (_server, mut device) = pair(Quirk::SizeFirst).await;
    let frame = device.screenshot().await.unwrap().frame;
    assert_eq!(frame.size(), Size::new(32, 16));
    assert_eq!(device.spec().screen, frame.size());
    assert!(frame.rgb().iter().all(|level| *level == 200));
}

/// vncdotool#282: reading right after a request gives a stale frame.
#[tokio::test]
async fn case_04_a_screenshot_is_not_stale() {
    let (server, mut device) = pair(Quirk::None).await;
    for level in 1..50 {
        server.repaint(level);
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!(frame.pixel(63, 47), Some([level; 3]));
    }
}

/// vncdotool#141, vncdotool#70: nothing changes, and a capture still returns, again and again.
#[tokio::test]
async fn case_05_26_an_unchanged_screen_does_not_hang() {
    let (_server, mut device) = pair(Quirk::None).await;
    let begun = Instant::now();
    for _ in 0..50 {
        device.screenshot().await.unwrap();
    }
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

/// vncdotool#269, vncdotool#26, tigervnc#491: symbols come out unshifted, or `<` as `>`.
#[tokio::test]
async fn case_09_20_symbols_are_typed_with_shift() {
    let (server, mut device) = pair(Quirk::None).await;
    let text = "!@#$:_<>".to_owned();
    device
        .perform(&Action::Type { text: text.clone() })
        .await
        .unwrap();
    let expected = text.chars().flat_map(|c| {
        let keysym = u32::from(c);
        [
            (0xffe1, true),
            (keysym, true),
            (keysym, false),
            (0xffe1, false),
        ]
    });
    assert_eq!(keys(&server.log()), expected.collect::<Vec<_>>());
}

/// vncdotool#20, vncdotool#301: the screen is resized in the middle of a session.
#[tokio::test]
async fn case_10_a_resize_is_followed() {
    let (server, mut device) = pair(Quirk::Resizing).await;
    for round in 1..=3 {
        device
            .perform(&Action::click(ScreenPx::new(0, 0)))
            .await
            .unwrap();
        let frame = device.screenshot().await.unwrap().frame;
        let size = Size::new(SIZE.width + round * 16, SIZE.height - round * 8);
        assert_eq!((frame.size(), device.spec().screen), (size, size));
        assert_eq!(frame.rgb(), server.rgb());
    }
    // What the smaller screen no longer has cannot be clicked.
    let error = device
        .perform(&Action::click(ScreenPx::new(9, 40)))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidAction);
}

/// asyncvnc#2: true-colour flag 255; with clipboard, bell and palette in between.
#[tokio::test]
async fn case_11_a_flag_of_255_is_true_colour() {
    let (server, mut device) = pair(Quirk::Noisy).await;
    let frame = device.screenshot().await.unwrap().frame;
    assert_eq!(frame.rgb(), server.rgb());
    assert_eq!(device.cursor().unwrap().size, Size::new(1, 1));
}

/// tigervnc#345, TurboVNC#466, avnc#15, wayvnc#42: keys and buttons stay down.
#[tokio::test]
async fn case_21_nothing_stays_down() {
    let hold = [
        Action::KeyDown {
            key: Key::Named(NamedKey::Ctrl),
        },
        Action::KeyDown {
            key: Key::Char('q'),
        },
        Action::MouseDown {
            button: MouseButton::Right,
        },
    ];
    let (server, mut device) = pair(Quirk::None).await;
    for action in &hold {
        device.perform(action).await.unwrap();
    }
    assert_eq!(server.held(), 3);
    device.recover().await.unwrap();
    assert_eq!(server.held(), 0, "after recover");

    for action in &hold {
        device.perform(action).await.unwrap();
    }
    server.set(Mode::Cut);
    device.screenshot().await.unwrap_err();
    server.set(Mode::Serve);
    assert_eq!(
        server.held(),
        3,
        "this server keeps keys when a connection is cut"
    );
    device.recover().await.unwrap();
    assert_eq!(server.held(), 0, "after a cut and recover");

    for action in &hold {
        device.perform(action).await.unwrap();
    }
    device.release().await.unwrap();
    assert_eq!(server.held(), 0, "between episodes");

    for action in &hold {
        device.perform(action).await.unwrap();
    }
    device.close().await.unwrap();
    assert_eq!(server.held(), 0, "after close");
}

/// vnc-rs#10: input waits until the server says something.
#[tokio::test]
async fn case_22_input_is_not_delayed_by_an_idle_screen() {
    let (server, mut device) = pair(Quirk::None).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let begun = Instant::now();
    device
        .perform(&Action::MoveTo {
            at: ScreenPx::new(5, 6),
        })
        .await
        .unwrap();
    assert!(begun.elapsed() < Duration::from_millis(500));
    let expected = Input::Pointer {
        x: 5,
        y: 6,
        buttons: 0,
    };
    assert_eq!(server.log(), [expected]);
}

/// os-autoinst#1095: the server stalls after a snapshot was reverted; a new connection works.
#[tokio::test]
async fn case_23_a_stalled_server_is_reconnected_to() {
    let (server, mut device) = pair(Quirk::None).await;
    server.set(Mode::Stall);
    assert!(device.screenshot().await.unwrap_err().is_retryable());
    server.set(Mode::Serve);
    device.recover().await.unwrap();
    device
        .perform(&Action::click(ScreenPx::new(20, 20)))
        .await
        .unwrap();
    assert_eq!(device.screenshot().await.unwrap().frame.rgb(), server.rgb());
}

/// bytebot#158: the server takes 90 s to say its first word.
#[tokio::test]
async fn case_24_a_silent_server_has_a_deadline() {
    let config = scripted(vec![(90_000, Stream::ready(4, 4))], false).await;
    let begun = Instant::now();
    let error = VncDevice::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(1), "{error}");
}

/// cua reconnects for each action because its client corrupts its state; here one connection
/// lasts.
#[tokio::test]
async fn one_connection_lasts_for_many_actions() {
    let (server, mut device) = pair(Quirk::None).await;
    for step in 0..200 {
        let at = ScreenPx::new(step % 64, step % 48);
        device.perform(&Action::click(at)).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
    assert_eq!(device.screenshot().await.unwrap().frame.rgb(), server.rgb());
}

/// vncdotool#355: port probes trip the server's blacklist, which answers in the layout of 3.3
/// whatever was spoken before. It is told apart from a wrong password and from a lost server.
#[tokio::test]
async fn case_07_a_lockout_is_told_in_the_servers_words() {
    let lockout = b"Too many security failures";
    let stream = Stream::new().bytes(b"RFB 003.003\n").u32(0);
    let stream = stream.u32(lockout.len() as u32).bytes(lockout);
    let config = scripted(vec![(0, stream)], true).await;
    let error = VncDevice::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(error.to_string().contains("Too many security"), "{error}");
}

/// vncdotool#269, vncdotool#26 on a server that takes scancodes: the keys of a US keyboard, and no
/// silence about what it lacks.
#[tokio::test]
async fn case_09_a_server_of_scancodes_gets_scancodes() {
    let (server, mut device) = pair(Quirk::Scancodes).await;
    let text = "a@|".to_owned();
    device.perform(&Action::Type { text }).await.unwrap();
    let codes = server.log().into_iter().map(|input| match input {
        Input::Code { code, down, .. } => (code, down),
        other => panic!("{other:?}"),
    });
    let expected = [
        (0x1e, true),
        (0x1e, false),
        (0x2a, true),
        (0x03, true),
        (0x03, false),
        (0x2a, false),
        (0x2a, true),
        (0x2b, true),
        (0x2b, false),
        (0x2a, false),
    ];
    assert_eq!(codes.collect::<Vec<_>>(), expected);
    let text = "na\u{ef}ve".to_owned();
    let error = device.perform(&Action::Type { text }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidAction);
    assert!(server.log().is_empty(), "nothing of it is typed");
    device.screenshot().await.unwrap();
}

/// vncdotool#301: the client asks for another size, and gets it.
#[tokio::test]
async fn case_10_another_size_is_asked_for() {
    let (server, mut device) = pair(Quirk::Sizes(0)).await;
    let size = Size::new(48, 40);
    device.resize(size).await.unwrap();
    assert_eq!(device.spec().screen, size);
    let frame = device.screenshot().await.unwrap().frame;
    assert_eq!((frame.size(), frame.rgb()), (size, &*server.rgb()));
}

/// noVNC#1607, noVNC#1406: the server dies of the request. It is a lost server, and a new one can
/// be taken.
#[tokio::test]
async fn case_12_a_server_that_dies_of_a_resize_is_a_lost_server() {
    let (server, mut device) = pair(Quirk::Fragile).await;
    let error = device.resize(Size::new(48, 40)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    device.recover().await.unwrap();
    assert_eq!(device.screenshot().await.unwrap().frame.rgb(), server.rgb());
    let (_server, mut plain) = pair(Quirk::None).await;
    let error = plain.resize(Size::new(48, 40)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

/// noVNC#550, noVNC#316, noVNC#1663, vncproxy#25, websockify#402: what was not offered ends the
/// connection, because the stream cannot be followed past it.
#[test]
fn case_16_an_encoding_that_was_not_offered_is_named() {
    for encoding in [-307, -305, -1000, 8, 9, 50, 0x574d_5664] {
        let error = run(&Stream::ready(4, 4).update(1).rect([0, 0, 4, 4], encoding)).error;
        let expected = RfbError::Unknown {
            what: "encoding",
            value: encoding.into(),
        };
        assert_eq!(error, Some(expected));
    }
}

/// libvncserver#743, rfbproto#37: the screens come with every full request; no endless loop.
#[tokio::test]
async fn case_17_screens_with_every_request_are_no_loop() {
    let (server, mut device) = pair(Quirk::Sizes(0)).await;
    for level in 0..20 {
        server.repaint(level);
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!(frame.rgb(), server.rgb());
    }
    // One announcement is answered by one incremental request.
    let stream = Stream::ready(4, 4).update(1).fill([0, 0, 4, 4], [1; 3]);
    let before = run(&stream).output.len();
    let told = stream.update(1).bytes(&screens(0, 0, 4, 4).0);
    let outcome = run(&told);
    assert_eq!(outcome.output.len(), before + 10);
    assert_eq!(outcome.output[before..before + 2], [3, 1]);
}

/// neatvnc#181, TigerVNC#2085: a request that is passed on is waited for; TigerVNC#1585: one that
/// is refused changes nothing, whatever size the refusal carries.
#[tokio::test]
async fn case_18_a_refused_size_is_not_taken_and_a_forwarded_one_is_waited_for() {
    let size = Size::new(48, 40);
    for status in [1, 2, 3, 77] {
        let (server, mut device) = pair(Quirk::Sizes(status)).await;
        let error = device.resize(size).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!((frame.size(), frame.rgb()), (SIZE, &*server.rgb()));
    }
    let (_server, mut device) = pair(Quirk::Sizes(4)).await;
    device.resize(size).await.unwrap();
    assert_eq!(device.screenshot().await.unwrap().frame.size(), size);
}

/// noVNC#1939: zlib in the clipboard; each message is a stream of its own and ends where it says.
#[test]
fn case_13_compressed_clipboards_do_not_depend_on_each_other() {
    // "ab" and a zero, compressed by zlib, with the size before it.
    let stream = [
        0x78, 0x9c, 0x63, 0x60, 0x60, 0x60, 0x4e, 0x4c, 0x62, 0x00, 0x00, 0x01, 0xfa, 0x00, 0xc7,
    ];
    let message = Stream::new()
        .bytes(&[3, 0, 0, 0])
        .u32(-(stream.len() as i32 + 4) as u32)
        .u32(0x1000_0001)
        .bytes(&stream);
    let twice = Stream::ready(4, 4).bytes(&message.0).bytes(&message.0);
    let outcome = run(&twice.update(1).fill([0, 0, 4, 4], [7; 3]));
    assert_eq!(outcome.error, None);
    let texts = outcome.events.iter().filter(
        |event| matches!(event, dart_env_vnc::rfb::Event::CutText { text } if text == "ab"),
    );
    assert_eq!(texts.count(), 2);
    assert_eq!(outcome.pixel(3, 3), [7; 3]);
}

/// noVNC#1979: TurboVNC at compress level 0 sends Tight without zlib, filtered (14) or not (10).
#[test]
fn case_13_tight_without_zlib_is_read() {
    for form in [&[0xa0][..], &[0xe0, 0]] {
        let rect = Stream::new().rect([0, 0, 4, 4], 7).bytes(form).bytes(&[48]);
        let stream = Stream::ready(4, 4).update(1).bytes(&rect.0);
        let outcome = run(&stream.bytes(&[9, 8, 7].repeat(16)));
        assert_eq!(outcome.error, None, "{form:?}");
        assert_eq!((outcome.updates(), outcome.pixel(3, 3)), (1, [9, 8, 7]));
    }
}

/// noVNC#41, noVNC#145: a control byte that the encoding lacks, and a filter that does not exist,
/// are named; nothing after them is taken for pixels.
#[test]
fn case_15_unexpected_forms_of_tight_are_named() {
    for (encoding, form) in [
        (7, &[0xb0][..]),
        (7, &[0xc0]),
        (7, &[0xf0]),
        (7, &[0x40, 3]),
        (-260, &[0xb0]),
        (-260, &[0xe0]),
    ] {
        let rect = Stream::new().rect([0, 0, 4, 4], encoding).bytes(form);
        let stream = Stream::ready(4, 4).update(1).bytes(&rect.0);
        let outcome = run(&stream.bytes(&[9; 60]));
        let typed = matches!(
            outcome.error,
            Some(RfbError::Malformed { .. } | RfbError::Unknown { .. })
        );
        assert!(typed, "{encoding} {form:?}: {:?}", outcome.error);
        assert_eq!(outcome.updates(), 0);
    }
}
