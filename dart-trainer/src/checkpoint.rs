//! [`CheckpointDir`]: versions as directories, checksummed, replaced atomically.
//!
//! ```text
//! checkpoints/
//!   v000011/  weights.safetensors  …  manifest.json
//!   v000012/  …
//!   LATEST    "v000012"
//! ```
//!
//! A version is written into a temporary directory, every file and the directory are synced, the
//! directory is renamed, and only then `LATEST` is swapped. A crash at any point leaves the
//! version that `LATEST` names complete; a version that `LATEST` does not name yet never happened.
//!
//! Whoever keeps a pointer of its own, in a database, writes it between [`Draft::seal`] and
//! [`Sealed::publish`], and resumes by [`CheckpointDir::newest_valid_up_to`]: its pointer decides then,
//! and `LATEST` follows.

mod manifest;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use dart_core::{PolicyVersion, fault};

use self::manifest::{read_manifest, seal, verify};
use crate::error::{Result, TrainerError};

const LATEST: &str = "LATEST";

/// A checkpoint whose files are what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its version.
    pub version: PolicyVersion,
    /// Its directory.
    pub path: PathBuf,
    /// Why newer ones were passed over, naming the bad file; one line, already logged.
    pub warning: Option<String>,
}

/// A directory of checkpoints. One process writes to it at a time.
#[derive(Clone, Debug)]
pub struct CheckpointDir {
    root: PathBuf,
    keep: usize,
}

/// A version that is being written. Dropped without [`Self::commit`], it never was.
#[derive(Debug)]
pub struct Draft {
    dir: CheckpointDir,
    version: PolicyVersion,
    path: PathBuf,
}

impl Draft {
    /// The directory to put files into.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Seals the version and makes it the latest. Gives its directory.
    ///
    /// # Errors
    /// [`Storage`](dart_core::ErrorKind::Storage); the latest version is the one before, then.
    pub fn commit(self) -> dart_core::Result<PathBuf> {
        self.seal()?.publish()
    }

    /// Seals the version and puts it into its place, complete, but not the latest yet.
    ///
    /// # Errors
    /// [`Storage`](dart_core::ErrorKind::Storage); the latest version is the one before, then.
    pub fn seal(self) -> dart_core::Result<Sealed> {
        let path = self.dir.settle(self.version, &self.path)?;
        Ok(Sealed {
            dir: self.dir.clone(),
            version: self.version,
            path,
        })
    }
}

/// A version that is complete and in its place. It never happened if nobody publishes it.
#[derive(Debug)]
#[must_use = "a version that is not published never happened"]
pub struct Sealed {
    dir: CheckpointDir,
    version: PolicyVersion,
    path: PathBuf,
}

impl Sealed {
    /// Name of the version's directory.
    pub fn name(&self) -> String {
        directory_name(self.version)
    }

    /// The oldest version that will be kept once this one is published.
    ///
    /// # Errors
    /// [`Storage`](dart_core::ErrorKind::Storage) if the directory cannot be listed.
    pub fn oldest_kept(&self) -> dart_core::Result<PolicyVersion> {
        let mut current = self.dir.versions()?;
        current.retain(|version| *version <= self.version);
        let old = current.len().saturating_sub(self.dir.keep);
        Ok(current.get(old).copied().unwrap_or(self.version))
    }

