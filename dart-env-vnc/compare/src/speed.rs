//! How long do both clients take for a full frame of 1280x800, red, green and blue?
//!
//! Live: an Xtigervnc on loopback, its own time included. Replayed: the same bytes to both, from
//! memory; `transfer` is what it takes to read them without looking at them. The clients take turns,
//! so that what else the machine does hits all.
//!
//! vnc-rs is measured twice, because cargo builds flate2 once for all that is built together: in
//! this process, with our choice of zlib (zlib-rs), and in a process of its own, where it has what it
//! has by itself. That program is named by the environment variable `DART_VNC_PEER`; `cargo xtask
//! bench-clients vnc` builds it. The bars are for vnc-rs by itself, where that is measured; in Raw,
//! which has no zlib, for the one in this process.

use std::{
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use dart_env_vnc::rfb::EncodingChoice as Ours;
use dart_env_vnc_peer::{Peer, encodings};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::{
    content::PICTURES,
    ours,
    replay::Recording,
    screen::{PATIENCE, Screen},
};

const SIZE: [u16; 2] = [1280, 800];

/// Frames of each kind.
const ROUNDS: usize = 25;

/// How many times faster than vnc-rs we have to be.
const FASTER: f64 = 1.5;

/// Longest median of a live frame in Raw, and in Tight with JPEG, milliseconds.
const RAW_MS: f64 = 5.0;
const JPEG_MS: f64 = 20.0;

/// Encodings for both.
const BOTH: [(&str, Ours); 3] = [
    ("raw", Ours::Raw),
    ("tight", Ours::Tight),
    ("zrle", Ours::Zrle),
];

/// Times of one client.
struct Times(Vec<f64>);

impl Times {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn add(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1e3);
    }

    /// Median and least, milliseconds.
    fn of(&self) -> (f64, f64) {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        (sorted[sorted.len() / 2], sorted[0])
    }
}

/// Missed bars.
#[derive(Default)]
struct Bars(Vec<String>);

impl Bars {
    fn check(&mut self, met: bool, what: String) {
        if !met {
            println!("    missed: {what}");
            self.0.push(what);
        }
    }
}

/// vnc-rs in a process of its own.
struct Alone {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Alone {
    /// Starts the program, if it is named.
    async fn start(port: u16, encoding: &str) -> Result<Option<Self>> {
        let Some(program) = std::env::var_os("DART_VNC_PEER") else {
            return Ok(None);
        };
        let mut process = Command::new(program)
            .args([&port.to_string(), encoding])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().context("no standard output")?;
        let mut alone = Self {
            process,
            lines: BufReader::new(stdout).lines(),
        };
        let said = alone.line().await?;
        ensure!(said == "ready", "vnc-rs by itself says {said}");
        Ok(Some(alone))
    }

    async fn line(&mut self) -> Result<String> {
        let line = timeout(PATIENCE, self.lines.next_line()).await??;
        line.context("vnc-rs by itself has ended")
    }

    async fn refresh(&mut self) -> Result<Duration> {
        let stdin = self.process.stdin.as_mut().context("no standard input")?;
        stdin.write_all(b"\n").await?;
        stdin.flush().await?;
        Ok(Duration::from_micros(self.line().await?.parse()?))
    }
}

/// Ours, vnc-rs with our zlib, vnc-rs by itself.
struct Race {
    ours: Times,
    theirs: Times,
    alone: Times,
}

impl Race {
    /// All in turn, on one port.
    async fn run(port: u16, (name, ours): (&str, Ours), rgb: &[u8]) -> Result<Self> {
        let mut device = ours::connect(port, ours).await?;
        let mut peer = Peer::connect(port, &encodings(name)?).await?;
        let mut alone = Alone::start(port, name).await?;
        let mut race = Self {
            ours: Times::new(),
            theirs: Times::new(),
            alone: Times::new(),
        };
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let frame = device.refresh().await?;
            race.ours.add(begun.elapsed());
            ensure!(frame.rgb() == rgb, "our client is wrong");
            let begun = Instant::now();
            peer.refresh().await?;
            race.theirs.add(begun.elapsed());
            if let Some(alone) = &mut alone {
                race.alone.add(alone.refresh().await?);
            }
        }
        ensure!(peer.differing(rgb) == 0, "vnc-rs is wrong");
        peer.close().await;
        Ok(race)
    }

