//! Screenshots, named by their content.
//!
//! The raw RGB bytes are compressed by zstd at level 1; their name is their BLAKE3. Small ones go
//! into the database with the rows that refer to them: making a file costs a millisecond, more than
//! all the rest of a small trajectory. Large ones become files, written under another name and
//! renamed before any row refers to them, so a crash leaves at worst a file that nobody refers to.
//! What is read is checked against the name.

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

use dart_core::{Frame, Size, fault};

use crate::error::{CurationError, Result};

/// BLAKE3 of the raw RGB bytes.
pub(super) type FrameHash = [u8; 32];

/// Hashes remembered as stored: 32 bytes each, so some 10 MB.
const KNOWN: usize = 1 << 17;

/// A screenshot that is stored, or will be with its row.
#[derive(Debug)]
pub(super) struct StoredImage {
    pub(super) hash: FrameHash,
    /// To be written into the database; `None` if it is stored already.
    pub(super) packed: Option<Vec<u8>>,
}

/// A folder of screenshots. Blocking: to be called from a thread that may wait.
#[derive(Debug)]
pub(super) struct Blobs {
    dir: PathBuf,
    /// Bytes up to which a packed image is no file.
    inline: usize,
    sync: bool,
    known: Mutex<BTreeSet<FrameHash>>,
    next: AtomicU64,
}

