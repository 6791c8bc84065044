//! Starts the program.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The root of the workspace, where a user stands.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// The program with `arguments`, ready to start.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dart-rl"));
    command
        .current_dir(root())
        .args(arguments)
        .env_remove("DART_LOG");
    command
}

/// Runs to the end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

/// What it wrote to standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs and insists on success.
pub(crate) fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        stderr(&output)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
