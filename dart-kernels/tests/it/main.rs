//! Golden numbers and properties.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod accuracy;
mod cuda;
mod emulation;
mod golden;
mod peers;
mod properties;
mod support;
