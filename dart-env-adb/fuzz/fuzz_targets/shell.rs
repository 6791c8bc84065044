//! Packets of a shell: the same output, whole and in pieces, and not more than came.

#![no_main]

use dart_env_adb::wire::shell::{ShellEvent, ShellReader};
use dart_env_adb_fuzz::alike;

/// Output, errors and exit code; nothing if it went wrong, since an error takes with it what came in
/// the same piece.
fn read(pieces: &mut dyn Iterator<Item = &[u8]>) -> Option<(Vec<u8>, Vec<u8>, Option<u8>)> {
    let (mut out, mut err, mut code) = (Vec::new(), Vec::new(), None);
    let mut reader = ShellReader::default();
    for piece in pieces {
        for event in reader.push(piece).ok()? {
            match event {
                ShellEvent::Stdout(data) => out.extend(data),
                ShellEvent::Stderr(data) => err.extend(data),
                ShellEvent::Exit(number) => code = Some(number),
            }
        }
        assert_eq!(code.is_some(), reader.has_exited());
    }
    Some((out, err, code))
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(Some((out, err, _))) = alike(data, read) {
        assert!(out.len() + err.len() <= data.len());
    }
});
