//! Golden numbers and properties.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod golden;
mod properties;