impl Blobs {
    /// The folder `dir` of somebody else, to read from.
    pub(super) fn look(dir: PathBuf) -> Self {
        Self {
            dir,
            inline: 0,
            sync: false,
            known: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    /// Opens the folder `dir`, creates it if needed and clears away what a crash left half written.
    /// With `sync` every file is on the disk itself before `store` returns.
    pub(super) fn open(dir: PathBuf, inline: usize, sync: bool) -> Result<Self> {
        let unfinished = dir.join("unfinished");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(io("remove", &unfinished))?;
        }
        fs::create_dir_all(&unfinished).map_err(io("create", &unfinished))?;
        Ok(Self {
            dir,
            inline,
            sync,
            known: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// Keeps the pixels of a frame, or packs them for the database. A file is written once.
    pub(super) fn store(&self, frame: &Frame) -> Result<StoredImage> {
        let hash = *blake3::hash(frame.rgb()).as_bytes();
        let stored = |packed| Ok(StoredImage { hash, packed });
        if self.is_known(&hash) {
            return stored(None);
        }
        let path = self.path(&hash);
        let packed = zstd::bulk::compress(frame.rgb(), 1).map_err(io("compress", &path))?;
        if packed.len() <= self.inline {
            return stored(Some(packed));
        }
        // A file of an earlier process may be torn: it counts only if it can be read.
        if !path.exists() || self.load(&hash, frame.size(), None).is_err() {
            self.write(&path, &packed)?;
        }
        self.remember(hash);
        stored(None)
    }

    /// Says that an image is in the database for good.
    pub(super) fn remember(&self, hash: FrameHash) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(hash);
    }

    /// Forgets an image that no row refers to any more, and deletes its file, if it has one.
    pub(super) fn remove(&self, hash: &FrameHash) -> Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(hash);
        drop(known);
        let path = self.path(hash);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(io("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// The frame with these pixels: from the database, if it has them there, or else from a file.
    pub(super) fn load(
        &self,
        hash: &FrameHash,
        size: Size,
        packed: Option<&[u8]>,
    ) -> Result<Frame> {
        let path = self.path(hash);
        let corrupt = || CurationError::Corrupt { path: path.clone() };
        let area = Some(size.area()).filter(|area| *area <= Frame::MAX_PIXELS);
        let raw = area.ok_or_else(corrupt)? * 3;
        let file;
        let packed = if let Some(packed) = packed {
            packed
        } else {
            let length = fs::metadata(&path).map_err(io("read", &path))?.len();
            if length > zstd::zstd_safe::compress_bound(raw) as u64 {
                return Err(corrupt());
            }
            file = fs::read(&path).map_err(io("read", &path))?;
            &file
        };
        let rgb = zstd::bulk::decompress(packed, raw).map_err(|_| corrupt())?;
        if blake3::hash(&rgb).as_bytes() != hash {
            return Err(corrupt());
        }
        Frame::new(size, rgb).map_err(|_| corrupt())
    }

    fn write(&self, path: &Path, packed: &[u8]) -> Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.dir.join("unfinished").join(number.to_string());
        let shelf = path.parent().unwrap_or(&self.dir);
        fs::create_dir_all(shelf).map_err(io("create", shelf))?;
        let mut file = File::create(&unfinished).map_err(io("create", &unfinished))?;
        file.write_all(packed).map_err(io("write", &unfinished))?;
        if self.sync {
            file.sync_data().map_err(io("sync", &unfinished))?;
        }
        fault::point("blob.written");
        fs::rename(&unfinished, path).map_err(io("rename to", path))?;
        if self.sync {
            let synced = File::open(shelf).and_then(|shelf| shelf.sync_all());
            synced.map_err(io("sync", shelf))?;
        }
        Ok(())
    }

    fn path(&self, hash: &FrameHash) -> PathBuf {
        let name = blake3::Hash::from_bytes(*hash).to_hex();
        self.dir.join(&name[..2]).join(&name[2..])
    }

    fn is_known(&self, hash: &FrameHash) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(hash)
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
        let blobs = Blobs::open(dir.path().to_owned(), 0, true).unwrap();
        let a = blobs.store(&frame(1)).unwrap().hash;
        assert_eq!(blobs.store(&frame(1)).unwrap().hash, a);
        let b = blobs.store(&frame(2)).unwrap().hash;
        assert_eq!(files(dir.path()), 2);
        assert_eq!(blobs.load(&b, Size::new(4, 2), None).unwrap(), frame(2));
        // Another shape of the same bytes is the same file.
        assert_eq!(
            blobs.load(&a, Size::new(2, 4), None).unwrap().size(),
            Size::new(2, 4)
        );
    }

    #[test]
    fn damage_is_found_and_repaired_by_the_next_store() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path().to_owned(), 0, false).unwrap();
        let hash = blobs.store(&frame(1)).unwrap().hash;
        let path = blobs.path(&hash);
        let other = zstd::bulk::compress(&[9; 24], 1).unwrap();
        for damage in [&b""[..], b"not zstd", &other] {
            fs::write(&path, damage).unwrap();
            let error = blobs.load(&hash, Size::new(4, 2), None).unwrap_err();
            assert!(matches!(error, CurationError::Corrupt { .. }), "{error}");
        }
        let reopened = Blobs::open(dir.path().to_owned(), 0, false).unwrap();
        reopened.store(&frame(1)).unwrap();
        assert_eq!(
            reopened.load(&hash, Size::new(4, 2), None).unwrap(),
            frame(1)
        );
    }

    #[test]
    fn small_images_are_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path().to_owned(), 1024, false).unwrap();
        let image = blobs.store(&frame(1)).unwrap();
        let again = blobs.store(&frame(1)).unwrap();
        assert!(again.packed.is_some(), "not known before its row is there");
        blobs.remember(image.hash);
        assert!(blobs.store(&frame(1)).unwrap().packed.is_none());
        assert_eq!(files(dir.path()), 0);
        let loaded = blobs.load(&image.hash, Size::new(4, 2), image.packed.as_deref());
        assert_eq!(loaded.unwrap(), frame(1));
        let other = zstd::bulk::compress(&[9; 24], 1).unwrap();
        let damaged = blobs.load(&image.hash, Size::new(4, 2), Some(&other));
        assert!(matches!(damaged, Err(CurationError::Corrupt { .. })));
    }

    #[test]
    fn what_a_crash_left_is_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        Blobs::open(dir.path().to_owned(), 0, false).unwrap();
        fs::write(dir.path().join("unfinished/7"), b"half").unwrap();
        let blobs = Blobs::open(dir.path().to_owned(), 0, false).unwrap();
        assert_eq!(files(dir.path()), 0);
        blobs.store(&frame(3)).unwrap();
        assert_eq!(files(dir.path()), 1);
    }
}
