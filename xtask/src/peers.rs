//! `bench-peer`: the row kernels beside torch and candle on the same numbers, in one run.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{process, python};

/// Rows and vocabulary.
const CASES: [(usize, usize); 2] = [(512, 32_768), (64, 152_064)];
/// Runs whose median counts.
const REPEATS: usize = 15;
/// Relative difference between two checksums of the same numbers.
const SAME: f64 = 1e-3;

/// What the programs print: one measurement.
#[derive(Deserialize)]
struct Measured {
    who: String,
    what: String,
    /// Median.
    ms: f64,
    least_ms: f64,
    checksum: f64,
}

pub(crate) fn run() -> Result<()> {
    let torch = python::environment("peers", &["torch==2.11.0", "numpy"], &[])?;
    let build = [
        "build",
        "--quiet",
        "--release",
        "-p",
        "dart-kernels",
        "--example",
        "cpu_speed",
    ];
    process::run(process::cargo().args(build))?;
    for (rows, vocab) in CASES {
        let numbers = [rows, vocab, REPEATS].map(|number| number.to_string());
        let mut all = measure(ours().args(&numbers))?;
        let script = Path::new("dart-kernels/peers/cpu_torch.py");
        let mut peer = process::command(&torch.to_string_lossy());
        all.extend(measure(peer.arg(script).args(&numbers))?);
        for what in ["forward", "training"] {
            print(&format!("{rows}x{vocab} f32, {what}"), &all, what)?;
        }
    }
    Ok(())
}

/// The example `cpu_speed`. Candle's pool of threads is kept to one thread, like torch's.
fn ours() -> Command {
    let program = process::target().join("release/examples/cpu_speed");
    let mut command = process::command(&program.to_string_lossy());
    command
        .env("CANDLE_NUM_THREADS", "1")
        .env("RAYON_NUM_THREADS", "1");
    command
}

fn measure(command: &mut Command) -> Result<Vec<Measured>> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}",
            command.get_program().display(),
            output.status
        );
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| {
            serde_json::from_str(line).with_context(|| format!("not a measurement: {line}"))
        })
        .collect()
}

/// The table of one operation, slowest first. A side that read other numbers is an error.
fn print(title: &str, all: &[Measured], what: &str) -> Result<()> {
    let mut lines: Vec<&Measured> = all.iter().filter(|line| line.what == what).collect();
    lines.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    let median = |who: &str| {
        lines
            .iter()
            .find(|line| line.who == who)
            .map(|line| line.ms)
    };
    let compiled = median("torch.compile").context("torch.compile was not measured")?;
    let candle = median("candle").context("candle was not measured")?;
    let truth = lines
        .iter()
        .find(|line| line.who.starts_with("dart"))
        .context("nothing of ours")?;
    println!("\n{title}: median and least of {REPEATS} in ms; times faster than");
    println!(
        "{:<26}{:>10}{:>10}{:>16}{:>10}",
        "", "median", "least", "torch.compile", "candle"
    );
    for line in &lines {
        println!(
            "{:<26}{:>10.2}{:>10.2}{:>15.1}x{:>9.1}x",
            line.who,
            line.ms,
            line.least_ms,
            compiled / line.ms,
            candle / line.ms
        );
        let apart = (line.checksum - truth.checksum).abs();
        if apart > SAME * truth.checksum.abs().max(1e-2) {
            bail!(
                "{} computed {} where {} computed {}",
                line.who,
                line.checksum,
                truth.who,
                truth.checksum
            );
        }
    }
    Ok(())
}
