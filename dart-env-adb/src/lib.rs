//! Android devices over the Android Debug Bridge.
//!
//! | module | what |
//! |---|---|
//! | [`wire`] | the protocols, sans I/O: bytes in, messages out |
//! | [`client`] | a client of an ADB server: shell, exec, files, screen; a deadline for each call |
//! | [`device`] | [`AdbDevice`]: pictures, touches, text, recovery |
//! | [`OwnServer`] | an ADB server of one's own, on a private port, ended with its owner |
//! | [`quote`] | quoting for the device's shell |
//! | [`tasks`] | tasks as data: set-up, checks, clean-up |
//! | `simulator` (feature) | a phone that a real ADB server connects to, around any [`Device`](dart_core::Device) |

#![forbid(unsafe_code)]

pub mod client;
pub mod device;
mod error;
mod own_server;
pub mod quote;
#[cfg(feature = "simulator")]
pub mod simulator;
pub mod tasks;
pub mod wire;

pub use device::{AdbConfig, AdbDevice};
pub use own_server::OwnServer;
