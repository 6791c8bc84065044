//! Fault reports of Android tools, each as a test of its kind.

use std::{sync::Arc, time::Duration};

use dart_core::{Action, Device, ErrorKind, ScreenPx};
use dart_env_adb::{
    AdbConfig, AdbDevice, OwnServer,
    device::ScreenKind,
    simulator::{Options, Simulator, UiFault},
};

use crate::{
    lab::{Lab, with_adb},
    pad::{Pad, SCREEN},
};

/// Multi-display phones print a warning before the picture; a second display is asked for by number.
#[test]
fn case_27_a_warning_comes_before_the_picture() {
    with_adb("case 27", || async {
        let lab = Lab::new(Options::default()).await;
        lab.phone.faults().display_warning = true;
        for screen in [ScreenKind::Raw, ScreenKind::Png] {
            for display in [None, Some("4630946".to_owned())] {
                let config = AdbConfig {
                    screen,
                    display,
                    ..lab.config()
                };
                let mut device = AdbDevice::connect(config).await.unwrap();
                let frame = device.screenshot().await.unwrap().frame;
                assert_eq!(frame.size(), SCREEN);
            }
        }
        let commands = lab.phone.commands();
        assert!(
            commands.iter().any(|line| line == "screencap -d '4630946'"),
            "{commands:?}"
        );
        let text = AdbConfig {
            display: Some("4; reboot".into()),
            ..lab.config()
        };
        assert_eq!(
            AdbDevice::connect(text).await.unwrap_err().kind(),
            ErrorKind::Config
        );
    });
}

/// Old phones turn LF into CR LF; a PNG file says so itself, and what is whole is left alone.
#[test]
fn case_28_line_ends_of_a_terminal() {
    with_adb("case 28", || async {
        let lab = Lab::new(Options::default()).await;
        let png = AdbConfig {
            screen: ScreenKind::Png,
            ..lab.config()
        };
        let mut device = AdbDevice::connect(png).await.unwrap();
        let whole = device.screenshot().await.unwrap().frame;
        lab.phone.faults().crlf = true;
        let repaired = device.screenshot().await.unwrap().frame;
        assert_eq!(repaired, whole);
        // Raw pixels do not tell where they were damaged: an error, never a wrong picture. The pad
        // has a colour with the byte of LF in it.
        let mut device = lab.device_unseen().await;
        let error = device.screenshot().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    });
}

/// `input text` breaks on anything but ASCII.
#[test]
fn case_29_text_beyond_ascii() {
    with_adb("case 29", || async {
        let lab = Lab::new(Options::default()).await;
        let broken = lab.target().shell("input text 'caf\u{e9}'").await.unwrap();
        assert!(broken.code != 0 && !broken.stderr.is_empty());
        let mut device = lab.device().await;
        let text = "caf\u{e9}".to_owned();
        let error = device
            .perform(&Action::Type { text: text.clone() })
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAction);
        assert!(error.to_string().contains("U+00E9"), "{error}");
        let with = Lab::new(Options::with_keyboard()).await;
        with.device()
            .await
            .perform(&Action::Type { text: text.clone() })
            .await
            .unwrap();
        assert_eq!(with.typed().await, text);
    });
}

/// A broadcast that no keyboard hears completes all the same: text is never dropped silently.
#[test]
fn case_29_a_keyboard_that_was_changed_meanwhile() {
    with_adb("case 29, keyboard", || async {
        let lab = Lab::new(Options::with_keyboard()).await;
        let mut device = lab.device().await;
        let other = "ime set com.android.inputmethod.latin/.LatinIME";
        assert_eq!(lab.target().shell(other).await.unwrap().code, 0);
        let text = "caf\u{e9}".to_owned();
        let error = device
            .perform(&Action::Type { text: text.clone() })
            .await
            .unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(lab.typed().await, "");
        device.recover().await.unwrap();
        device.perform(&Action::Type { text }).await.unwrap();
        assert_eq!(lab.typed().await, "caf\u{e9}");
    });
}

/// A device that was not connected to in the end keeps the keyboard that it had.
#[test]
fn case_29_a_failed_connection_gives_the_keyboard_back() {
    with_adb("case 29, connection", || async {
        let lab = Lab::new(Options::with_keyboard()).await;
        // The pad has a colour with the byte of LF in it: no picture, and the connection fails.
        lab.phone.faults().crlf = true;
        assert!(AdbDevice::connect(lab.config()).await.is_err());
        let chosen = "settings get secure default_input_method";
        let chosen = lab.target().shell(chosen).await.unwrap().text();
        assert!(chosen.contains("LatinIME"), "{chosen}");
    });
}

