//! One process at a time writes into a run folder.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
};

use super::blobs::io;
use crate::error::{CurationError, Result};

/// A folder that nobody else writes to while this lives. The process's end lets it go, also a crash.
#[derive(Debug)]
pub struct FolderLock(#[expect(dead_code, reason = "the lock is held by the open file")] File);

impl FolderLock {
    /// Locks the folder `dir`, which must exist, by its file `lock`.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if another process holds it, which is named;
    /// [`Storage`](dart_core::ErrorKind::Storage) if the file cannot be made.
    pub fn take(dir: &Path) -> dart_core::Result<Self> {
        let taken = lock(dir).map_err(|error| error.during("lock the folder"))?;
        Ok(Self(taken))
    }
}

/// Locks the folder `dir` until the returned file is dropped, also by a crash.
pub(super) fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(io("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // Whoever holds the lock may be about to write its number.
            let read = file.take(20).read_to_string(&mut pid);
            let known = read.is_ok() && !pid.trim().is_empty();
            return Err(CurationError::Locked {
                dir: dir.to_owned(),
                pid: if known {
                    pid.trim().to_owned()
                } else {
                    "?".to_owned()
                },
            });
        }
        Err(TryLockError::Error(source)) => return Err(io("lock", &path)(source)),
    }
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(io("write", &path))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_was_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        let error = lock(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(first);
        lock(dir.path()).unwrap();
    }
}
