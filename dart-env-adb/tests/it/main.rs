//! Integration tests of dart-env-adb.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cases;
mod conformance;
mod device;
mod hostile;
mod hostile_device;
mod lab;
mod live;
mod pad;
mod real_server;
mod task_files;
mod tasks;
mod transport;
