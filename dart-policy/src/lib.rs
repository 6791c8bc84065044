//! Vision-language policies.

#![forbid(unsafe_code)]

pub mod trainable;

pub use trainable::{Forward, Parameters, TrainableModel};
