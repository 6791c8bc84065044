//! Room on the disk: how much is free, what a folder takes.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

use crate::process;

const GIB: f64 = (1u64 << 30) as f64;

/// Bytes as GiB with one digit, for a person.
pub(crate) fn shown(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / GIB)
}

/// Free bytes of the file system that holds `folder`, as `df` says.
pub(crate) fn free(folder: &Path) -> Result<u64> {
    let folder = folder.to_string_lossy();
    let table = process::output("df", &["-Pk", &*folder]);
    let table = table.with_context(|| format!("`df -Pk {folder}` failed"))?;
    available(&table).with_context(|| format!("`df -Pk {folder}` says: {table}"))
}

/// The fourth column of the second line, in bytes.
fn available(table: &str) -> Option<u64> {
    let kilobytes: u64 = table
        .lines()
        .nth(1)?
        .split_whitespace()
        .nth(3)?
        .parse()
        .ok()?;
    Some(kilobytes * 1024)
}

/// Bytes of all files in `folder`; what goes away meanwhile counts as nothing.
pub(crate) fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size(&entry.path()),
        Ok(_) => entry.metadata().map_or(0, |metadata| metadata.len()),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Refuses to begin what would end for lack of room.
///
/// `whole` is what `folder` grows to in all; what it holds already need not be free again, except
/// for a quarter: not everything that is there is used again.
pub(crate) fn require(folder: &Path, whole: u64) -> Result<()> {
    let (free, held) = (free(folder)?, size(folder));
    let needed = still_needed(whole, held);
    ensure!(
        free >= needed,
        "{} of room are needed where {} is, and {} are free: make room, or choose another disk by \
         CARGO_TARGET_DIR",
        shown(needed),
        folder.display(),
        shown(free),
    );
    Ok(())
}

fn still_needed(whole: u64, held: u64) -> u64 {
    whole.saturating_sub(held).max(whole / 4)
}

/// Removes what one step alone needed.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_df_says_is_read() {
        let table = "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                     /dev/a 1000 400 600 40% /a b";
        assert_eq!(available(table), Some(600 * 1024));
        assert_eq!(available("df: nothing"), None);
        assert!(free(&process::root()).unwrap() > 0);
    }

    #[test]
    fn what_is_there_need_not_be_free_again() {
        assert_eq!(still_needed(100, 0), 100);
        assert_eq!(still_needed(100, 40), 60);
        assert_eq!(still_needed(100, 400), 25);
    }

    #[test]
    fn too_little_room_is_one_clear_error() {
        let error = require(&process::root().join("xtask"), u64::MAX).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("xtask") && said.contains("CARGO_TARGET_DIR"),
            "{said}"
        );
        assert!(size(&process::root().join("xtask/src")) > 10_000);
    }
}
