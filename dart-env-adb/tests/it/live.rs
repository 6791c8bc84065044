//! The device suite on a real device: `DART_TEST_ADB=serial`, and `DART_TEST_ADB_SERVER=host:port` if
//! its server is not at 127.0.0.1:5037. The suite taps, types and goes home on it.

use async_trait::async_trait;
use dart_core::{Action, ErrorKind, Result};
use dart_env_adb::{AdbConfig, AdbDevice};
use dart_testkit::{Settings, device::DeviceHarness, device_conformance, suite::gate};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Live;

static LIVE: Mutex<()> = Mutex::new(());

std::thread_local! {
    // There is one screen for all checks: each has it until its thread ends.
    static TURN: std::cell::RefCell<Option<MutexGuard<'static, ()>>> =
        const { std::cell::RefCell::new(None) };
}

fn serial() -> std::result::Result<String, String> {
    std::env::var("DART_TEST_ADB").map_err(|_| "DART_TEST_ADB=serial is not set".to_owned())
}

#[async_trait]
impl DeviceHarness for Live {
    type Device = AdbDevice;

    fn settings(&self) -> Settings {
        Settings {
            not_applicable: &["c04", "c05"],
            skipped: gate("adb-live", serial().map(drop)),
            limit: std::time::Duration::from_mins(10),
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Box<AdbDevice>> {
        let serial = serial()
            .map_err(|why| dart_core::Error::new(ErrorKind::Config, "live", "make", why))?;
        TURN.with_borrow_mut(|turn| {
            turn.get_or_insert_with(|| LIVE.lock().unwrap_or_else(PoisonError::into_inner));
        });
        let mut config = AdbConfig {
            settle_ms: 1_500,
            ..AdbConfig::default()
        };
        config.serial = serial;
        if let Ok(server) = std::env::var("DART_TEST_ADB_SERVER") {
            config.server = server;
        }
        Ok(Box::new(AdbDevice::connect(config).await?))
    }

    async fn visible_action(&self, device: &mut AdbDevice) -> Result<Action> {
        // Home and settings look different; which of them is in front is not known.
        let front = device.target().shell("dumpsys window").await?.text();
        let focus = front.lines().find(|line| line.contains("mCurrentFocus"));
        let in_settings = focus.is_some_and(|line| line.contains("settings"));
        Ok(if in_settings {
            Action::NavigateHome
        } else {
            Action::OpenApp {
                name: "com.android.settings".into(),
            }
        })
    }
}

device_conformance!(mod live_device, Live);
