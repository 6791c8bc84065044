//! Android devices over the Android Debug Bridge.
//!
//! # What is here
//!
//! Two parts of the protocol, without any I/O: bytes go in, messages come out.
//!
//! | module | what |
//! |---|---|
//! | [`smart_socket`] | requests to the ADB server and its replies |
//! | [`shell`] | the packets of the shell service, version 2: output, errors, exit code |
//!
//! # What is not here yet
//!
//! There is no ADB client and no [`Device`](dart_core::Device): nothing in this crate opens a
//! socket, and a configuration cannot choose an Android device. The client (one connection for each
//! service, a deadline for each call), the Android device, its task driver and a device simulator
//! that speaks the transport protocol to a real ADB server have an issue of their own. The simulated
//! phone of `dart-env-sim` takes the same actions in the meantime.

#![forbid(unsafe_code)]

mod error;
pub mod shell;
pub mod smart_socket;
