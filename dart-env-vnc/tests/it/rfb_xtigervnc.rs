//! The device on real servers: Xtigervnc and x11vnc, with xev as a witness of input.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    process::Command,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use dart_core::{
    Action, Device, Direction, ErrorKind, Key, Modifier, Modifiers, MouseButton, Result, ScreenPx,
    Size,
};
use dart_env_vnc::{VncConfig, VncDevice, rfb::Password};
use dart_testkit::{Breakable, Fault, Settings, device::DeviceHarness, device_conformance};

use crate::{
    rfb_conformance::right_click,
    rfb_xserver::{SIZE, Server, Witness, skipped, x11vnc_skipped},
};

macro_rules! or_skip {
    ($skipped:expr) => {
        if let Some(why) = $skipped {
            println!("skipped: {why}");
            return;
        }
    };
}

#[tokio::test]
async fn a_real_server_is_seen() {
    or_skip!(skipped());
    let server = Server::desktop();
    let mut device = server.device().await;
    server.wait_for_menu(&mut device).await;
    let first = device.screenshot().await.unwrap().frame;
    assert_eq!(first.size(), SIZE);
    device.perform(&right_click(&device)).await.unwrap();
    let menu = device.screenshot().await.unwrap().frame;
    assert_ne!(first, menu);
    // Another client sees the same pixels.
    let mut other = server.device().await;
    let theirs = other.screenshot().await.unwrap().frame;
    assert_eq!(theirs, device.screenshot().await.unwrap().frame);
}

