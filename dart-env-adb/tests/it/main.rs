//! Integration tests of dart-env-adb.

mod needs;
mod real_server;
