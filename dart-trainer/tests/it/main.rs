//! The learner as its callers see it.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "helpers of tests")]

mod checkpoints;
mod conformance;
mod handles;
mod objectives;
mod optimizers;
mod peers;
mod steps;
mod toy;
mod vlm;
