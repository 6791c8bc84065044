//! `train`, `eval`, `show`: builds the trainer in release mode and becomes it, so that Ctrl-C and
//! the exit code are the trainer's own.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::process;

pub(crate) fn exec(command: &str, arguments: &[String]) -> Result<()> {
    let mut cargo = process::cargo();
    cargo.args([
        "run",
        "--release",
        "--quiet",
        "--package",
        "dart-cli",
        "--bin",
        "dart-rl",
        "--",
    ]);
    cargo.arg(command).args(arguments);
    println!("building the trainer (release); the first time takes some minutes");
    Err(cargo.exec()).context("cannot start cargo")
}
