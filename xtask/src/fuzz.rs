//! `fuzz`: the fuzz targets of the RFB client and of the ADB parsers, driven by libFuzzer without
//! cargo-fuzz.
//!
//! Coverage comes from LLVM's own pass, which a stable compiler takes through `-C` flags, so neither
//! a nightly toolchain nor another tool has to be installed; only a C++ compiler, for libFuzzer.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, bail};

use crate::process;

/// A target, and where recorded or hand-made inputs for it lie, from the root.
#[derive(Clone, Copy)]
struct Target {
    name: &'static str,
    seeds: &'static str,
}

const fn target(name: &'static str, seeds: &'static str) -> Target {
    Target { name, seeds }
}

const TARGETS: &[Target] = &[
    target("handshake", "dart-env-vnc/fuzz/seeds/handshake"),
    target("apple", "dart-env-vnc/fuzz/seeds/apple"),
    target("clipboard", "dart-env-vnc/fuzz/seeds/clipboard"),
    target("session", "dart-env-vnc/fuzz/seeds/session"),
    target("rectangle", "dart-env-vnc/fuzz/seeds/rectangle"),
    target("reply", "dart-env-adb/fuzz/seeds/reply"),
    target("devices", "dart-env-adb/fuzz/seeds/devices"),
    target("shell", "dart-env-adb/fuzz/seeds/shell"),
    target("sync", "dart-env-adb/fuzz/seeds/sync"),
    target("screen", "dart-env-adb/fuzz/seeds/screen"),
    target("packet", "dart-env-adb/fuzz/seeds/packet"),
    target("dump", "dart-env-adb/fuzz/seeds/dump"),
];

impl Target {
    /// The crate that it tests, by its folder.
    fn owner(self) -> &'static str {
        self.seeds.split('/').next().unwrap_or_default()
    }
}

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
        && !TARGETS.iter().any(|target| target.name == only)
    {
        let names = TARGETS.iter().map(|t| t.name).collect::<Vec<_>>();
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

/// Builds the targets of a crate and gives the folder with them. All crates share it, and with it
/// what they both depend on.
fn build(owner: &str, host: &str) -> Result<PathBuf> {
    let folder = process::target().join(FOLDER);
    let manifest = format!("{owner}/fuzz/Cargo.toml");
    let arguments = [
        "build",
        "--release",
        "--bins",
        "--manifest-path",
        &manifest,
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
fn fuzz(program: &Path, target: Target, seconds: u64) -> Result<u64> {
    let Target { name, seeds } = target;
    let home = process::target().join("fuzz-found").join(name);
    let corpus = home.join("corpus");
    fs::create_dir_all(&corpus).with_context(|| format!("cannot make {}", corpus.display()))?;
    let mut command = process::command(&program.display().to_string());
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", home.display()))
        .args(["-max_len=12288", "-timeout=10", "-rss_limit_mb=1024"])
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
    let is_chosen = |target: &&Target| {
        let only = options.only.as_deref();
        only.is_none_or(|only| only == target.name)
    };
    let chosen = TARGETS.iter().filter(is_chosen).collect::<Vec<_>>();
    let host = host()?;
    let owners = chosen.iter().map(|target| target.owner());
    let mut programs = PathBuf::new();
    for owner in owners.collect::<BTreeSet<_>>() {
        programs = build(owner, &host)?;
    }
    let seconds = (options.seconds / chosen.len() as u64).max(1);
    for target in chosen {
        let name = target.name;
        let executions = fuzz(&programs.join(name), *target, seconds)?;
        println!("{name}: {executions} executions in {seconds} s, nothing found");
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
    fn every_target_has_a_name_of_its_own_and_seeds() {
        let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name).collect();
        assert_eq!(names.len(), TARGETS.len());
        for target in TARGETS {
            let seeds = process::root().join(target.seeds);
            let seeds = fs::read_dir(&seeds).map_or(0, Iterator::count);
            assert!(seeds > 0, "{} has no seeds", target.name);
            let source = format!("{}/fuzz/fuzz_targets/{}.rs", target.owner(), target.name);
            assert!(process::root().join(&source).is_file(), "{source}");
        }
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
