//! A server's bytes after the handshake, whole and cut: the same must come of both. The first byte
//! says how large the pieces are.

#![no_main]

use dart_env_vnc::rfb::PixelFormat;
use dart_env_vnc_fuzz::{client, feed, greeting};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((size, data)) = data.split_first() else {
        return;
    };
    let greeting = greeting();
    let mut whole = client(PixelFormat::WIRE);
    let error = feed(&mut whole, [&greeting, data]);
    let mut cut = client(PixelFormat::WIRE);
    let pieces = data.chunks(usize::from(*size) + 1);
    let other = feed(&mut cut, [greeting.as_slice()].into_iter().chain(pieces));
    assert_eq!(error, other);
    let rgb = |core: &dart_env_vnc::rfb::Core| core.screen().map(|screen| screen.rgb().to_vec());
    assert_eq!(rgb(&whole), rgb(&cut));
    assert_eq!(whole.cursor(), cut.cursor());
});
