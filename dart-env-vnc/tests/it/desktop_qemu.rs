//! A virtual machine as a desktop: the screen of its BIOS over VNC, snapshots as resets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use dart_core::{Action, Device, ErrorKind, Frame, Key, NamedKey};
use dart_env_vnc::{
    VncConfig, VncDevice,
    desktop::qemu::{Qemu, QemuConfig},
    rfb::Password,
};

use crate::needs;

fn ready() -> bool {
    match QemuConfig::default().preflight() {
        Ok(()) => true,
        Err(error) => needs::skip("qemu", &error.to_string()),
    }
}

fn config() -> QemuConfig {
    QemuConfig {
        memory_mib: 32,
        // The BIOS waits for a key, long enough for a slow machine.
        arguments: ["-boot", "menu=on,splash-time=60000"]
            .map(str::to_owned)
            .to_vec(),
        ..QemuConfig::default()
    }
}

async fn device(machine: &Qemu) -> VncDevice {
    let config = VncConfig {
        settle_quiet_ms: 100,
        settle_max_ms: 2_000,
        ..VncConfig::new(machine.vnc_address().to_string())
    };
    let password = Some(Password::new(machine.vnc_password()));
    VncDevice::connect_with(config, password).await.unwrap()
}

/// The screen once it fits; it is given half a minute.
async fn until(device: &mut VncDevice, fits: impl Fn(&Frame) -> bool) -> Frame {
    let begun = Instant::now();
    loop {
        let frame = device.screenshot().await.unwrap().frame;
        if fits(&frame) {
            return frame;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "the screen stays as it is"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// How many pixels are lit: text on a black screen.
fn lit(frame: &Frame) -> usize {
    let (pixels, _) = frame.rgb().as_chunks::<3>();
    pixels.iter().filter(|pixel| **pixel != [0; 3]).count()
}

/// os-autoinst#1095: after a snapshot was loaded the connection is made anew, and the screen is
/// what it was.
#[tokio::test]
async fn case_23_a_snapshot_is_a_reset() {
    if !ready() {
        return;
    }
    let mut machine = Qemu::start(config()).await.unwrap();
    let mut screen = device(&machine).await;
    // The text "Press ESC for boot menu" and what comes before it.
    let mut seen = 0;
    let begun = Instant::now();
    loop {
        let now = lit(&until(&mut screen, |frame| lit(frame) > 500).await);
        if now == seen || begun.elapsed() > Duration::from_secs(20) {
            break;
        }
        seen = now;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert!(screen.abilities().scancodes);
    machine.save("start").await.unwrap();
    let before = lit(&screen.screenshot().await.unwrap().frame);
    for _round in 0..2 {
        let key = Key::Named(NamedKey::Escape);
        screen.perform(&Action::Press { key }).await.unwrap();
        let menu = until(&mut screen, |frame| lit(frame) > before + 500).await;
        machine.reset().await.unwrap();
        screen.recover().await.unwrap();
        // A cursor blinks.
        let after = until(&mut screen, |frame| lit(frame).abs_diff(before) < 100).await;
        assert!(lit(&menu) > lit(&after) + 300);
    }
    let error = {
        let mut config = config();
        config.snapshot = Some("no-such".to_owned());
        Qemu::start(config).await.unwrap_err()
    };
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("no-such"), "{error}");
    machine.stop().await;
    let error = screen.screenshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
}

#[tokio::test]
async fn a_machine_that_cannot_start_says_why() {
    if !ready() {
        return;
    }
    let broken = QemuConfig {
        arguments: vec!["-no-such-option".to_owned()],
        ..config()
    };
    let error = Qemu::start(broken).await.unwrap_err();
    assert!(error.is_retryable());
    assert!(error.to_string().contains("no-such-option"), "{error}");
    let missing = QemuConfig {
        disk: Some("/nonexistent/disk.qcow2".into()),
        ..config()
    };
    let error = Qemu::start(missing).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}
