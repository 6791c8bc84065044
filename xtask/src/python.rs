//! Python packages in a folder of their own under `target/`.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::process;

/// The interpreter of the environment `target/python/NAME`, which holds `packages` (names with
/// versions, as pip takes them), installed with these `options` of pip. Made on the first call.
pub(crate) fn environment(name: &str, packages: &[&str], options: &[&str]) -> Result<PathBuf> {
    let folder = process::target().join("python").join(name);
    let python = folder.join("bin/python");
    let marker = folder.join("installed");
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    process::run(
        process::command("python3")
            .args(["-m", "venv"])
            .arg(&folder),
    )
    .context("python3 with its module venv is needed (Debian: python3-venv)")?;
    let mut pip = process::command(&python.to_string_lossy());
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    process::run(pip.args(options).args(packages))?;
    std::fs::write(&marker, wanted)?;
    Ok(python)
}
