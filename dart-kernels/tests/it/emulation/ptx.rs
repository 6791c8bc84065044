//! The PTX that is checked in was made from today's sources.

use std::{collections::BTreeSet, fs};

use super::driver::{folder, sources};

/// 64-bit FNV-1a: finds changes, is no defence.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A source with each `#include "..."` line replaced by that file's text at its first mention.
fn expand(name: &str, seen: &mut BTreeSet<String>) -> String {
    if !seen.insert(name.to_owned()) {
        return String::new();
    }
    let text = fs::read_to_string(folder("cuda").join(name)).unwrap();
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let include = line
            .strip_prefix("#include \"")
            .and_then(|rest| rest.strip_suffix("\"\n"));
        match include {
            Some(included) => out.push_str(&expand(included, seen)),
            None if line == "#pragma once\n" => {}
            None => out.push_str(line),
        }
    }
    out
}

#[test]
fn ptx_is_of_todays_sources() {
    let families: Vec<_> = sources()
        .into_iter()
        .filter_map(|(name, _)| name.strip_suffix(".cu").map(str::to_owned))
        .collect();
    assert_eq!(families.len(), 5);
    let mut expected = BTreeSet::new();
    for family in families {
        let source = expand(&format!("{family}.cu"), &mut BTreeSet::new());
        let hash = format!("// source FNV-1a 64: {:016x}\n", fnv1a(source.as_bytes()));
        for architecture in ["80", "90"] {
            let name = format!("{family}.sm_{architecture}.ptx");
            let ptx = fs::read_to_string(folder("ptx").join(&name)).unwrap();
            assert!(
                ptx.starts_with(&hash),
                "{name} is of other sources: run `cargo xtask ptx`"
            );
            assert!(ptx.contains(&format!(".target sm_{architecture}\n")));
            expected.insert(name);
        }
    }
    let found: BTreeSet<_> = fs::read_dir(folder("ptx"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        found, expected,
        "PTX without a source, or a source without PTX"
    );
}

#[test]
fn the_hash_is_fnv1a() {
    assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
}
