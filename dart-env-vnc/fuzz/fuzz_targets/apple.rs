//! Apple's Diffie-Hellman.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    dart_env_vnc_fuzz::apple(data);
});
