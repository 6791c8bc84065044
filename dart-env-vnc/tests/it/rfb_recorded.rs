//! What real servers sent, replayed without them: `tests/data/rfb` holds a recording for each server
//! and encoding, named so, and what the screen looked like in Raw.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::{Path, PathBuf};

use dart_env_vnc::rfb::{Core, EncodingChoice, Offer};
use proptest::prelude::*;

/// The mean and the largest difference of two screens' bytes.
pub(crate) fn difference(a: &[u8], b: &[u8]) -> (f64, u8) {
    assert_eq!(a.len(), b.len(), "screens of different sizes");
    let differences = || a.iter().zip(b).map(|(a, b)| a.abs_diff(*b));
    let sum = differences().map(u64::from).sum::<u64>();
    (
        sum as f64 / a.len() as f64,
        differences().max().unwrap_or(0),
    )
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rfb")
}

/// Server, choice and bytes of each recording.
fn recordings() -> Vec<(String, EncodingChoice, Vec<u8>)> {
    let files = std::fs::read_dir(folder()).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut recordings = files
        .filter(|file| file.extension().is_some_and(|extension| extension == "bin"))
        .map(|file| {
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let (server, choice) = name.split_once('-').unwrap();
            let choice = serde_json::from_value(choice.into()).unwrap();
            (server.to_owned(), choice, std::fs::read(file).unwrap())
        })
        .collect::<Vec<_>>();
    recordings.sort_by_key(|(server, choice, _)| format!("{server} {choice:?}"));
    recordings
}

/// The screen after the pieces, and a fault if there is one.
fn replay<'a>(choice: EncodingChoice, pieces: impl Iterator<Item = &'a [u8]>) -> Core {
    let mut core = Core::with_offer(None, Offer::new(choice, true));
    for piece in pieces {
        core.input().extend_from_slice(piece);
        while core.next_event().unwrap().is_some() {}
        core.take_output();
    }
    core
}

fn raw(server: &str) -> Vec<u8> {
    let file = folder().join(format!("{server}.png"));
    image::open(file).unwrap().to_rgb8().into_raw()
}

#[test]
fn recordings_have_the_pixels_of_raw() {
    let recordings = recordings();
    assert!(recordings.len() >= 20, "{} recordings", recordings.len());
    for (server, choice, bytes) in recordings {
        let core = replay(choice, std::iter::once(bytes.as_slice()));
        let (mean, most) = difference(core.screen().unwrap().rgb(), &raw(&server));
        let lossy = matches!(choice, EncodingChoice::TightJpeg | EncodingChoice::Zywrle);
        if lossy {
            assert!(mean <= 8.0, "{server} {choice:?}: {mean} on average");
        } else {
            assert_eq!(most, 0, "{server} {choice:?}");
        }
    }
}

#[test]
fn recordings_byte_by_byte_are_the_same() {
    for (server, choice, bytes) in recordings() {
        let whole = replay(choice, std::iter::once(bytes.as_slice()));
        let cut = replay(choice, bytes.chunks(1));
        let same = whole.screen().unwrap().rgb() == cut.screen().unwrap().rgb();
        assert!(same, "{server} {choice:?}");
        assert_eq!(whole.cursor(), cut.cursor());
    }
}

/// A recording that lost its tail, or a byte of which changed, is never a panic, and never a screen
/// of another size.
fn survive(choice: EncodingChoice, bytes: &[u8], pixels: usize) {
    let mut core = Core::with_offer(None, Offer::new(choice, true));
    core.input().extend_from_slice(bytes);
    while let Ok(Some(_)) = core.next_event() {}
    let rgb = core.screen().map_or(0, |screen| screen.rgb().len());
    assert!(rgb <= pixels.max(64 << 20));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cut_is_the_same(seed in any::<prop::sample::Index>(), sizes in prop::collection::vec(1usize..5000, 1..6)) {
        let recordings = recordings();
        let (_, choice, bytes) = seed.get(&recordings);
        let mut rest = bytes.as_slice();
        let mut sizes = sizes.into_iter().cycle();
        let pieces = std::iter::from_fn(|| {
            if rest.is_empty() {
                return None;
            }
            let (piece, left) = rest.split_at(sizes.next()?.min(rest.len()));
            rest = left;
            Some(piece)
        });
        let cut = replay(*choice, pieces);
        let whole = replay(*choice, std::iter::once(bytes.as_slice()));
        prop_assert!(cut.screen().unwrap().rgb() == whole.screen().unwrap().rgb());
    }

    #[test]
    fn a_damaged_recording_is_an_error_or_other_pixels(
        seed in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let recordings = recordings();
        let (_, choice, bytes) = seed.get(&recordings);
        let mut bytes = bytes.clone();
        *at.get_mut(&mut bytes) = value;
        survive(*choice, &bytes, 720 * 400 * 3);
    }
}
