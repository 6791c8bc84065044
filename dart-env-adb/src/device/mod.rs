//! [`AdbDevice`]: an Android device behind an ADB server, as a [`Device`](dart_core::Device).

mod adb_device;
mod apps;
mod config;
mod display;
mod gestures;
mod recovery;
mod screen;
mod text;
mod ui_tree;

pub use adb_device::AdbDevice;
pub use config::{AdbConfig, ScreenKind, UnicodeInput};
pub use screen::{FramebufferScreen, PngScreen, RawScreen, ScreenSource};
pub use ui_tree::{UiNode, parse_dump};
