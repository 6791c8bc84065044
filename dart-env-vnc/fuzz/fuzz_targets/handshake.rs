//! A server's bytes from the first one on.

#![no_main]

use dart_env_vnc::rfb::PixelFormat;
use dart_env_vnc_fuzz::{client, feed};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    feed(&mut client(PixelFormat::WIRE), [data]);
});
