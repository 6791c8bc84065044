//! `gpu-check`: every operation on this machine's GPU checked and measured, then the peers, then
//! the table.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process;

/// The exit code of the example and of the script where there is nothing to measure on.
const NO_GPU: i32 = 2;

/// `arguments`: `--quick` measures less, `--checks-only` nothing.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let checks_only = arguments.iter().any(|word| word == "--checks-only");
    let quick = arguments.iter().any(|word| word == "--quick");
    let build = [
        "build",
        "--release",
        "-p",
        "dart-kernels",
        "--example",
        "gpu_check",
    ];
    process::run(process::cargo().args(build))?;
    let folder = process::target().join("gpu-check");
    std::fs::create_dir_all(&folder)?;
    let ours = folder.join("ours.json");
    ours_measured(&ours, checks_only)?;
    if checks_only {
        return Ok(());
    }
    peers_measured(&ours, &folder.join("all.json"), quick)
}

fn ours_measured(json: &Path, checks_only: bool) -> Result<()> {
    let program = process::target().join("release/examples/gpu_check");
    let mut command = process::command(&program.to_string_lossy());
    command.arg("--json").arg(json);
    if checks_only {
        command.arg("--checks-only");
    }
    let status = command
        .status()
        .context("cannot start the example gpu_check")?;
    match status.code() {
        Some(0) => Ok(()),
        Some(NO_GPU) => {
            bail!("gpu-check needs an NVIDIA GPU, and this machine has none (see above)")
        }
        _ => bail!("the operations on the GPU are wrong or failed (see above); {status}"),
    }
}

/// Peers run in the Python that has torch: DART_PYTHON, or python3.
fn peers_measured(ours: &Path, json: &Path, quick: bool) -> Result<()> {
    let python = std::env::var("DART_PYTHON").unwrap_or_else(|_| "python3".into());
    let mut command = process::command(&python);
    command.arg("dart-kernels/peers/gpu_peers.py");
    command.arg("--ours").arg(ours).arg("--json").arg(json);
    if quick {
        command.arg("--quick");
    }
    let status = command
        .status()
        .with_context(|| format!("cannot start `{python}`"))?;
    match status.code() {
        Some(0) => {
            println!("all measurements: {}", json.display());
            Ok(())
        }
        Some(NO_GPU) => bail!(
            "the operations are right, the peers were not measured: `{python}` has no torch for \
             this GPU; set DART_PYTHON to one that has"
        ),
        _ => bail!("the peers were not measured (see above); {status}"),
    }
}
