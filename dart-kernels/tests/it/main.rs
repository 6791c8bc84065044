//! Golden numbers and properties.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod accuracy;
mod bounds;
mod cuda;
mod cuda_device;
mod emulation;
mod fused_linear;
mod golden;
mod losses;
mod off_policy;
mod oracle;
mod peers;
mod properties;
mod support;
