//! Integration tests of dart-policy.

#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod common;
mod conformance;
mod decoding;
mod gradients;
mod language;
mod weights;
