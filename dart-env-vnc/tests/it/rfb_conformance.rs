//! The device suite on a fake server, and on a real one: `DART_TEST_VNC=host:port`, whose screen
//! has to react to a right click in its middle.

use std::sync::PoisonError;

use async_trait::async_trait;
use dart_core::{Action, ErrorKind, MouseButton, Result, ScreenPx};
use dart_env_vnc::{VncConfig, VncDevice};
use dart_testkit::{
    Breakable, Fault, Settings, device::DeviceHarness, device_conformance, suite::gate,
};

use crate::rfb_server::{FakeServer, Mode, Quirk};

struct Fake(Quirk);

impl Fake {
    async fn pair(&self) -> Result<(FakeServer, VncDevice)> {
        let server = FakeServer::start(self.0).await;
        let device = VncDevice::connect(server.config()).await?;
        SERVERS.with_borrow_mut(|servers| servers.push((device_name(&device), server.clone())));
        Ok((server, device))
    }
}

fn device_name(device: &VncDevice) -> String {
    dart_core::Device::spec(device).name.clone()
}

std::thread_local! {
    // Each check runs on one thread with one runtime.
    static SERVERS: std::cell::RefCell<Vec<(String, FakeServer)>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[async_trait]
impl DeviceHarness for Fake {
    type Device = VncDevice;

    async fn make(&self) -> Result<Box<VncDevice>> {
        Ok(Box::new(self.pair().await?.1))
    }

    async fn visible_action(&self, _device: &mut VncDevice) -> Result<Action> {
        Ok(Action::click(ScreenPx::new(30, 20)))
    }

    async fn held(&self, device: &mut VncDevice) -> Result<Option<usize>> {
        let name = device_name(device);
        let held = SERVERS.with_borrow(|servers| {
            let found = servers.iter().find(|(known, _)| *known == name);
            found.map(|(_, server)| server.held())
        });
        Ok(held)
    }

    async fn breakable(&self, fault: Fault) -> Result<Option<Breakable<VncDevice>>> {
        let (server, device) = self.pair().await?;
        let healed = server.clone();
        let mode = match fault {
            Fault::Stall => Mode::Stall,
            Fault::Cut => Mode::Cut,
        };
        Ok(Some(Breakable {
            subject: Box::new(device),
            break_it: Box::new(move || server.set(mode)),
            heal: Some(Box::new(move || healed.set(Mode::Serve))),
        }))
    }
}

device_conformance!(mod plain_server, Fake(Quirk::None));
device_conformance!(mod noisy_server, Fake(Quirk::Noisy));
device_conformance!(mod pseudo_only_server, Fake(Quirk::PseudoOnly));

/// The server that `DART_TEST_VNC` names.
struct Live;

static LIVE: std::sync::Mutex<()> = std::sync::Mutex::new(());

std::thread_local! {
    // There is one screen for all checks: each has it until its thread ends.
    static TURN: std::cell::RefCell<Option<std::sync::MutexGuard<'static, ()>>> =
        const { std::cell::RefCell::new(None) };
}

fn live_endpoint() -> std::result::Result<String, String> {
    std::env::var("DART_TEST_VNC").map_err(|_| "DART_TEST_VNC=host:port is not set".to_owned())
}

#[async_trait]
impl DeviceHarness for Live {
    type Device = VncDevice;

    fn settings(&self) -> Settings {
        Settings {
            not_applicable: &["c04", "c05"],
            skipped: gate("vnc-live", live_endpoint().map(drop)),
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Box<VncDevice>> {
        let endpoint = live_endpoint().map_err(|why| {
            dart_core::Error::new(ErrorKind::Config, "rfb_conformance", "make", why)
        })?;
        TURN.with_borrow_mut(|turn| {
            turn.get_or_insert_with(|| LIVE.lock().unwrap_or_else(PoisonError::into_inner));
        });
        let config = VncConfig {
            settle_quiet_ms: 150,
            settle_max_ms: 2_000,
            ..VncConfig::new(endpoint)
        };
        Ok(Box::new(VncDevice::connect(config).await?))
    }

    async fn visible_action(&self, device: &mut VncDevice) -> Result<Action> {
        Ok(right_click(device))
    }
}

device_conformance!(mod live_server, Live);

/// Opens the menu of a bare desktop's window manager, or closes it if it is open.
pub(crate) fn right_click(device: &VncDevice) -> Action {
    let screen = dart_core::Device::spec(device).screen;
    Action::Click {
        at: ScreenPx::new(screen.width as i32 / 2, screen.height as i32 / 2),
        button: MouseButton::Right,
        count: 1,
        modifiers: dart_core::Modifiers::NONE,
    }
}
