//! `AdbDevice` on the simulated phone: what each action becomes, text, rotation, recovery.

use std::time::Duration;

use dart_core::{Action, Device, Direction, ErrorKind, ScreenPx, Size, UiRole};
use dart_env_adb::{
    AdbConfig, AdbDevice,
    device::{ScreenKind, UnicodeInput},
    simulator::Options,
};

use crate::lab::{Lab, with_adb};

fn type_text(text: &str) -> Action {
    Action::Type { text: text.into() }
}

#[test]
fn every_action_reaches_the_phone_as_itself() {
    with_adb("actions", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        let at = ScreenPx::new(12, 34);
        let to = ScreenPx::new(50, 90);
        let open = |name: &str| Action::OpenApp { name: name.into() };
        let same = [
            Action::Tap { at },
            Action::DoubleTap { at },
            Action::LongPress { at },
            Action::Swipe { from: at, to },
            Action::NavigateBack,
            Action::NavigateHome,
            Action::KeyboardEnter,
            type_text("plain"),
        ];
        for action in &same {
            device.perform(action).await.unwrap();
        }
        device.perform(&open("Settings")).await.unwrap();
        device.perform(&Action::Wait { millis: 1 }).await.unwrap();
        let pad = lab.phone.device();
        let performed = pad.lock().await.performed.clone();
        assert_eq!(performed[..same.len()], same);
        assert_eq!(performed[same.len()..], [open("settings")]);

        pad.lock().await.performed.clear();
        let scroll = |direction| Action::Scroll {
            at: None,
            direction,
            notches: 2,
        };
        device.perform(&scroll(Direction::Down)).await.unwrap();
        let swipe = Action::Swipe {
            from: ScreenPx::new(30, 50),
            to: ScreenPx::new(30, 17),
        };
        assert_eq!(pad.lock().await.performed, [swipe.clone(), swipe]);

        let error = device.perform(&open("Nonesuch")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAction);
    });
}

#[test]
fn text_arrives_letter_by_letter_whatever_it_is() {
    let hard = "it's \"100%sure\" $HOME `x` \\n ; rm -rf / & | > < ( ) * ? ~ ! # \n\ttail %s%%s ";
    let world = "caf\u{e9} \u{4f60}\u{597d} \u{1f600} \u{436}\n$x 'q' %s";
    with_adb("text", || async {
        let plain = Lab::new(Options::default()).await;
        let mut device = plain.device().await;
        device.perform(&type_text(hard)).await.unwrap();
        assert_eq!(plain.typed().await, hard);
        let error = device.perform(&type_text("abc \u{e9}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAction);
        assert_eq!(
            plain.typed().await,
            hard,
            "nothing of a refused text is typed"
        );

        let before = "com.android.inputmethod.latin/.LatinIME";
        let keyboard = Lab::new(Options::with_keyboard()).await;
        let mut device = keyboard.device().await;
        device.perform(&type_text(world)).await.unwrap();
        assert_eq!(keyboard.typed().await, world);
        let chosen = "settings get secure default_input_method";
        let chosen = || async { keyboard.target().shell(chosen).await.unwrap().text() };
        assert!(chosen().await.contains("adbkeyboard"));
        device.close().await.unwrap();
        assert_eq!(chosen().await.trim(), before, "the keyboard is given back");

        let clipboard = Lab::new(Options::with_clipboard()).await;
        let mut device = clipboard.device().await;
        device.perform(&type_text(world)).await.unwrap();
        assert_eq!(clipboard.typed().await, world);

        let refusing = AdbConfig {
            unicode: UnicodeInput::Refuse,
            ..clipboard.config()
        };
        let mut device = AdbDevice::connect(refusing).await.unwrap();
        assert!(device.perform(&type_text("\u{e9}")).await.is_err());
    });
}

#[test]
fn a_turned_screen_is_noticed_and_touched_where_it_is() {
    with_adb("rotation", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        lab.phone.faults().rotated = true;
        let target = lab.phone.device().lock().await.target;
        let error = device
            .perform(&Action::Tap {
                at: target.center(),
            })
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAction);
        assert!(error.to_string().contains("turned"), "{error}");
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!(frame.size(), Size::new(100, 60));
        assert_eq!(device.spec().screen, frame.size());
        let red = |x: i32, y: i32| frame.pixel(x as u32, y as u32) == Some([200, 13, 10]);
        let mut points = (0..60).flat_map(|y| (0..100).map(move |x| (x, y)));
        let (x, y) = points.find(|(x, y)| red(*x, *y)).unwrap();
        let at = ScreenPx::new(x + 2, y + 2);
        device.perform(&Action::Tap { at }).await.unwrap();
        assert!(lab.phone.device().lock().await.lit);
        lab.phone.faults().rotated = false;
        assert!(
            device
                .perform(&Action::Tap {
                    at: ScreenPx::new(5, 5)
                })
                .await
                .is_err()
        );
        device.screenshot().await.unwrap();
        let at = target.center();
        device.perform(&Action::Tap { at }).await.unwrap();
        assert!(!lab.phone.device().lock().await.lit);
    });
}

