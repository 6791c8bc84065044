//! Screenshots as files, named by their content.
//!
//! A file holds the raw RGB bytes, compressed by zstd at level 1; its name is their BLAKE3. It is
//! written under another name and renamed, before any row refers to it, so a crash leaves at worst
//! a file that nobody refers to. What is read is checked against the name.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use dart_core::{Frame, Size};

use crate::error::{CurationError, Result};

/// BLAKE3 of the raw RGB bytes.
pub(super) type FrameHash = [u8; 32];

/// Hashes remembered as stored: 32 bytes each, so some 10 MB.
const KNOWN: usize = 1 << 17;

/// A folder of screenshots. Blocking: to be called from a thread that may wait.
#[derive(Debug)]
pub(super) struct Blobs {
    dir: PathBuf,
    sync: bool,
    known: Mutex<BTreeSet<FrameHash>>,
    next: AtomicU64,
}

impl Blobs {
    /// Opens the folder `dir`, creates it if needed and clears away what a crash left half written.
    /// With `sync` every file is on the disk itself before `store` returns.
    pub(super) fn open(dir: PathBuf, sync: bool) -> Result<Self> {
        let unfinished = dir.join("unfinished");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(io("remove", &unfinished))?;
        }
        fs::create_dir_all(&unfinished).map_err(io("create", &unfinished))?;
        for first in 0..=u8::MAX {
            let shelf = dir.join(format!("{first:02x}"));
            fs::create_dir_all(&shelf).map_err(io("create", &shelf))?;
        }
        Ok(Self {
            dir,
            sync,
            known: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// Keeps the pixels of a frame and returns their name. The same pixels are written once.
    pub(super) fn store(&self, frame: &Frame) -> Result<FrameHash> {
        let hash = *blake3::hash(frame.rgb()).as_bytes();
        if self.is_known(&hash) {
            return Ok(hash);
        }
        let path = self.path(&hash);
        // A file of an earlier process may be torn: it counts only if it can be read.
        if !path.exists() || self.load(&hash, frame.size()).is_err() {
            self.write(&path, frame.rgb())?;
        }
        self.remember(hash);
        Ok(hash)
    }

    /// The frame with these pixels.
    pub(super) fn load(&self, hash: &FrameHash, size: Size) -> Result<Frame> {
        let path = self.path(hash);
        let corrupt = || CurationError::Corrupt { path: path.clone() };
        let area = Some(size.area()).filter(|area| *area <= Frame::MAX_PIXELS);
        let raw = area.ok_or_else(corrupt)? * 3;
        let length = fs::metadata(&path).map_err(io("read", &path))?.len();
        if length > zstd::zstd_safe::compress_bound(raw) as u64 {
            return Err(corrupt());
        }
        let packed = fs::read(&path).map_err(io("read", &path))?;
        let rgb = zstd::bulk::decompress(&packed, raw).map_err(|_| corrupt())?;
        if blake3::hash(&rgb).as_bytes() != hash {
            return Err(corrupt());
        }
        Frame::new(size, rgb).map_err(|_| corrupt())
    }

    fn write(&self, path: &Path, rgb: &[u8]) -> Result<()> {
        let packed = zstd::bulk::compress(rgb, 1).map_err(io("compress", path))?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.dir.join("unfinished").join(number.to_string());
        let mut file = File::create(&unfinished).map_err(io("create", &unfinished))?;
        file.write_all(&packed).map_err(io("write", &unfinished))?;
        if self.sync {
            file.sync_data().map_err(io("sync", &unfinished))?;
        }
        fs::rename(&unfinished, path).map_err(io("rename to", path))?;
        match path.parent() {
            Some(shelf) if self.sync => File::open(shelf)
                .and_then(|shelf| shelf.sync_all())
                .map_err(io("sync", shelf)),
            _ => Ok(()),
        }
    }

    fn path(&self, hash: &FrameHash) -> PathBuf {
        let name = blake3::Hash::from_bytes(*hash).to_hex();
        self.dir.join(&name[..2]).join(&name[2..])
    }

    fn is_known(&self, hash: &FrameHash) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(hash)
    }

    fn remember(&self, hash: FrameHash) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(hash);
    }
}

/// Makes an I/O error say what was done to which file.
pub(super) fn io(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> CurationError {
    let path = path.to_owned();
    move |source| CurationError::Io {
        operation,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(shade: u8) -> Frame {
        Frame::new(Size::new(4, 2), vec![shade; 24]).unwrap()
    }

    fn files(dir: &Path) -> usize {
        fs::read_dir(dir)
            .unwrap()
            .flatten()
            .map(|shelf| fs::read_dir(shelf.path()).unwrap().count())
            .sum()
    }

    #[test]
    fn the_same_pixels_are_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path().to_owned(), true).unwrap();
        let a = blobs.store(&frame(1)).unwrap();
        assert_eq!(blobs.store(&frame(1)).unwrap(), a);
        let b = blobs.store(&frame(2)).unwrap();
        assert_eq!(files(dir.path()), 2);
        assert_eq!(blobs.load(&b, Size::new(4, 2)).unwrap(), frame(2));
        // Another shape of the same bytes is the same file.
        assert_eq!(
            blobs.load(&a, Size::new(2, 4)).unwrap().size(),
            Size::new(2, 4)
        );
    }

    #[test]
    fn damage_is_found_and_repaired_by_the_next_store() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path().to_owned(), false).unwrap();
        let hash = blobs.store(&frame(1)).unwrap();
        let path = blobs.path(&hash);
        let other = zstd::bulk::compress(&[9; 24], 1).unwrap();
        for damage in [&b""[..], b"not zstd", &other] {
            fs::write(&path, damage).unwrap();
            let error = blobs.load(&hash, Size::new(4, 2)).unwrap_err();
            assert!(matches!(error, CurationError::Corrupt { .. }), "{error}");
        }
        let reopened = Blobs::open(dir.path().to_owned(), false).unwrap();
        reopened.store(&frame(1)).unwrap();
        assert_eq!(reopened.load(&hash, Size::new(4, 2)).unwrap(), frame(1));
    }

    #[test]
    fn what_a_crash_left_is_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        Blobs::open(dir.path().to_owned(), false).unwrap();
        fs::write(dir.path().join("unfinished/7"), b"half").unwrap();
        let blobs = Blobs::open(dir.path().to_owned(), false).unwrap();
        assert_eq!(files(dir.path()), 0);
        blobs.store(&frame(3)).unwrap();
        assert_eq!(files(dir.path()), 1);
    }
}
