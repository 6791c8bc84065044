//! The data manager as its users see it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod batches;
mod common;
mod conformance;
mod conservation;
mod crash;
mod credit;
mod damage;
mod durable;
mod full_disk;
mod kept;
mod manager;
mod pool;
mod properties;
mod recovery;
mod resume;
mod ring;
mod soak;
mod store;