    /// Makes the version the latest, and removes those that are kept no longer. Gives its directory.
    ///
    /// # Errors
    /// [`Storage`](dart_core::ErrorKind::Storage).
    pub fn publish(self) -> dart_core::Result<PathBuf> {
        let name = self.name();
        self.dir.swap_latest(&name)?;
        remove(&self.dir.root.join(format!(".old-{name}")))?;
        self.dir.retire(self.version)?;
        fault::point("checkpoint.retired");
        Ok(self.path)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a commit there is nothing; otherwise the next writer or opener tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl CheckpointDir {
    /// Opens or makes the directory, and removes what an interrupted writer left. The newest
    /// `keep` versions (at least 1) are kept when new ones are written; 2 or more leave something
    /// to fall back to.
    ///
    /// # Errors
    /// [`Storage`](dart_core::ErrorKind::Storage).
    pub fn open(root: impl Into<PathBuf>, keep: usize) -> dart_core::Result<Self> {
        let dir = Self {
            root: root.into(),
            keep: keep.max(1),
        };
        fs::create_dir_all(&dir.root).map_err(TrainerError::io("make", &dir.root))?;
        dir.clean()?;
        Ok(dir)
    }

    /// The directory of somebody who may be writing to it, to read from: changes nothing.
    pub fn look(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            keep: usize::MAX,
        }
    }

    /// Writes a version: `fill` puts its files (no directories) into the empty directory it is
    /// given. Gives the version's directory. Nothing has changed if it fails before its end.
    ///
    /// # Errors
    /// Those of `fill`; [`Storage`](dart_core::ErrorKind::Storage).
    pub fn write(
        &self,
        version: PolicyVersion,
        fill: impl FnOnce(&Path) -> dart_core::Result<()>,
    ) -> dart_core::Result<PathBuf> {
        let draft = self.begin(version)?;
        fill(draft.path())?;
        draft.commit()
    }

    /// The same for writers that have to wait: put the files into [`Draft::path`], then
    /// [`Draft::commit`].
    ///
    /// # Errors
    /// [`Storage`](dart_core::ErrorKind::Storage).
    pub fn begin(&self, version: PolicyVersion) -> dart_core::Result<Draft> {
        let name = format!(".tmp-{}", directory_name(version));
        let path = self.root.join(name);
        remove(&path)?;
        fs::create_dir(&path).map_err(TrainerError::io("make", &path))?;
        Ok(Draft {
            dir: self.clone(),
            version,
            path,
        })
    }

    /// Seals what lies in `temporary` and moves it to its place.
    fn settle(&self, version: PolicyVersion, temporary: &Path) -> Result<PathBuf> {
        fault::point("checkpoint.filled");
        seal(temporary, version)?;
        fault::point("checkpoint.manifest-written");
        let name = directory_name(version);
        let path = self.root.join(&name);
        let aside = self.root.join(format!(".old-{name}"));
        if path.exists() {
            // Left by a run that ended before LATEST named it, or written twice.
            remove(&aside)?;
            fs::rename(&path, &aside).map_err(TrainerError::io("rename", &path))?;
            fault::point("checkpoint.set-aside");
        }
        fs::rename(temporary, &path).map_err(TrainerError::io("rename", temporary))?;
        sync(&self.root)?;
        fault::point("checkpoint.renamed");
        Ok(path)
    }

    /// The newest version whose files are all as they were written, or `None` if there is none:
    /// the one that `LATEST` names, or the next older valid one, with one warning.
    ///
    /// # Errors
    /// [`Storage`](dart_core::ErrorKind::Storage) if the directory cannot be listed.
    pub fn newest_valid(&self) -> dart_core::Result<Option<Checkpoint>> {
        match self.latest() {
            Ok(latest) => self.newest(latest, Vec::new()),
            Err(error) => self.newest(None, vec![error.to_string()]),
        }
    }

    /// The same, where not `LATEST` but somebody's own pointer says which version is the latest.
    ///
    /// # Errors
    /// As `newest_valid`.
    pub fn newest_valid_up_to(
        &self,
        latest: PolicyVersion,
    ) -> dart_core::Result<Option<Checkpoint>> {
        let missing = !self.path(latest).exists();
        let problem = missing.then(|| format!("{} is gone", self.path(latest).display()));
        self.newest(Some(latest), problem.into_iter().collect())
    }

    fn newest(
        &self,
        limit: Option<PolicyVersion>,
        mut problems: Vec<String>,
    ) -> dart_core::Result<Option<Checkpoint>> {
        let mut found = None;
        for version in self.versions()?.into_iter().rev() {
            if limit.is_some_and(|limit| version > limit) {
                continue;
            }
            match verify(&self.path(version), version) {
                Ok(()) => {
                    found = Some(version);
                    break;
                }
                Err(error) => problems.push(error.to_string()),
            }
        }
        let warning = (!problems.is_empty()).then(|| problems.join("; "));
        if let Some(warning) = &warning {
            tracing::warn!(chosen = ?found.map(|v| v.0), "damaged checkpoint: {warning}");
        }
        Ok(found.map(|version| Checkpoint {
            version,
            path: self.path(version),
            warning,
        }))
    }

    /// Whether anything was ever written here, valid or not.
    pub fn is_empty(&self) -> dart_core::Result<bool> {
        Ok(self.versions()?.is_empty())
    }

    /// Checks one version directory, for example one that a user names.
    ///
    /// # Errors
    /// [`Storage`](dart_core::ErrorKind::Storage), naming the file that is not what was written.
    pub fn check(path: &Path) -> dart_core::Result<Checkpoint> {
        let version = read_manifest(path)?.version;
        verify(path, version)?;
        Ok(Checkpoint {
            version,
            path: path.to_owned(),
            warning: None,
        })
    }

    /// Removes what an interrupted writer left. A version that was set aside for its successor,
    /// which never came, goes back to its place.
    fn clean(&self) -> Result<()> {
        for name in self.names()? {
            let path = self.root.join(&name);
            match name.strip_prefix(".old-").map(|name| self.root.join(name)) {
                Some(place) if !place.exists() => {
                    fs::rename(&path, &place).map_err(TrainerError::io("rename", &path))?;
                }
                Some(_) => remove(&path)?,
                None if name.starts_with(".tmp-") => remove(&path)?,
                None => {}
            }
        }
        Ok(())
    }

    fn path(&self, version: PolicyVersion) -> PathBuf {
        self.root.join(directory_name(version))
    }

    /// What `LATEST` names; `None` before the first version.
    fn latest(&self) -> Result<Option<PolicyVersion>> {
        let path = self.root.join(LATEST);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(TrainerError::io("read", &path)(error)),
        };
        match version_of(text.trim()) {
            Some(version) if self.path(version).exists() => Ok(Some(version)),
            _ => Err(TrainerError::corrupt(
                &path,
                "names no version that is here",
            )),
        }
    }