    /// Prints the times, and gives how many times faster than vnc-rs we are; `floor` is left out of
    /// a second comparison.
    fn print(&self, what: &str, floor: Option<(f64, f64)>) -> f64 {
        let (ours, least) = self.ours.of();
        println!("  {what}: ours {ours:.2} ms (least {least:.2})");
        if let Some((median, least)) = floor {
            println!("    transfer {median:.2} ms (least {least:.2})");
        }
        let mut faster = 0.0;
        for (who, times) in [("with our zlib", &self.theirs), ("by itself", &self.alone)] {
            if times.0.is_empty() {
                continue;
            }
            let (theirs, their_least) = times.of();
            faster = theirs / ours;
            println!(
                "    vnc-rs {who} {theirs:.2} ms (least {their_least:.2}): {faster:.2}x, of the least \
                 {:.2}x",
                their_least / least
            );
        }
        faster
    }
}

async fn live(screen: &Screen, bars: &mut Bars, name: &str) -> Result<()> {
    for case in BOTH {
        let race = Race::run(screen.port, case, &screen.rgb).await?;
        race.print(&format!("live {}", case.0), None);
        if case.1 == Ours::Raw {
            let met = race.ours.of().0 <= RAW_MS;
            bars.check(met, format!("{name}, live raw: at most {RAW_MS} ms"));
        }
    }
    let mut device = ours::connect(screen.port, Ours::TightJpeg).await?;
    let mut times = Times::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        device.refresh().await?;
        times.add(begun.elapsed());
    }
    let (median, least) = times.of();
    println!("  live tight with JPEG, quality 6: ours {median:.2} ms (least {least:.2})");
    bars.check(
        median <= JPEG_MS,
        format!("{name}, JPEG: at most {JPEG_MS} ms"),
    );
    Ok(())
}

async fn replayed(screen: &Screen, bars: &mut Bars, name: &str) -> Result<()> {
    for case in BOTH {
        let (encoding, ours) = case;
        let numbers = ours.numbers(true);
        // One frame more: connecting takes one.
        let recording = Arc::new(Recording::take(screen.port, &numbers, ROUNDS + 1)?);
        ensure!(recording.rgb == screen.rgb, "the recording is wrong");
        let port = recording.serve(4)?;
        let race = Race::run(port, case, &screen.rgb).await?;
        let mut floor = Times::new();
        let reader = recording.floor(port)?;
        reader.into_iter().skip(1).for_each(|time| floor.add(time));
        let what = format!("replayed {encoding}, {} bytes", recording.bytes());
        let mut faster = race.print(&what, Some(floor.of()));
        if ours == Ours::Raw {
            // There is no zlib in it, so both are measured in the same process.
            faster = race.theirs.of().0 / race.ours.of().0;
        }
        bars.check(
            faster >= FASTER,
            format!("{name}, {encoding}: {FASTER}x faster"),
        );
    }
    Ok(())
}

/// Measures; fails if a bar is missed.
pub async fn run() -> Result<()> {
    let mut bars = Bars::default();
    println!(
        "full frames of {}x{}, medians of {ROUNDS}",
        SIZE[0], SIZE[1]
    );
    for (name, picture) in PICTURES {
        println!("{name}:");
        let mut screen = Screen::start(SIZE[0], SIZE[1])?;
        screen.show(picture, 0)?;
        live(&screen, &mut bars, name).await?;
        replayed(&screen, &mut bars, name).await?;
    }
    ensure!(bars.0.is_empty(), "missed: {}", bars.0.join("; "));
    Ok(())
}
