//! Desktops over VNC: an RFB client, VNC desktops as devices, and the MiniWoB++ task driver.

#![forbid(unsafe_code)]

pub mod cdp;
mod config;
pub mod desktop;
pub mod device;
pub mod miniwob;
pub mod osworld;
pub mod pages;
pub mod rfb;

pub use config::VncConfig;
pub use desktop::{Desktop, DesktopConfig};
pub use device::VncDevice;
pub use miniwob::{AttachConfig, DesktopDevice, MiniwobConfig, MiniwobDriver, MiniwobFactory};
