//! Milliseconds to take in a full frame of 1280x800, by encoding: what a real server sent, fed to the
//! core from memory. `cargo bench -p dart-env-vnc --bench decode`; needs Xtigervnc (and x11vnc).
//!
//! The server's own time is not in it. Half of the picture is as desktops are, half is gradients and
//! noise as in photographs.

#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]
#![allow(clippy::print_stdout, reason = "sizes are part of the result")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails has to stop")]
#![allow(
    dead_code,
    reason = "the tests use more of the servers than the benchmark does"
)]

#[path = "../tests/it/rfb_screens.rs"]
mod rfb_screens;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use dart_env_vnc::rfb::{Core, EncodingChoice as E, Offer};

use rfb_screens::{Capture, Screen, installed, picture};

const WIDTH: u16 = 1280;
const HEIGHT: u16 = 800;

/// Where the handshake of a 3.8 server without a password ends.
fn handshake(bytes: &[u8]) -> usize {
    let init = 12 + 1 + usize::from(bytes[12]) + 4;
    let name = u32::from_be_bytes(bytes[init + 20..init + 24].try_into().unwrap());
    init + 24 + name as usize
}

/// In pieces of the size that the driver reads.
fn feed(core: &mut Core, bytes: &[u8]) {
    for piece in bytes.chunks(256 << 10) {
        core.input().extend_from_slice(piece);
        while core.next_event().unwrap().is_some() {}
    }
}

/// A client that is connected and has painted every pixel once: the screen's memory is there.
fn connected(choice: E, greeting: &[u8]) -> Core {
    let mut core = Core::with_offer(None, Offer::new(choice, true));
    feed(&mut core, greeting);
    let mut grey = vec![0, 0, 0, 1, 0, 0, 0, 0];
    grey.extend(WIDTH.to_be_bytes());
    grey.extend(HEIGHT.to_be_bytes());
    grey.extend([0, 0, 0, 7, 0x80, 99, 99, 99]);
    feed(&mut core, &grey);
    core
}

fn measure(c: &mut Criterion, server: &str, port: u16, choices: &[E]) {
    let mut group = c.benchmark_group(format!("{server} {WIDTH}x{HEIGHT}"));
    for choice in choices {
        let capture = Capture::take(port, Offer::new(*choice, true));
        println!("{server} {choice:?}: {} bytes", capture.bytes.len());
        let (greeting, frame) = capture.bytes.split_at(handshake(&capture.bytes));
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("{choice:?}"), |b| {
            b.iter_batched(
                || connected(*choice, greeting),
                |mut core| {
                    feed(&mut core, frame);
                    core
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn decode(c: &mut Criterion) {
    if !installed("Xtigervnc") {
        println!(
            "skipped: Xtigervnc is not installed (apt-get install tigervnc-standalone-server)"
        );
        return;
    }
    let screen = Screen::xtigervnc(WIDTH, HEIGHT, picture);
    let choices = [E::Raw, E::Hextile, E::Tight, E::TightJpeg, E::Zrle];
    measure(c, "xtigervnc", screen.port, &choices);
    drop(screen);
    if installed("x11vnc") {
        let screen = Screen::x11vnc(WIDTH, HEIGHT, picture);
        let choices = [E::Corre, E::Zlib, E::Tight, E::Zrle, E::Zywrle];
        measure(c, "x11vnc", screen.port, &choices);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = decode
}
criterion_main!(benches);
