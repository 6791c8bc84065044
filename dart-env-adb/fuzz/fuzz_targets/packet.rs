//! Packets between a server and a device: one header and payload after another. What is read is
//! written the same again.

#![no_main]

use dart_env_adb::wire::packet::{HEADER, Header, MAX_PAYLOAD};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Some((bytes, after)) = rest.split_first_chunk::<HEADER>() {
        let Ok(header) = Header::decode(bytes) else {
            return;
        };
        assert_eq!(header.encode(), *bytes);
        assert!(header.length <= MAX_PAYLOAD);
        let (payload, after) = after.split_at(header.length.min(after.len()));
        let fits = header.fits(payload);
        assert!(!fits || payload.len() == header.length);
        rest = after;
    }
});
