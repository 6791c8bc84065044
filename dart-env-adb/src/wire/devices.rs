//! The lists of devices that an ADB server gives (`host:devices-l`, `host:track-devices`).
//!
//! A line is the serial, white space, the state and, in the long form, properties `name:value`.

use std::{collections::BTreeMap, fmt};

use dart_core::Result;

use crate::error::{AdbError, printable};

/// What an ADB server knows of a device's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// The device has not answered the key yet.
    Authorizing,
    /// In the boot loader.
    Bootloader,
    /// Being connected to.
    Connecting,
    /// Usable.
    Device,
    /// The server's user may not open the USB device.
    NoPermissions,
    /// Known, but it does not answer.
    Offline,
    /// In recovery mode.
    Recovery,
    /// In sideload mode.
    Sideload,
    /// The device has not allowed this computer.
    Unauthorized,
    /// Another word.
    Other(String),
}

impl DeviceState {
    /// The state of this name.
    pub fn parse(word: &str) -> Self {
        match word {
            "authorizing" => Self::Authorizing,
            "bootloader" => Self::Bootloader,
            "connecting" => Self::Connecting,
            "device" => Self::Device,
            "offline" => Self::Offline,
            "recovery" => Self::Recovery,
            "sideload" => Self::Sideload,
            "unauthorized" => Self::Unauthorized,
            word if word.starts_with("no permissions") => Self::NoPermissions,
            other => Self::Other(other.chars().take(64).collect()),
        }
    }
}

impl fmt::Display for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authorizing => "authorizing",
            Self::Bootloader => "bootloader",
            Self::Connecting => "connecting",
            Self::Device => "device",
            Self::NoPermissions => "no permissions",
            Self::Offline => "offline",
            Self::Recovery => "recovery",
            Self::Sideload => "sideload",
            Self::Unauthorized => "unauthorized",
            Self::Other(word) => word,
        })
    }
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What the server calls the device.
    pub serial: String,
    /// Its state.
    pub state: DeviceState,
    /// `product`, `model`, `device`, `transport_id` and the like; empty in the short form.
    pub properties: BTreeMap<String, String>,
}

/// Reads a list of devices.
///
/// ```
/// use dart_env_adb::wire::devices::{self, DeviceState};
///
/// let list = devices::parse(b"127.0.0.1:7555  device product:sim model:Phone transport_id:1\n")?;
/// assert_eq!(list[0].serial, "127.0.0.1:7555");
/// assert_eq!(list[0].state, DeviceState::Device);
/// assert_eq!(list[0].properties["model"], "Phone");
/// # Ok::<(), dart_core::Error>(())
/// ```
///
/// # Errors
/// [`Protocol`](dart_core::ErrorKind::Protocol) for a line without a state.
pub fn parse(text: &[u8]) -> Result<Vec<DeviceInfo>> {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let parsed = lines.map(line).collect::<Option<Vec<_>>>();
    parsed.ok_or_else(|| {
        let found = printable(&text.as_bytes()[..text.len().min(256)]);
        AdbError::malformed("a line without a state in the list of devices", found).at("devices")
    })
}

/// What stands for the serial of a USB device that has none.
const NO_SERIAL: &str = "(no serial number)";

fn line(line: &str) -> Option<DeviceInfo> {
    let line = line.trim_end();
    let without = line.strip_prefix(NO_SERIAL).map(|rest| (NO_SERIAL, rest));
    let (serial, rest) = without.or_else(|| line.split_once(char::is_whitespace))?;
    let rest = rest.trim_start();
    if serial.is_empty() || rest.is_empty() {
        return None;
    }
    let (state, properties) = if rest.starts_with("no permissions") {
        (rest, "")
    } else {
        rest.split_once(' ').unwrap_or((rest, ""))
    };
    let properties = properties
        .split_whitespace()
        .filter_map(|word| word.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some(DeviceInfo {
        serial: serial.to_owned(),
        state: DeviceState::parse(state),
        properties: properties.collect(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_forms_are_read() {
        let list =
            parse(b"emulator-5554\toffline\nR58\tno permissions (user in plugdev?); see x\n");
        let states: Vec<_> = list.unwrap().into_iter().map(|info| info.state).collect();
        assert_eq!(states, [DeviceState::Offline, DeviceState::NoPermissions]);
        let long = b"ab12                   unauthorized usb:1-1 transport_id:3\n";
        let list = parse(long).unwrap();
        assert_eq!(list[0].properties["usb"], "1-1");
        let nameless = parse(b"(no serial number)     device usb:1-2 transport_id:4\n").unwrap();
        assert_eq!(nameless[0].state, DeviceState::Device);
        assert_eq!(nameless[0].properties["transport_id"], "4");
        assert!(parse(b"").unwrap().is_empty());
        assert!(parse(b"alone\n").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
