//! The data manager as its users see it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod batches;
mod common;
mod conformance;
mod crash;
mod manager;
mod properties;
mod resume;
mod ring;
mod store;
