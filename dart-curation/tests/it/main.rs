//! The data manager as its users see it.

mod batches;
mod common;
mod conformance;
mod manager;
mod properties;
mod resume;
mod store;
