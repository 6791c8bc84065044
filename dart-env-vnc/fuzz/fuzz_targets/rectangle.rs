//! One decoder.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    dart_env_vnc_fuzz::rectangles(data);
});