/// TigerVNC paints the pointer into the pixels of a client that has not moved it yet.
#[tokio::test]
async fn the_pointer_is_never_in_the_pixels() {
    or_skip!(skipped());
    let server = Server::desktop();
    server.wait_for_menu(&mut server.device().await).await;
    let mut device = server.device().await;
    let mut frames = vec![device.screenshot().await.unwrap().frame];
    for at in [ScreenPx::new(20, 30), ScreenPx::new(160, 120)] {
        device.perform(&Action::MoveTo { at }).await.unwrap();
        frames.push(device.screenshot().await.unwrap().frame);
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    frames.push(device.screenshot().await.unwrap().frame);
    assert!(frames.iter().all(|frame| *frame == frames[0]));
    assert!(device.cursor().unwrap().size.area() > 0);
}

#[tokio::test]
async fn vnc_auth_with_the_right_and_the_wrong_password() {
    or_skip!(skipped());
    let server = Server::locked("hunter2");
    let right = Some(Password::new("hunter2"));
    let mut device = VncDevice::connect_with(server.config(), right)
        .await
        .unwrap();
    assert_eq!(device.screenshot().await.unwrap().frame.size(), SIZE);

    let error = VncDevice::connect(server.config()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let wrong = Some(Password::new("hunter3"));
    let error = VncDevice::connect_with(server.config(), wrong)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    assert!(
        error.to_string().contains("environment.password_env"),
        "{error}"
    );
    assert!(!error.to_string().contains("hunter"), "{error}");
}

/// vncdotool#355: after several failures the server answers in the 3.3 layout, and refuses the
/// right password too.
#[tokio::test]
async fn case_07_a_real_lockout_is_told() {
    or_skip!(skipped());
    let server = Server::locked("hunter2");
    for _ in 0..6 {
        let wrong = Some(Password::new("hunter3"));
        VncDevice::connect_with(server.config(), wrong)
            .await
            .unwrap_err();
    }
    let right = Some(Password::new("hunter2"));
    let error = VncDevice::connect_with(server.config(), right)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    assert!(
        error.to_string().contains("Too many security failures"),
        "{error}"
    );
}

/// What a real server says of itself; its screens change when they are asked to, or do not.
#[tokio::test]
async fn extensions_of_a_real_server() {
    or_skip!(skipped());
    let server = Server::desktop();
    let mut device = server.device().await;
    let told = device.abilities();
    assert!(told.fence && told.continuous_updates && told.scancodes && told.utf8_clipboard);
    assert_eq!(told.screens.len(), 1);
    assert!(!told.locks.unwrap().caps);
    device.resize(Size::new(400, 200)).await.unwrap();
    assert_eq!(device.spec().screen, Size::new(400, 200));
    // Beyond what the server allows: told, and the screen keeps its size.
    let error = device.resize(Size::new(20_000, 20_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let frame = device.screenshot().await.unwrap().frame;
    assert_eq!(frame.size(), Size::new(400, 200));
}

/// The same screen, whether it is asked for or sent unasked.
#[tokio::test]
async fn continuous_updates_of_a_real_server() {
    or_skip!(skipped());
    let server = Server::desktop();
    let mut asking = server.device().await;
    server.wait_for_menu(&mut asking).await;
    let config = VncConfig {
        continuous_updates: Some(true),
        ..server.config()
    };
    let mut device = VncDevice::connect(config).await.unwrap();
    for _ in 0..6 {
        device.perform(&right_click(&device)).await.unwrap();
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!(frame, asking.screenshot().await.unwrap().frame);
    }
    device.resize(Size::new(400, 200)).await.unwrap();
    let frame = device.screenshot().await.unwrap().frame;
    assert_eq!(frame.size(), Size::new(400, 200));
    assert_eq!(frame, asking.screenshot().await.unwrap().frame);
}

#[tokio::test]
async fn typed_text_arrives() {
    or_skip!(skipped());
    let mut server = Server::open();
    let witness = Witness::start(&mut server);
    let mut device = server.device().await;
    device
        .perform(&Action::MoveTo {
            at: ScreenPx::new(100, 100),
        })
        .await
        .unwrap();
    let text = "aZ9 <>!@#$%^&*()_+{}|:\"~éß€Ω你😀\n".to_owned();
    device.perform(&Action::Type { text }).await.unwrap();
    let names = witness.pressed("Return");
    let names = names
        .iter()
        .filter(|name| !name.starts_with("Shift"))
        .collect::<Vec<_>>();
    let expected = [
        "a",
        "Z",
        "9",
        "space",
        "less",
        "greater",
        "exclam",
        "at",
        "numbersign",
        "dollar",
        "percent",
        "asciicircum",
        "ampersand",
        "asterisk",
        "parenleft",
        "parenright",
        "underscore",
        "plus",
        "braceleft",
        "braceright",
        "bar",
        "colon",
        "quotedbl",
        "asciitilde",
        "eacute",
        "ssharp",
        "U20AC",
        "U03A9",
        "U4F60",
        "U0001F600",
        "Return",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn long_text_loses_nothing() {
    or_skip!(skipped());
    let mut server = Server::open();
    let witness = Witness::start(&mut server);
    let mut device = server.device().await;
    device
        .perform(&Action::MoveTo {
            at: ScreenPx::new(100, 100),
        })
        .await
        .unwrap();
    let text = "abcdefgh".repeat(256) + "\n";
    device
        .perform(&Action::Type { text: text.clone() })
        .await
        .unwrap();
    let names = witness.pressed("Return");
    assert_eq!(names[..names.len() - 1].concat() + "\n", text);
}

#[tokio::test]
async fn pointer_and_modifiers_arrive() {
    or_skip!(skipped());
    let mut server = Server::open();
    let witness = Witness::start(&mut server);
    let mut device = server.device().await;
    device
        .perform(&Action::Click {
            at: ScreenPx::new(50, 60),
            button: MouseButton::Right,
            count: 2,
            modifiers: Modifiers::NONE.with(Modifier::Ctrl),
        })
        .await
        .unwrap();
    let lines = witness.until(|line| line.contains("Control_L") && line.contains("keysym"));
    assert!(!lines.iter().any(|line| line.starts_with("ButtonPress")));
    for _ in 0..2 {
        let lines = witness.until(|line| line.contains("state 0x4, button 3"));
        assert!(
            lines.iter().any(|line| line.contains("(50,60)")),
            "{lines:#?}"
        );
        witness.until(|line| line.contains("state 0x404, button 3"));
    }
    witness.until(|line| line.contains("Control_L"));
    for (direction, button) in [
        (Direction::Up, 4),
        (Direction::Down, 5),
        (Direction::Left, 6),
        (Direction::Right, 7),
    ] {
        let scroll = Action::Scroll {
            at: None,
            direction,
            notches: 2,
        };
        device.perform(&scroll).await.unwrap();
        for _ in 0..4 {
            witness.until(|line| line.contains(&format!("button {button},")));
        }
    }
    let keys = ["ctrl", "shift", "t"].map(|name| name.parse::<Key>().unwrap());
    device
        .perform(&Action::Hotkey {
            keys: keys.to_vec(),
        })
        .await
        .unwrap();
    witness.until(|line| line.contains("state 0x5,") && line.contains(", T),"));
    let drag = Action::DragTo {
        from: Some(ScreenPx::new(10, 10)),
        to: ScreenPx::new(90, 50),
    };
    device.perform(&drag).await.unwrap();
    let path = witness.until(|line| line.contains("(90,50)") && line.contains("root:"));
    let moves = path
        .iter()
        .filter(|line| line.starts_with("MotionNotify"))
        .count();
    assert!(moves >= 4, "{path:#?}");
}

#[tokio::test]
async fn a_resize_by_another_client_is_followed() {
    or_skip!(skipped());
    let server = Server::desktop();
    let mut device = server.device().await;
    for size in [Size::new(400, 200), Size::new(160, 120), SIZE] {
        server.resize(size.width as u16, size.height as u16);
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!((frame.size(), device.spec().screen), (size, size));
        let mut fresh = server.device().await;
        assert_eq!(fresh.screenshot().await.unwrap().frame, frame);
    }
}

#[tokio::test]
async fn a_killed_server_is_disconnected() {
    or_skip!(skipped());
    let mut server = Server::open();
    let mut device = server.device().await;
    server.started.0[0].kill().unwrap();
    let begun = Instant::now();
    let error = device.screenshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    let error = device.recover().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_stopped_server_is_a_timeout() {
    or_skip!(skipped());
    let server = Server::open();
    let mut device = VncDevice::connect(VncConfig {
        update_timeout_ms: 500,
        ..server.config()
    })
    .await
    .unwrap();
    let pid = server.started.0[0].id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &pid]).status().unwrap();
    signal("-STOP");
    let error = device.screenshot().await.unwrap_err();
    signal("-CONT");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    device.recover().await.unwrap();
    device.screenshot().await.unwrap();
}

/// asyncvnc#2, noVNC#1607, x11vnc#23, x11vnc#217: another implementation on the same screen.
#[tokio::test]
async fn case_11_12_20_x11vnc_shows_and_takes_the_same() {
    or_skip!(x11vnc_skipped());
    let mut server = Server::open();
    let witness = Witness::start(&mut server);
    let mut direct = server.device().await;
    let config = server.x11vnc();
    let mut device = VncDevice::connect(config).await.unwrap();
    let at = ScreenPx::new(100, 100);
    for mover in [&mut direct, &mut device] {
        mover.perform(&Action::MoveTo { at }).await.unwrap();
    }
    let frame = device.screenshot().await.unwrap().frame;
    assert_eq!(frame, direct.screenshot().await.unwrap().frame);
    let text = "Hello <World> 42!\n".to_owned();
    device.perform(&Action::Type { text }).await.unwrap();
    let names = witness.pressed("Return");
    let names = names.iter().filter(|name| !name.starts_with("Shift"));
    let expected = [
        "H", "e", "l", "l", "o", "space", "less", "W", "o", "r", "l", "d", "greater", "space", "4",
        "2", "exclam", "Return",
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    // x11vnc sometimes dies of a resize (noVNC#1607): it is followed, or the loss is told.
    server.resize(400, 200);
    match device.screenshot().await {
        Ok(shown) => assert_eq!(shown.frame.size(), Size::new(400, 200)),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}"),
    }
    device.close().await.unwrap();
}

/// The device suite on the real server.
struct Real;

std::thread_local! {
    // Each check runs on one thread; its servers end with it.
    static SERVERS: std::cell::RefCell<Vec<Server>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[async_trait]
impl DeviceHarness for Real {
    type Device = VncDevice;

    fn settings(&self) -> Settings {
        Settings {
            skipped: skipped(),
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Box<VncDevice>> {
        let server = Server::desktop();
        let mut device = server.device().await;
        server.wait_for_menu(&mut device).await;
        SERVERS.with_borrow_mut(|servers| servers.push(server));
        Ok(Box::new(device))
    }

    async fn visible_action(&self, device: &mut VncDevice) -> Result<Action> {
        Ok(right_click(device))
    }

    async fn breakable(&self, fault: Fault) -> Result<Option<Breakable<VncDevice>>> {
        let server = Server::desktop();
        let config = VncConfig {
            update_timeout_ms: 1_000,
            handshake_timeout_ms: 3_000,
            ..server.config()
        };
        let mut device = VncDevice::connect(config).await?;
        server.wait_for_menu(&mut device).await;
        let pid = server.started.0[0].id().to_string();
        let signal = |name: &'static str, pid: String| -> Box<dyn FnOnce() + Send> {
            Box::new(move || {
                Command::new("kill").args([name, &pid]).status().unwrap();
            })
        };
        SERVERS.with_borrow_mut(|servers| servers.push(server));
        Ok(Some(match fault {
            Fault::Stall => Breakable {
                subject: Box::new(device),
                break_it: signal("-STOP", pid.clone()),
                heal: Some(signal("-CONT", pid)),
            },
            Fault::Cut => Breakable {
                subject: Box::new(device),
                break_it: signal("-KILL", pid),
                heal: None,
            },
        }))
    }
}

device_conformance!(mod real_server, Real);
