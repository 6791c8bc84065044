//! `check-cuda`: type-checks the code for candle's GPU tensors on machines without a CUDA toolkit.
//!
//! candle's kernels are compiled by nvcc in the build script of one crate. A copy of that crate
//! with a build script that writes empty kernels stands in for it, for this check alone.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process;

const CRATE: &str = "candle-kernels";

/// The CUDA version that cudarc's declarations are of; it cannot be asked of a toolkit here.
const CUDA_VERSION: &str = "13000";

/// What this check makes in `target/`, for itself alone: the stub, its workspace, what is built.
pub(crate) const FOLDERS: &[&str] = &[STUB, WORKSPACE, BUILT];

const STUB: &str = "candle-kernels-stub";
const WORKSPACE: &str = "check-cuda-workspace";
const BUILT: &str = "check-cuda";

pub(crate) fn run() -> Result<()> {
    let stub = process::target().join(STUB);
    make_stub(&registry_folder()?, &stub)?;
    let workspace = process::target().join(WORKSPACE);
    make_workspace(&process::root(), &workspace, &stub)?;
    let arguments = [
        "clippy",
        "-p",
        "dart-kernels",
        "--features",
        "cuda,jit",
        "--quiet",
    ];
    process::run(
        process::cargo()
            .current_dir(&workspace)
            .args(arguments)
            // The features of this check are no others'; its build is kept apart.
            .arg("--target-dir")
            .arg(process::target().join(BUILT))
            .args(["--", "-D", "warnings"])
            .env("CUDARC_CUDA_VERSION", CUDA_VERSION),
    )
}

/// A workspace of the one crate, in which the stub is in force: a patch of our own workspace would
/// be written into its lock file.
fn make_workspace(root: &Path, to: &Path, stub: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let patch = format!(
        "\n[patch.crates-io]\n{CRATE} = {{ path = \"{}\" }}\n",
        stub.display()
    );
    write(&to.join("Cargo.toml"), &(one_member(&manifest)? + &patch))?;
    fs::copy(root.join("Cargo.lock"), to.join("Cargo.lock"))?;
    let link = to.join("dart-kernels");
    if !link.exists() {
        std::os::unix::fs::symlink(root.join("dart-kernels"), &link)?;
    }
    Ok(())
}

/// The manifest of the workspace with one member instead of all.
fn one_member(manifest: &str) -> Result<String> {
    let all = manifest
        .find("members = [")
        .context("the workspace has members")?;
    let end = manifest
        .find("[workspace.package]")
        .context("the workspace has a package table")?;
    let member = "members = [\"dart-kernels\"]\n\n";
    Ok([&manifest[..all], member, &manifest[end..]].concat())
}

/// Where cargo keeps the source of the crate.
fn registry_folder() -> Result<PathBuf> {
    let manifest = process::root().join("dart-kernels/Cargo.toml");
    let output = process::cargo()
        .args([
            "metadata",
            "--format-version",
            "1",
            "--features",
            "cuda",
            "--manifest-path",
        ])
        .arg(manifest)
        .output()
        .context("cannot start `cargo metadata`")?;
    if !output.status.success() {
        bail!(
            "`cargo metadata`: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let path = packages
        .filter(|package| package["name"] == CRATE)
        .find_map(|package| package["manifest_path"].as_str())
        .with_context(|| format!("{CRATE} is not among the dependencies"))?;
    let folder = Path::new(path).parent().unwrap_or(Path::new(path));
    Ok(folder.to_path_buf())
}

/// The crate without its kernels: same sources, a build script that names each kernel file's
/// module with empty text, and no build dependency.
fn make_stub(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.join("src"))?;
    let mut modules = String::new();
    for entry in fs::read_dir(from.join("src"))? {
        let path = entry?.path();
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .to_uppercase();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => {
                let name = path.file_name().unwrap_or_default();
                write(&to.join("src").join(name), &fs::read_to_string(&path)?)?;
            }
            Some("cu") => modules.push_str(
                &[
                    "#[allow(dead_code)] pub const ",
                    &stem,
                    ": &str = \\\"\\\";",
                ]
                .concat(),
            ),
            _ => {}
        }
    }
    let script = format!(
        "fn main() {{\n    let folder = std::env::var_os(\"OUT_DIR\").unwrap();\n    \
         let file = std::path::Path::new(&folder).join(\"ptx.rs\");\n    \
         std::fs::write(file, \"{modules}\").unwrap();\n}}\n"
    );
    write(&to.join("build.rs"), &script)?;
    let manifest = fs::read_to_string(from.join("Cargo.toml"))?;
    // A workspace of its own: the folder lies within ours.
    let manifest = format!("{}\n[workspace]\n", without_build_dependencies(&manifest));
    write(&to.join("Cargo.toml"), &manifest)
}

fn without_build_dependencies(manifest: &str) -> String {
    let mut kept = Vec::new();
    let mut keep = true;
    for line in manifest.lines() {
        if line.starts_with('[') {
            keep = !line.starts_with("[build-dependencies");
        }
        if keep {
            kept.push(line);
        }
    }
    kept.join("\n")
}

/// Leaves a file alone that is as it should be, so that cargo does not build anew.
fn write(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|present| present == text) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_is_left() {
        let manifest = "[workspace]\nresolver = \"3\"\nmembers = [\n    \"a\", # [x]\n]\n\
                        default-members = [\"a\"]\n\n[workspace.package]\nversion = \"1\"\n";
        let one = one_member(manifest).unwrap();
        assert_eq!(
            one,
            "[workspace]\nresolver = \"3\"\nmembers = [\"dart-kernels\"]\n\n\
             [workspace.package]\nversion = \"1\"\n"
        );
    }

    #[test]
    fn build_dependencies_are_left_out() {
        let manifest = "[package]\nname = \"a\"\n\n[build-dependencies.b]\nversion = \"1\"\n[lib]\npath = \"c\"";
        let kept = without_build_dependencies(manifest);
        assert_eq!(kept, "[package]\nname = \"a\"\n\n[lib]\npath = \"c\"");
    }
}