/// A screen that was turned before the last picture is touched at once: its points are the agent's.
#[test]
fn a_turn_that_was_seen_costs_no_action() {
    with_adb("seen turn", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        lab.phone.faults().rotated = true;
        let size = device.screenshot().await.unwrap().frame.size();
        assert_eq!((size.width, size.height), (SCREEN.height, SCREEN.width));
        let square = lab.phone.device().lock().await.target;
        let at = ScreenPx::new(
            (SCREEN.height as i32) - 1 - square.center().y,
            square.center().x,
        );
        device.perform(&Action::Tap { at }).await.unwrap();
        assert!(lab.phone.device().lock().await.lit);
    });
}

/// `%s` became a space, `$` vanished, `+` and `@` cut the text.
#[test]
fn case_30_signs_that_shells_and_input_take_for_themselves() {
    with_adb("case 30", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        let texts = [
            "100%sure",
            "%s",
            "% s",
            "cost $5 $USER",
            "a+b@c.de",
            "'",
            "\\",
            "-d 1",
            "%%s s",
        ];
        for text in texts {
            lab.phone.device().lock().await.performed.clear();
            device
                .perform(&Action::Type { text: text.into() })
                .await
                .unwrap();
            assert_eq!(lab.typed().await, text);
        }
    });
}

/// A phone that is stuck `offline` comes back by reconnecting, and one that is off never hangs a call.
#[test]
fn case_32_an_offline_phone_is_reconnected_to() {
    with_adb("case 32", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        lab.phone.faults().silent = true;
        lab.phone.cut();
        let started = std::time::Instant::now();
        for _ in 0..3 {
            let error = device.screenshot().await.unwrap_err();
            assert!(error.is_retryable(), "{error}");
        }
        assert!(started.elapsed() < Duration::from_secs(5));
        lab.phone.faults().silent = false;
        device.recover().await.unwrap();
        device.screenshot().await.unwrap();
    });
}

/// Connections drop under concurrency with "closed": an error that is retried, and no other call
/// suffers.
#[test]
fn case_34_services_that_are_closed_at_once() {
    with_adb("case 34", || async {
        let lab = Arc::new(Lab::new(Options::default()).await);
        lab.phone.faults().close_services = 5;
        let tasks: Vec<_> = (0..40)
            .map(|number| {
                let target = lab.target();
                tokio::spawn(async move {
                    let output = target.shell(&format!("echo {number}")).await;
                    output.map(|output| (number, output.text()))
                })
            })
            .collect();
        let mut failed = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok((number, text)) => assert_eq!(text, format!("{number}\n")),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
                    failed += 1;
                }
            }
        }
        assert_eq!(failed, 5);
    });
}

/// `uiautomator dump` ends with code 0 whatever happens.
#[test]
fn case_35_dumps_that_fail_with_code_0() {
    with_adb("case 35", || async {
        let lab = Lab::new(Options::default()).await;
        let device = lab.device().await;
        // A dump from before is not taken for a new one.
        assert_eq!(device.ui_tree().await.unwrap().len(), 2);
        for fault in [UiFault::Idle, UiFault::NullRoot] {
            lab.phone.faults().ui = Some(fault);
            let error = device.ui_tree().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
            assert!(error.to_string().contains("ERROR: "), "{error}");
        }
        lab.phone.faults().ui = None;
        assert!(device.ui_tree().await.is_ok());
    });
}

/// An empty tree was reported as success.
#[test]
fn case_36_an_empty_tree_is_an_error() {
    with_adb("case 36", || async {
        let lab = Lab::new(Options::default()).await;
        lab.phone.faults().ui = Some(UiFault::Empty);
        let config = AdbConfig {
            observe_ui: true,
            ..lab.config()
        };
        let mut device = AdbDevice::connect(config).await.unwrap();
        assert!(device.ui_tree().await.unwrap_err().is_retryable());
        assert!(device.screenshot().await.is_err());
    });
}

/// Several phones on one server never answer for each other, and each server has a port of its own.
#[test]
fn case_39_several_phones_and_servers_side_by_side() {
    with_adb("case 39", || async {
        let lab = Lab::new(Options::default()).await;
        let other = Options {
            serial_number: "SECOND".into(),
            ..Options::default()
        };
        let second = Simulator::start(Pad::new(SCREEN), other).await.unwrap();
        let mut first = lab.device().await;
        let config = AdbConfig {
            serial: second.serial(),
            ..lab.config()
        };
        let mut twin = AdbDevice::connect(config).await.unwrap();
        let at = lab.phone.device().lock().await.target.center();
        twin.perform(&Action::Tap { at }).await.unwrap();
        assert!(second.device().lock().await.lit);
        assert!(!lab.phone.device().lock().await.lit);
        // One goes, the other stays.
        second.faults().refuse = true;
        second.cut();
        assert!(twin.screenshot().await.is_err());
        first.perform(&Action::Tap { at }).await.unwrap();
        assert!(lab.phone.device().lock().await.lit);
        let more = OwnServer::start(std::path::Path::new("adb")).await.unwrap();
        assert_ne!(more.server().port(), lab.own.server().port());
        assert!(more.server().devices().await.unwrap().is_empty());
    });
}
