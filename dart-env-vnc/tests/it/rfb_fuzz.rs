//! The seeds of the fuzz targets, replayed without a fuzzer: that each decoder is reached to its end,
//! and that what was found once stays mended. A finding becomes a seed.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{collections::BTreeSet, path::Path};

use dart_env_vnc::rfb::Event;

#[allow(
    dead_code,
    unreachable_pub,
    reason = "a library of its own, of which the fuzzers use the rest"
)]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

/// Names and bytes of a target's seeds.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    let files = std::fs::read_dir(folder.join(target)).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut seeds = files
        .map(|file| {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(file).unwrap())
        })
        .collect::<Vec<_>>();
    seeds.sort();
    assert!(!seeds.is_empty(), "{target}");
    seeds
}

/// The longest input that a fuzzer is given (`xtask fuzz`): longer seeds would be cut, and reach
/// nothing.
const LONGEST: usize = 12_288;

#[test]
fn every_decoder_is_reached_to_its_end() {
    let mut reached = BTreeSet::new();
    for (name, data) in seeds("rectangle") {
        assert!(data.len() <= LONGEST, "{name}");
        let (mut core, _) = targets::rectangles(&data).unwrap();
        // The rectangle is complete if the update can end after it.
        core.input().extend_from_slice(&[0; 8]);
        core.input().extend_from_slice(&(-224i32).to_be_bytes());
        if matches!(core.next_event(), Ok(Some(Event::Updated(_)))) {
            let number = usize::from(data[0]) % targets::ENCODINGS.len();
            reached.insert(targets::ENCODINGS[number]);
        }
    }
    assert_eq!(reached, BTreeSet::from(targets::ENCODINGS));
}

/// Each ends where it is meant to, and none in a panic.
#[test]
fn seeds_of_the_other_targets_end_as_they_are_meant_to() {
    type Target = fn(&[u8]) -> Option<dart_env_vnc::rfb::RfbError>;
    let refused = ["wrong-password", "lockout", "provide-short"];
    for (name, target) in [
        ("apple", targets::apple as Target),
        ("clipboard", targets::clipboard),
        ("handshake", targets::handshake),
        ("session", targets::session),
    ] {
        for (seed, data) in seeds(name) {
            let error = target(&data);
            let expected = refused.contains(&seed.as_str());
            assert_eq!(error.is_some(), expected, "{name}/{seed}: {error:?}");
        }
    }
}
