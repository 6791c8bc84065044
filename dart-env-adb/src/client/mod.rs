//! A client of an ADB server: one connection for each service, a deadline for each call.
//!
//! [`AdbServer`] is the server, [`AdbTarget`] one device of it. Nothing here starts a server, and
//! nothing is opened for a device that it asks for by itself.

mod connection;
mod files;
mod server;
mod services;
mod target;
mod timeouts;

pub use server::{AdbServer, DeviceTracker};
pub use services::ShellOutput;
pub use target::{AdbTarget, WaitFor};
pub use timeouts::Timeouts;
