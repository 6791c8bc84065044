//! `fuzz`: the fuzz targets of the RFB client, driven by libFuzzer without cargo-fuzz.
//!
//! Coverage comes from LLVM's own pass, which a stable compiler takes through `-C` flags, so neither
//! a nightly toolchain nor another tool has to be installed; only a C++ compiler, for libFuzzer.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, bail};

use crate::process;

/// Targets and where recorded or hand-made inputs for them lie, from the root.
const TARGETS: &[(&str, &str)] = &[
    ("handshake", "dart-env-vnc/tests/data/rfb"),
    ("session", "dart-env-vnc/fuzz/seeds/session"),
    ("rectangle", "dart-env-vnc/fuzz/seeds/rectangle"),
];

/// The folder in `target/` that this builds in.
pub(crate) const FOLDER: &str = "fuzz";

/// Time for all targets together, unless told otherwise.
const SECONDS: u64 = 60;

const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    --cfg fuzzing";

struct Options {
    seconds: u64,
    only: Option<String>,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        seconds: SECONDS,
        only: None,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--seconds" => options.seconds = value.parse().context("--seconds needs a number")?,
            "--target" => options.only = Some(value.clone()),
            _ => bail!("fuzz takes --seconds N (for all targets together) and --target NAME"),
        }
    }
    if let Some(only) = &options.only
        && !TARGETS.iter().any(|(name, _)| name == only)
    {
        let names = TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        bail!("no target `{only}`, there are: {}", names.join(", "));
    }
    Ok(options)
}

/// Why fuzzing is not possible here, if so.
fn missing() -> Option<&'static str> {
    if !cfg!(target_os = "linux") {
        Some("the coverage flags are known to work on Linux only")
    } else if ["c++", "g++", "clang++"]
        .iter()
        .all(|name| process::find(name).is_none())
    {
        Some("libFuzzer needs a C++ compiler (apt-get install g++)")
    } else {
        None
    }
}

/// The toolchain's own target: naming it keeps the flags away from build scripts.
fn host() -> Result<String> {
    let version = process::output("rustc", &["-vV"]).context("cannot ask rustc for its version")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .context("rustc does not name its host")
}

fn build(host: &str) -> Result<PathBuf> {
    let folder = process::target().join(FOLDER);
    let arguments = [
        "build",
        "--release",
        "--bins",
        "--manifest-path",
        "dart-env-vnc/fuzz/Cargo.toml",
        "--target",
        host,
    ];
    let mut cargo = process::cargo();
    cargo
        .args(arguments)
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", COVERAGE);
    process::run(&mut cargo)?;
    Ok(folder.join(host).join("release"))
}

/// The number after `name` in libFuzzer's statistics.
fn statistic(output: &str, name: &str) -> Option<u64> {
    let line = output.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').trim().parse().ok()
}

/// Runs one target and gives the number of executions. A finding is an error that names its input.
fn fuzz(program: &Path, (name, seeds): (&str, &str), seconds: u64) -> Result<u64> {
    let home = process::target().join("fuzz-found").join(name);
    let corpus = home.join("corpus");
    fs::create_dir_all(&corpus).with_context(|| format!("cannot make {}", corpus.display()))?;
    let mut command = process::command(&program.display().to_string());
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", home.display()))
        .args(["-max_len=8192", "-timeout=10", "-rss_limit_mb=1024"])
        .args(["-print_final_stats=1", "-verbosity=1"])
        .arg(&corpus)
        .arg(seeds)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = command
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines = text.lines().collect::<Vec<_>>();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        bail!(
            "{tail}\nfuzz target `{name}` has a finding, see {}",
            home.display()
        );
    }
    statistic(&text, "stat::number_of_executed_units").context("libFuzzer prints no statistics")
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return Ok(());
    }
    let programs = build(&host()?)?;
    let chosen = TARGETS
        .iter()
        .filter(|(name, _)| options.only.as_deref().is_none_or(|only| only == *name))
        .collect::<Vec<_>>();
    let seconds = (options.seconds / chosen.len() as u64).max(1);
    for target in chosen {
        let executions = fuzz(&programs.join(target.0), *target, seconds)?;
        println!(
            "{}: {executions} executions in {seconds} s, nothing found",
            target.0
        );
    }
    Ok(())
}

/// What continuous integration runs: a minute in all.
pub(crate) fn smoke() -> Result<()> {
    run(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read() {
        let text = "stat::number_of_executed_units: 12345\nstat::peak_rss_mb: 40\n";
        assert_eq!(
            statistic(text, "stat::number_of_executed_units"),
            Some(12_345)
        );
        assert_eq!(statistic(text, "stat::no_such_thing"), None);
    }

    #[test]
    fn targets_are_known_by_name() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = parse(&words("--seconds 9 --target session")).unwrap();
        assert_eq!(
            (options.seconds, options.only.as_deref()),
            (9, Some("session"))
        );
        assert!(parse(&words("--target nothing")).is_err());
        assert!(parse(&words("--seconds")).is_err());
    }
}
