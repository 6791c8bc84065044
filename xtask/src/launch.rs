//! `train`, `eval`, `show`: builds the trainer in release mode and becomes it, so that Ctrl-C and
//! the exit code are the trainer's own.

use std::{os::unix::process::CommandExt, process::Command};

use anyhow::{Context, Result};

use crate::process;

/// The trainer in release mode, ready for its own arguments.
pub(crate) fn trainer() -> Command {
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
    cargo
}

pub(crate) fn exec(command: &str, arguments: &[String]) -> Result<()> {
    let mut trainer = trainer();
    trainer.arg(command).args(arguments);
    eprintln!("building the trainer (release); the first time takes some minutes");
    Err(trainer.exec()).context("cannot start cargo")
}
