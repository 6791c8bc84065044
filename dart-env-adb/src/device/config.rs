//! Settings of an Android device.

use std::collections::BTreeMap;

use dart_core::Result;
use serde::{Deserialize, Serialize};

use crate::{
    client::{AdbServer, AdbTarget, Timeouts},
    error::AdbError,
};

/// How pictures of the screen are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScreenKind {
    /// The framebuffer service.
    Framebuffer,
    /// `screencap -p`: little data, but the phone's processor makes the PNG file.
    Png,
    /// `screencap`: four bytes for each pixel.
    #[default]
    Raw,
}

/// How text beyond ASCII is typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnicodeInput {
    /// By the keyboard app if it is installed, by the clipboard app otherwise.
    #[default]
    Auto,
    /// By the app Clipper, which sets the clipboard, and the paste key.
    Clipboard,
    /// By the app ADBKeyboard, which is made the phone's keyboard until the device is closed.
    Keyboard,
    /// Not at all: such text is an invalid action.
    Refuse,
}

/// Which device, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdbConfig {
    /// `host:port` of the ADB server. Default `127.0.0.1:5037`, that of the command `adb`; it has to
    /// run already and is left as it is.
    pub server: String,
    /// The device's serial, as `adb devices` lists it; `host:port` of a device on the network, which
    /// is connected to if it is not yet. No default.
    pub serial: String,
    /// How pictures are taken. Default raw. Measure both on a real phone.
    pub screen: ScreenKind,
    /// SurfaceFlinger's number of the display to take pictures of, on devices with several.
    pub display: Option<String>,
    /// Pause after an action, milliseconds, for the screen to react. Default 500: apps animate.
    pub settle_ms: u64,
    /// Packages (or components) of apps by the name that the agent says. Names that are missing
    /// here are looked up among the installed packages.
    pub apps: BTreeMap<String, String>,
    /// How text beyond ASCII is typed. Default auto.
    pub unicode: UnicodeInput,
    /// Whether observations list the elements of the user interface. Default false: a dump takes a
    /// second or more on a real phone.
    pub observe_ui: bool,
    /// Whether each touch first asks how the screen is held. Default true; costs one short command.
    pub check_rotation: bool,
    /// Longest recovery, milliseconds. Default 20,000.
    pub recover_ms: u64,
    /// Whether a device that cannot be reached otherwise is restarted. Default false: it may be in
    /// somebody's hand.
    pub may_reboot: bool,
    /// Longest restart, milliseconds. Default 180,000.
    pub reboot_ms: u64,
    /// Deadlines of single calls.
    pub timeouts: Timeouts,
}

impl Default for AdbConfig {
    fn default() -> Self {
        Self {
            server: "127.0.0.1:5037".into(),
            serial: String::new(),
            screen: ScreenKind::Raw,
            display: None,
            settle_ms: 500,
            apps: BTreeMap::new(),
            unicode: UnicodeInput::Auto,
            observe_ui: false,
            check_rotation: true,
            recover_ms: 20_000,
            may_reboot: false,
            reboot_ms: 180_000,
            timeouts: Timeouts::default(),
        }
    }
}

impl AdbConfig {
    /// The default settings for a device of a server (`host:port`).
    pub fn new(server: impl Into<String>, serial: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            serial: serial.into(),
            ..Self::default()
        }
    }

    /// The device, not yet asked anything.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if server, serial or display make no sense.
    pub fn target(&self) -> Result<AdbTarget> {
        let parts = self.server.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let Some((host, port)) = parts.filter(|(host, port)| !host.is_empty() && *port > 0) else {
            let server = &self.server;
            let message = format!(
                "environment.server {server:?} is not host:port: write it like 127.0.0.1:5037"
            );
            return Err(AdbError::Config(message).at("connect"));
        };
        let is_number = |id: &String| !id.is_empty() && id.chars().all(|c| c.is_ascii_digit());
        if self.display.as_ref().is_some_and(|id| !is_number(id)) {
            let message =
                "environment.display is not a number: see `dumpsys SurfaceFlinger --display-id`";
            return Err(AdbError::Config(message.into()).at("connect"));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let server = AdbServer::new(host, port).with_timeouts(self.timeouts);
        server.target(self.serial.clone())
    }

    /// Whether the server reaches the device over the network by this very address.
    pub(crate) fn is_network(&self) -> bool {
        self.serial.contains(':') && !self.serial.starts_with("emulator-")
    }
}
