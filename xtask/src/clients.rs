//! `bench-clients`: our VNC and ADB clients beside other Rust clients, in workspaces of their own.

use anyhow::{Result, bail};

use crate::process;

/// The name under which each is asked for, and its package and folder.
const CLIENTS: [(&str, &str, &str); 2] = [
    ("vnc", "dart-env-vnc-compare", "dart-env-vnc/compare"),
    ("adb", "dart-env-adb-compare", "dart-env-adb/compare"),
];

/// vnc-rs in a program of its own. Built by itself, so that it has the zlib that it has by itself.
const PEER: &str = "dart-env-vnc-peer";

/// The one that is named, with its arguments after the name; all of them without a name.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (chosen, rest) = match arguments.split_first() {
        None => (None, &[][..]),
        Some((name, rest)) => (Some(name), rest),
    };
    if let Some(name) = chosen
        && !CLIENTS.iter().any(|(client, ..)| client == name)
    {
        bail!("bench-clients takes vnc or adb, then arguments of that comparison, not `{name}`");
    }
    for (name, package, folder) in CLIENTS {
        if chosen.is_none_or(|chosen| chosen == name) {
            compare(package, folder, rest)?;
        }
    }
    Ok(())
}

/// Builds the comparison in `folder` and runs it.
fn compare(package: &str, folder: &str, arguments: &[String]) -> Result<()> {
    let manifest = format!("{folder}/Cargo.toml");
    let target = process::target().join("compare");
    let cargo = |command: &str, package: &str| {
        let mut cargo = process::cargo();
        cargo
            .args([command, "--quiet", "--release", "--locked"])
            .args(["--manifest-path", &manifest, "--package", package])
            .env("CARGO_TARGET_DIR", &target);
        cargo
    };
    let mut run = cargo("run", package);
    if folder.starts_with("dart-env-vnc") {
        process::run(&mut cargo("build", PEER))?;
        run.env("DART_VNC_PEER", target.join("release").join(PEER));
    }
    process::run(run.arg("--").args(arguments))
}
