//! Every encoding on real servers: the same pixels as Raw.
//!
//! With `DART_RECORD_RFB=folder`, what the servers sent is written there; `tests/data/rfb` holds
//! such recordings, which `rfb_recorded` replays without servers.

#![allow(clippy::print_stdout, reason = "a skip has to be seen")]

use dart_env_vnc::rfb::{EncodingChoice as E, Offer, PixelFormat};
use dart_testkit::suite::gate;

use crate::{
    rfb_recorded::difference,
    rfb_screens::{Capture, Screen, blocks, installed, picture},
};

const WIDTH: u16 = 160;
const HEIGHT: u16 = 120;

/// Why the suite cannot run here, if so. `DART_TEST_REQUIRE` names the suites that must run.
fn skipped(suite: &str, needs: &[(&str, &str)]) -> bool {
    let missing = needs.iter().find(|(program, _)| !installed(program));
    let available = missing.map_or(Ok(()), |(program, package)| {
        Err(format!(
            "{program} is not installed (apt-get install {package})"
        ))
    });
    let why = gate(suite, available);
    if let Some(why) = &why {
        println!("skipped: {why}");
    }
    why.is_some()
}

const XTIGERVNC: (&str, &str) = ("Xtigervnc", "tigervnc-standalone-server");

/// Name of a choice as in a configuration.
fn name(choice: E) -> String {
    let json = serde_json::to_string(&choice).expect("a name");
    json.trim_matches('"').to_owned()
}

fn record(server: &str, choice: E, capture: &Capture) {
    let Some(folder) = std::env::var_os("DART_RECORD_RFB") else {
        return;
    };
    let folder = std::path::PathBuf::from(folder);
    let file = format!("{server}-{}.bin", name(choice));
    std::fs::write(folder.join(file), &capture.bytes).expect("a recording");
    if choice == E::Raw {
        let size = capture.core.screen().expect("a screen").size();
        let rgb = capture.rgb().to_vec();
        let picture = image::RgbImage::from_raw(size.width, size.height, rgb).expect("pixels");
        picture
            .save(folder.join(format!("{server}.png")))
            .expect("a picture");
    }
}

/// How far from Raw the pixels of a choice may be, on average and at most.
fn tolerance(choice: E) -> (f64, u8) {
    match choice {
        E::TightJpeg | E::Zywrle => (8.0, 160),
        _ => (0.0, 0),
    }
}

/// Each choice brings the encoding that is expected of the server, and Raw's pixels.
fn check(server: &str, port: u16, expected: &[(E, i32)]) {
    let raw = Capture::take(port, Offer::new(E::Raw, true));
    record(server, E::Raw, &raw);
    assert!(
        raw.rgb().iter().any(|byte| *byte != raw.rgb()[0]),
        "an empty screen"
    );
    for (choice, encoding) in expected {
        let seen = Capture::take(port, Offer::new(*choice, true));
        record(server, *choice, &seen);
        let numbers = seen.core.encodings_seen();
        assert!(
            numbers.contains(encoding),
            "{server} {choice:?}: {numbers:?}"
        );
        let (mean, most) = difference(seen.rgb(), raw.rgb());
        let (mean_limit, limit) = tolerance(*choice);
        assert!(
            mean <= mean_limit && most <= limit,
            "{server} {choice:?}: {mean} on average, at most {most}"
        );
    }
}

/// Each pixel format brings the same pixels in each encoding, and about those of the usual format.
fn check_formats(server: &str, port: u16, choices: &[E]) {
    let ours = Capture::take(port, Offer::new(E::Raw, true));
    let formats = [
        (None, 0),
        (Some(PixelFormat::WIRE.swapped()), 0),
        (Some(PixelFormat::RGB565), 8),
        (Some(PixelFormat::RGB565.swapped()), 8),
        (Some(PixelFormat::BGR233), 85),
        (Some(PixelFormat::MAPPED), 85),
    ];
    for (format, limit) in formats {
        // QEMU 7.2 sends its own order of bytes if nothing else differs.
        if server == "qemu" && format == Some(PixelFormat::WIRE.swapped()) {
            continue;
        }
        let with = |choice| {
            let offer = Offer::new(choice, true);
            Capture::take(port, Offer { format, ..offer })
        };
        let raw = with(E::Raw);
        let (_, most) = difference(raw.rgb(), ours.rgb());
        assert!(most <= limit, "{server} {format:?}: {most}");
        for choice in choices {
            let (_, most) = difference(with(*choice).rgb(), raw.rgb());
            assert_eq!(most, 0, "{server} {format:?} {choice:?}");
        }
    }
}

#[test]
fn xtigervnc_sends_the_same_pixels_in_every_encoding() {
    if skipped("vnc", &[XTIGERVNC]) {
        return;
    }
    let screen = Screen::xtigervnc(WIDTH, HEIGHT, picture);
    let choices = [
        (E::Rre, 2),
        // What it does not know it sends as Raw.
        (E::Corre, 0),
        (E::Trle, 0),
        (E::Hextile, 5),
        (E::Tight, 7),
        (E::TightJpeg, 7),
        (E::Zrle, 16),
    ];
    check("xtigervnc", screen.port, &choices);
    let lossless = [E::Rre, E::Hextile, E::Tight, E::Zrle];
    check_formats("xtigervnc", screen.port, &lossless);
}

#[test]
fn x11vnc_sends_the_same_pixels_in_every_encoding() {
    if skipped("vnc", &[XTIGERVNC, ("x11vnc", "x11vnc")]) {
        return;
    }
    let screen = Screen::x11vnc(WIDTH, HEIGHT, picture);
    let choices = [
        (E::Corre, 4),
        (E::Hextile, 5),
        (E::Zlib, 6),
        (E::Tight, 7),
        (E::TightJpeg, 7),
        (E::Zrle, 16),
        (E::Zywrle, 17),
    ];
    check("x11vnc", screen.port, &choices);
    let lossless = [E::Corre, E::Hextile, E::Zlib, E::Tight, E::Zrle];
    check_formats("x11vnc", screen.port, &lossless);
    drop(screen);
    // It sends RRE where that is smaller than Raw.
    let screen = Screen::x11vnc(WIDTH, HEIGHT, blocks);
    check("x11vncblocks", screen.port, &[(E::Rre, 2)]);
    check_formats("x11vncblocks", screen.port, &[E::Rre]);
}

#[test]
fn qemu_sends_the_same_pixels_in_every_encoding() {
    if skipped("qemu", &[("qemu-system-x86_64", "qemu-system-x86")]) {
        return;
    }
    let screen = Screen::qemu();
    let choices = [
        (E::Hextile, 5),
        (E::Zlib, 6),
        (E::Tight, 7),
        (E::TightPng, -260),
        (E::Zrle, 16),
        // Without leave to lose detail it sends ZRLE and says so.
        (E::Zywrle, 16),
    ];
    check("qemu", screen.port, &choices);
    let lossless = [E::Hextile, E::Zlib, E::Zrle];
    check_formats("qemu", screen.port, &lossless);
}

#[test]
fn wayvnc_sends_the_same_pixels_in_every_encoding() {
    let needs = [
        ("wayvnc", "wayvnc"),
        ("sway", "sway"),
        ("runuser", "util-linux"),
    ];
    if skipped("wayvnc", &needs) {
        return;
    }
    let screen = Screen::wayvnc(WIDTH, HEIGHT);
    check("wayvnc", screen.port, &[(E::Tight, 7), (E::Zrle, 16)]);
}
