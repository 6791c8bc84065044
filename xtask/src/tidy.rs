//! `tidy`: what no compiler checks: file sizes, `forbid(unsafe_code)`, notes to self.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::process;

/// Longest source file, in lines.
const MAX_LINES: usize = 500;

/// Crates that may contain `unsafe`: kernels only.
const MAY_BE_UNSAFE: &[&str] = &["dart-kernels"];

pub(crate) fn run() -> Result<()> {
    let root = process::root();
    let mut faults = Vec::new();
    for crate_dir in crates(&root)? {
        let name = crate_dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for file in rust_files(&crate_dir) {
            let text = std::fs::read_to_string(&file)?;
            let shown = file
                .strip_prefix(&root)
                .unwrap_or(&file)
                .display()
                .to_string();
            faults.extend(faults_of(&shown, &text));
        }
        let entry = ["src/lib.rs", "src/main.rs"].map(|entry| crate_dir.join(entry));
        let text = entry
            .iter()
            .find_map(|entry| std::fs::read_to_string(entry).ok());
        let forbids = text.is_some_and(|text| text.contains("#![forbid(unsafe_code)]"));
        if !forbids && !MAY_BE_UNSAFE.contains(&name.as_str()) {
            faults.push(format!("{name} does not forbid unsafe code"));
        }
    }
    if faults.is_empty() {
        println!("tidy: nothing to say");
        return Ok(());
    }
    bail!("untidy:\n  {}", faults.join("\n  "))
}

fn faults_of(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        faults.push(format!(
            "{name} has {lines} lines, more than {MAX_LINES}: is it one idea?"
        ));
    }
    // Spelt apart, so that this file does not accuse itself.
    for note in [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ] {
        if text.contains(note) {
            faults.push(format!("{name} holds a note to self: {note}"));
        }
    }
    faults
}

/// Folders of the workspace that hold a crate.
fn crates(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(root)?
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    let mut crates: Vec<_> = entries
        .filter(|path| path.join("Cargo.toml").is_file())
        .collect();
    crates.sort();
    Ok(crates)
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_and_notes_are_found() {
        assert!(faults_of("a.rs", "fn main() {}\n").is_empty());
        assert_eq!(faults_of("a.rs", &"\n".repeat(501)).len(), 1);
        assert_eq!(faults_of("a.rs", concat!("// TO", "DO later")).len(), 1);
    }
}
