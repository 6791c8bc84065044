//! A server's bytes after the handshake, whole and cut.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    dart_env_vnc_fuzz::session(data);
});
