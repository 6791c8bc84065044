//! The folder of a run: what it was, what happened, what came out.
//!
//! ```text
//! RUN/config.toml      the resolved config
//!     metrics.jsonl    one line for each learner step
//!     events.jsonl     one line for each event of the ring, with its time on the run's clock
//!     checkpoints/     versions, newest valid one is resumed
//!     store/           trajectories (SQLite) and screenshots (content-addressed)
//!     summary.json     the result
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io::{BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::fault::Fault;

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// Makes the folder of a new run; `name` is used when no folder is given.
    ///
    /// # Errors
    /// A [`Fault`] if it already holds a run, or cannot be made.
    pub fn create(given: Option<&Path>, name: &str) -> Result<Self> {
        let path = given.map_or_else(|| default_path(name), Path::to_path_buf);
        if path.join("config.toml").exists() {
            return Err(
                Fault::new(format!("{} already holds a run", path.display()))
                    .remedy("choose another --run-dir, or add --resume to go on with it")
                    .into(),
            );
        }
        fs::create_dir_all(&path).map_err(|error| {
            Fault::new(format!(
                "cannot make the run folder {}: {error}",
                path.display()
            ))
            .remedy("choose a --run-dir that can be written")
        })?;
        Ok(Self(path))
    }

    /// Opens the folder of an earlier run.
    ///
    /// # Errors
    /// A [`Fault`] if there is none.
    pub fn open(path: &Path) -> Result<Self> {
        if path.join("config.toml").is_file() {
            return Ok(Self(path.to_path_buf()));
        }
        Err(
            Fault::new(format!("{} holds no run (no config.toml)", path.display()))
                .remedy("name the folder that `cargo xtask train` printed")
                .into(),
        )
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The resolved config.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// The checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.0.join("checkpoints")
    }

    /// The trajectory store.
    pub fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// Writes a whole file, or leaves the old one.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.0.join(name);
        let temporary = self.0.join(format!(".{name}.tmp"));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// A file of JSON lines that is appended to. A last line that a crash cut stays one by itself.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn lines(&self, name: &str) -> Result<JsonLines> {
        let path = self.0.join(name);
        let open = || -> std::io::Result<BufWriter<File>> {
            let mut options = OpenOptions::new();
            let mut file = options.create(true).append(true).read(true).open(&path)?;
            let mut last = [b'\n'];
            if file.metadata()?.len() > 0 {
                file.seek(SeekFrom::End(-1))?;
                file.read_exact(&mut last)?;
            }
            if last != [b'\n'] {
                file.write_all(b"\n")?;
            }
            Ok(BufWriter::new(file))
        };
        let file = open().with_context(|| format!("cannot open {}", path.display()))?;
        Ok(JsonLines { path, file })
    }
}

fn default_path(name: &str) -> PathBuf {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    Path::new("runs").join(format!("{name}-{now}"))
}

/// A file of JSON lines.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: BufWriter<File>,
}

impl JsonLines {
    /// Appends one line.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn push(&mut self, value: &impl Serialize) -> Result<()> {
        let mut write = || -> std::io::Result<()> {
            serde_json::to_writer(&mut self.file, value)?;
            self.file.write_all(b"\n")?;
            self.file.flush()
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_folder_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let run = RunDir::create(Some(&path), "x").unwrap();
        run.write("config.toml", b"seed = 1\n").unwrap();
        let again = RunDir::create(Some(&path), "x").unwrap_err().to_string();
        assert!(again.contains("--resume"), "{again}");
        assert!(RunDir::open(&path).is_ok());
        assert!(RunDir::open(folder.path()).is_err());
    }

    #[test]
    fn a_line_that_a_crash_cut_harms_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(Some(folder.path()), "x").unwrap();
        run.lines("e").unwrap().push(&1).unwrap();
        let path = folder.path().join("e");
        fs::write(&path, "1\n{\"cut").unwrap();
        run.lines("e").unwrap().push(&2).unwrap();
        run.lines("e").unwrap().push(&3).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "1\n{\"cut\n2\n3\n");
    }
}
