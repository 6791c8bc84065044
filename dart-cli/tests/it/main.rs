//! Tests of the program as a user meets it: the real binary, real files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(feature = "adb")]
mod adb_phone;
mod broken;
mod durable;
mod mistakes;
#[cfg(feature = "adb")]
mod phone_tasks;
mod prefill;
mod program;
mod ring;
