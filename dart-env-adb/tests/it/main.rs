//! Integration tests of dart-env-adb.

mod cases;
mod conformance;
mod device;
mod hostile;
mod lab;
mod live;
mod pad;
mod real_server;
