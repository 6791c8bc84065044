//! Fault reports of other VNC clients, each as a test of its kind.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::time::{Duration, Instant};

use dart_core::{Action, Device, Key, MouseButton, NamedKey, ScreenPx, Size};
use dart_env_vnc::VncDevice;

use crate::{
    rfb_faults::scripted,
    rfb_server::{FakeServer, Input, Mode, Quirk, SIZE},
    rfb_stream::Stream,
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
        Input::Pointer { .. } => None,
    });
    keys.collect()
}

/// vncdotool#267, vncdotool#315, libvncserver#743, rfbproto#37: a full request is answered by
/// pseudo-rectangles alone.
#[tokio::test]
async fn vncdotool_267_315_pseudo_only_updates_do_not_complete_a_capture() {
    let (server, mut device) = pair(Quirk::PseudoOnly).await;
    for _ in 0..5 {
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!(frame.rgb(), server.rgb());
    }
}

/// vncdotool#90: the first update holds only the size; the frame is not black.
#[tokio::test]
async fn vncdotool_90_a_first_update_without_pixels_is_not_a_frame() {
    let (_server, mut device) = pair(Quirk::SizeFirst).await;
    let frame = device.screenshot().await.unwrap().frame;
    assert_eq!(frame.size(), Size::new(32, 16));
    assert_eq!(device.spec().screen, frame.size());
    assert!(frame.rgb().iter().all(|level| *level == 200));
}

/// vncdotool#282: reading right after a request gives a stale frame.
#[tokio::test]
async fn vncdotool_282_a_screenshot_is_not_stale() {
    let (server, mut device) = pair(Quirk::None).await;
    for level in 1..50 {
        server.repaint(level);
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!(frame.pixel(63, 47), Some([level; 3]));
    }
}

/// vncdotool#141, vncdotool#70: nothing changes, and a capture still returns, again and again.
#[tokio::test]
async fn vncdotool_141_70_an_unchanged_screen_does_not_hang() {
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
async fn vncdotool_269_26_symbols_are_typed_with_shift() {
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
async fn vncdotool_20_301_a_resize_is_followed() {
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
    assert_eq!(error.kind(), dart_core::ErrorKind::InvalidAction);
}

/// asyncvnc#2: true-colour flag 255; with clipboard, bell and palette in between.
#[tokio::test]
async fn asyncvnc_2_a_flag_of_255_is_true_colour() {
    let (server, mut device) = pair(Quirk::Noisy).await;
    let frame = device.screenshot().await.unwrap().frame;
    assert_eq!(frame.rgb(), server.rgb());
    assert_eq!(device.cursor().unwrap().size, Size::new(1, 1));
}

/// tigervnc#345, TurboVNC#466, avnc#15, wayvnc#42: keys and buttons stay down.
#[tokio::test]
async fn tigervnc_345_nothing_stays_down() {
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
    device.close().await.unwrap();
    assert_eq!(server.held(), 0, "after close");
}

/// vnc-rs#10: input waits until the server says something.
#[tokio::test]
async fn vnc_rs_10_input_is_not_delayed_by_an_idle_screen() {
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
async fn os_autoinst_1095_a_stalled_server_is_reconnected_to() {
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
async fn bytebot_158_a_silent_server_has_a_deadline() {
    let config = scripted(vec![(90_000, Stream::ready(4, 4))], false).await;
    let begun = Instant::now();
    let error = VncDevice::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), dart_core::ErrorKind::Timeout);
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
