//! The folder of a run: what it was, what happened, what came out.
//!
//! ```text
//! RUN/config.toml      the resolved config
//!     metrics.jsonl    one line for each learner step
//!     events.jsonl     one line for each event of the ring, with its time on the run's clock
//!     checkpoints/     versions, newest valid one is resumed
//!     store/           trajectories (SQLite) and screenshots (content-addressed)
//!     summary.json     the result
//!     tasks.json       of `eval`: the result task by task, and every episode
//!     lock             held by the process that writes here
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use dart_curation::store::FolderLock;
use serde::Serialize;

use crate::fault::Fault;

/// Default folders of one second that are tried.
const NAMES: u32 = 100;

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Held by who writes.
    _lock: Option<Arc<FolderLock>>,
}

impl RunDir {
    /// Makes the folder of a new run and locks it; `name` is used when no folder is given. Nothing is
    /// written into a folder that another process holds.
    ///
    /// # Errors
    /// A [`Fault`] if it already holds a run, or cannot be made;
    /// [`Config`](dart_core::ErrorKind::Config) if another process holds it.
    pub fn create(given: Option<&Path>, name: &str) -> Result<Self> {
        if let Some(path) = given {
            return Self::make(path);
        }
        let path = default_path(name);
        let mut made = Self::make(&path);
        for number in 2..NAMES {
            if made.is_ok() || !path.exists() {
                break;
            }
            // Another run of that name began in the same second.
            made = Self::make(&path.with_file_name(format!("{}-{number}", file_name(&path))));
        }
        made
    }

    fn make(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(|error| {
            Fault::new(format!(
                "cannot make the run folder {}: {error}",
                path.display()
            ))
            .remedy("choose a --run-dir that can be written")
        })?;
        let run = Self {
            path: path.to_path_buf(),
            _lock: None,
        };
        // A run that was here before is a clearer reason than one that is going on.
        run.is_free()?;
        let run = run.locked()?;
        run.is_free()?;
        Ok(run)
    }

    fn is_free(&self) -> Result<()> {
        if !self.config().exists() {
            return Ok(());
        }
        let message = format!("{} already holds a run", self.path.display());
        let fault = Fault::new(message);
        Err(fault
            .remedy("choose another --run-dir, or add --resume to go on with it")
            .into())
    }

    /// The same folder, to write to: nobody else does while this lives.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if another process holds it, which is named.
    pub fn locked(self) -> Result<Self> {
        let lock = FolderLock::take(&self.path)?;
        Ok(Self {
            _lock: Some(Arc::new(lock)),
            ..self
        })
    }

    /// Opens the folder of an earlier run.
    ///
    /// # Errors
    /// A [`Fault`] if there is none.
    pub fn open(path: &Path) -> Result<Self> {
        if path.join("config.toml").is_file() {
            return Ok(Self {
                path: path.to_path_buf(),
                _lock: None,
            });
        }
        Err(
            Fault::new(format!("{} holds no run (no config.toml)", path.display()))
                .remedy("name the folder that `cargo xtask train` printed")
                .into(),
        )
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The resolved config.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// The checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// The trajectory store.
    pub fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// Writes a whole file, or leaves the old one.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        let temporary = self.path.join(format!(".{name}.tmp"));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            // The new name is durable with the folder that holds it.
            File::open(&self.path)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// A file of JSON lines that is appended to. A last line that a crash cut stays one by itself.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn lines(&self, name: &str) -> Result<JsonLines> {
        let path = self.path.join(name);
        let open = || -> std::io::Result<(File, bool)> {
            let mut options = OpenOptions::new();
            let mut file = options.create(true).append(true).read(true).open(&path)?;
            let mut last = [b'\n'];
            if file.metadata()?.len() > 0 {
                file.seek(SeekFrom::End(-1))?;
                file.read_exact(&mut last)?;
            }
            Ok((file, last != [b'\n']))
        };
        let (file, cut) = open().with_context(|| format!("cannot open {}", path.display()))?;
        Ok(JsonLines {
            path,
            file,
            cut,
            lost: 0,
        })
    }
}

fn default_path(name: &str) -> PathBuf {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    Path::new("runs").join(format!("{name}-{now}"))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A file of JSON lines. It tells how a run went and is not worth the run: a line that the disk does
/// not take is lost, which is said once, and the run goes on.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: File,
    /// The last line has no end.
    cut: bool,
    /// Lines lost since one was written.
    lost: u64,
}

impl JsonLines {
    /// Appends one line, if the disk takes it.
    pub fn push(&mut self, value: &impl Serialize) {
        match self.write(value) {
            Ok(()) if self.lost > 0 => {
                tracing::warn!(file = %self.path.display(), lost = self.lost, "lines are written again");
                self.lost = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if self.lost == 0 {
                    let file = self.path.display();
                    tracing::warn!(%file, %error, "a line was not written; the run goes on without");
                }
                self.lost += 1;
            }
        }
    }

    fn write(&mut self, value: &impl Serialize) -> std::io::Result<()> {
        let mut line = Vec::new();
        if self.cut {
            line.push(b'\n');
        }
        serde_json::to_writer(&mut line, value)?;
        line.push(b'\n');
        // Until all of it is there, any part of it may be.
        self.cut = true;
        self.file.write_all(&line)?;
        self.cut = false;
        Ok(())
    }

    /// How many lines the disk has not taken since the last that it took.
    pub fn lost(&self) -> u64 {
        self.lost
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
    fn whoever_is_second_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let first = RunDir::create(Some(folder.path()), "x").unwrap();
        let second = RunDir::create(Some(folder.path()), "x").unwrap_err();
        let pid = std::process::id().to_string();
        assert!(second.to_string().contains(&pid), "{second}");
        let names = fs::read_dir(folder.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["lock"]);
        drop(first);
        RunDir::create(Some(folder.path()), "x").unwrap();
    }

    #[test]
    fn a_full_disk_costs_lines_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(Some(folder.path()), "x").unwrap();
        let path = folder.path().join("e");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let mut lines = run.lines("e").unwrap();
        lines.push(&1);
        lines.push(&2);
        assert_eq!(lines.lost(), 2);
        // Room again: what was begun before stays a line by itself.
        fs::remove_file(&path).unwrap();
        lines.file = run.lines("e").unwrap().file;
        lines.push(&3);
        lines.push(&4);
        assert_eq!(lines.lost(), 0);
        assert_eq!(fs::read_to_string(path).unwrap(), "\n3\n4\n");
    }

    #[test]
    fn a_line_that_a_crash_cut_harms_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(Some(folder.path()), "x").unwrap();
        run.lines("e").unwrap().push(&1);
        let path = folder.path().join("e");
        fs::write(&path, "1\n{\"cut").unwrap();
        run.lines("e").unwrap().push(&2);
        run.lines("e").unwrap().push(&3);
        assert_eq!(fs::read_to_string(path).unwrap(), "1\n{\"cut\n2\n3\n");
    }
}
