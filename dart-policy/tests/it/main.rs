//! Integration tests of dart-policy.

mod common;
mod conformance;
mod decoding;
mod gradients;
mod language;
mod weights;