#[test]
fn all_sources_show_the_same_and_the_user_interface_is_read() {
    with_adb("sources", || async {
        let lab = Lab::new(Options {
            screencap_header: 12,
            ..Options::default()
        })
        .await;
        let mut frames = Vec::new();
        for screen in [ScreenKind::Raw, ScreenKind::Png, ScreenKind::Framebuffer] {
            let config = AdbConfig {
                screen,
                observe_ui: true,
                ..lab.config()
            };
            let mut device = AdbDevice::connect(config).await.unwrap();
            let seen = device.screenshot().await.unwrap();
            let ui = seen.ui.unwrap();
            assert_eq!(ui[0].text, "a <b> & \"c\"");
            assert_eq!(ui[0].role, UiRole::Button);
            assert_eq!(ui[0].bounds, lab.phone.device().lock().await.target);
            frames.push(seen.frame);
        }
        assert!(frames.iter().all(|frame| *frame == frames[0]));
    });
}

#[test]
fn a_phone_that_hangs_is_restarted_if_that_is_allowed() {
    with_adb("reboot", || async {
        let lab = Lab::new(Options::default()).await;
        let config = AdbConfig {
            recover_ms: 1_000,
            reboot_ms: 10_000,
            ..lab.config()
        };
        let mut careful = AdbDevice::connect(config.clone()).await.unwrap();
        let mut bold = AdbDevice::connect(AdbConfig {
            may_reboot: true,
            ..config
        })
        .await
        .unwrap();
        lab.phone.faults().stall = true;
        let error = careful.recover().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        bold.recover().await.unwrap();
        bold.screenshot().await.unwrap();
    });
}

#[test]
fn another_device_at_the_same_address_is_refused() {
    with_adb("identity", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = AdbDevice::connect(AdbConfig {
            recover_ms: 500,
            ..lab.config()
        })
        .await
        .unwrap();
        lab.phone.rename("OTHER");
        let error = device.recover().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.to_string().contains("another device"), "{error}");
    });
}

#[test]
fn a_device_that_is_not_connected_yet_is_connected_to() {
    with_adb("connects", || async {
        let lab = Lab::apart(Options::default()).await;
        let mut device = AdbDevice::connect(lab.config()).await.unwrap();
        assert_eq!(
            device.screenshot().await.unwrap().frame.size(),
            Size::new(60, 100)
        );
        device.close().await.unwrap();
        let short = AdbConfig {
            recover_ms: 300,
            ..AdbConfig::new(lab.own.server().address(), "nosuch")
        };
        let error = AdbDevice::connect(short).await.unwrap_err();
        assert!(error.to_string().contains("nosuch"), "{error}");
        let mut bad = lab.config();
        bad.server = "nonsense".into();
        assert_eq!(
            AdbDevice::connect(bad).await.unwrap_err().kind(),
            ErrorKind::Config
        );
    });
}

#[test]
fn a_slow_phone_is_waited_for_until_the_deadline() {
    with_adb("slow", || async {
        let lab = Lab::new(Options::default()).await;
        let mut device = lab.device().await;
        lab.phone.faults().slow = Duration::from_millis(100);
        device.screenshot().await.unwrap();
        lab.phone.faults().slow = Duration::from_secs(5);
        let started = std::time::Instant::now();
        let error = device.screenshot().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(started.elapsed() < Duration::from_secs(2));
    });
}
