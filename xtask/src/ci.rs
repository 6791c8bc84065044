//! `ci`: everything that continuous integration runs, in the same order. Stops at the first fault.

use std::{fs, time::Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{arrows, check_cuda, disk, fuzz, launch, miri, process, ptx, test, tidy};

/// A name, what to do, and the folders in `target/` that nothing needs afterwards.
type Step = (&'static str, fn() -> Result<()>, &'static [&'static str]);

const STEPS: &[Step] = &[
    ("format", format, &[]),
    ("arrows", arrows::run, &[]),
    ("tidy", tidy::run, &[]),
    ("clippy", clippy, &[]),
    ("docs", docs, &["doc"]),
    ("deny", deny, &[]),
    ("check-cuda", check_cuda::run, check_cuda::FOLDERS),
    ("ptx", ptx::check_and_report, &[]),
    ("miri", miri::run, &["miri"]),
    ("fuzz", fuzz::smoke, &[fuzz::FOLDER]),
    ("tests", tests, &[]),
    ("learning", learning, &["ci-run"]),
];

/// What `target/` grows to, with much to spare: checks and tests take 1.3 GiB, the rest as much.
const ROOM: u64 = 6 << 30;

/// How much a short training run must add to held-out success.
const MIN_GAIN: f64 = 0.10;

pub(crate) fn run() -> Result<()> {
    process::build_small();
    let target = process::target();
    fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
    disk::require(&target, ROOM)?;
    let mut times = Vec::new();
    for (name, step, leftovers) in STEPS {
        println!("== {name} ({} free)", disk::shown(disk::free(&target)?));
        let start = Instant::now();
        step().with_context(|| format!("step `{name}` of `cargo xtask ci`"))?;
        times.push(format!("{name} {} s", start.elapsed().as_secs()));
        for folder in *leftovers {
            disk::remove(&target.join(folder))?;
        }
    }
    let size = disk::shown(disk::size(&target));
    println!(
        "all steps passed, {} is {size}: {}",
        target.display(),
        times.join(", ")
    );
    Ok(())
}

fn format() -> Result<()> {
    process::run(process::cargo().args(["fmt", "--all", "--check"]))
}

fn clippy() -> Result<()> {
    let arguments = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    process::run(process::cargo().args(arguments))
}

fn docs() -> Result<()> {
    let arguments = ["doc", "--workspace", "--no-deps", "--quiet"];
    process::run(
        process::cargo()
            .args(arguments)
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// Licences, bans and sources. Installs cargo-deny where that is possible; a machine without it
/// says so.
fn deny() -> Result<()> {
    if process::find("cargo-deny").is_none() {
        let install = ["install", "--quiet", "--locked", "cargo-deny"];
        if process::run(process::cargo().args(install)).is_err() {
            println!("skipped: cargo-deny is not installed and cannot be installed here");
            return Ok(());
        }
    }
    // Advisories need a database from the network; the other checks need the lock file alone.
    let checks = ["bans", "licenses", "sources"];
    let arguments = ["deny", "check", "--hide-inclusion-graph"];
    process::run(process::cargo().args(arguments).args(checks))
}

fn tests() -> Result<()> {
    test::run(&[])
}

/// A short training run from nothing must learn.
fn learning() -> Result<()> {
    let folder = process::target().join("ci-run");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut trainer = launch::trainer();
    trainer
        .args(["train", "--config", "configs/ci.toml", "--run-dir"])
        .arg(&folder);
    process::run(&mut trainer)?;
    let summary: Value = serde_json::from_slice(&fs::read(folder.join("summary.json"))?)?;
    let success = |stage: &str| {
        let value = &summary["held_out"][stage]["layouts"]["overall"];
        value
            .as_f64()
            .with_context(|| format!("summary.json has held-out success `{stage}`"))
    };
    let (before, warm, after) = (
        success("untrained")?,
        success("warm_start")?,
        success("final")?,
    );
    println!("held-out success: untrained {before:.3}, warm start {warm:.3}, final {after:.3}");
    if after - before < MIN_GAIN {
        bail!(
            "held-out success rose by {:.3}, less than {MIN_GAIN}",
            after - before
        );
    }
    Ok(())
}
