//! Tests of the simulator through its public interface.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod apps;
mod conformance;
mod episodes;
mod golden;
mod rough_use;
mod support;