    fn swap_latest(&self, name: &str) -> Result<()> {
        let temporary = self.root.join(".tmp-LATEST");
        let path = self.root.join(LATEST);
        fs::write(&temporary, name).map_err(TrainerError::io("write", &temporary))?;
        sync(&temporary)?;
        fault::point("latest.written");
        fs::rename(&temporary, &path).map_err(TrainerError::io("rename", &temporary))?;
        sync(&self.root)?;
        fault::point("latest.swapped");
        Ok(())
    }

    /// Removes all but the newest versions up to `latest`. Newer ones belong to a lineage that was
    /// left when training went back to an older checkpoint.
    fn retire(&self, latest: PolicyVersion) -> Result<()> {
        let versions = self.versions()?;
        let (current, left): (Vec<_>, Vec<_>) = versions.into_iter().partition(|v| *v <= latest);
        let old = current.len().saturating_sub(self.keep);
        for version in current.into_iter().take(old).chain(left) {
            // Renamed first: a crash in the middle must not leave half a version under its name.
            let path = self.path(version);
            let gone = self
                .root
                .join(format!(".tmp-gone-{}", directory_name(version)));
            remove(&gone)?;
            fs::rename(&path, &gone).map_err(TrainerError::io("rename", &path))?;
            fault::point("checkpoint.retiring");
            remove(&gone)?;
        }
        Ok(())
    }

    /// All versions here, oldest first.
    fn versions(&self) -> Result<Vec<PolicyVersion>> {
        let names = self.names()?;
        let mut versions: Vec<_> = names.iter().filter_map(|name| version_of(name)).collect();
        versions.sort_unstable();
        Ok(versions)
    }

    fn names(&self) -> Result<Vec<String>> {
        let listing = fs::read_dir(&self.root).map_err(TrainerError::io("list", &self.root))?;
        let names = listing.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.collect())
    }
}

fn directory_name(version: PolicyVersion) -> String {
    format!("v{:06}", version.0)
}

fn version_of(name: &str) -> Option<PolicyVersion> {
    let version = PolicyVersion(name.strip_prefix('v')?.parse().ok()?);
    (directory_name(version) == name).then_some(version)
}

fn sync(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(TrainerError::io("sync", path))
}

/// Removes a file or directory that may not be there.
fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TrainerError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}
