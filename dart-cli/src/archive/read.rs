//! The trajectories of an export, one after another.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use dart_core::Trajectory;

use super::format::{Line, MAX_LINE};

/// Reads a folder that `export` wrote.
pub(crate) struct Exported {
    folder: PathBuf,
    path: PathBuf,
    lines: BufReader<File>,
    number: u64,
}

impl Exported {
    /// Opens the export in `folder`.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("trajectories.jsonl");
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self {
            folder: folder.to_owned(),
            path,
            lines: BufReader::new(file),
            number: 0,
        })
    }

    /// The next trajectory, checked; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Trajectory>> {
        let mut line = Vec::new();
        let mut bounded = self.lines.by_ref().take(MAX_LINE);
        if bounded.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let here = || self.place();
        let whole = line.ends_with(b"\n");
        ensure!(whole, "{}: the line is cut or too long", here());
        let line: Line = serde_json::from_slice(&line).with_context(here)?;
        let trajectory = line.into_trajectory(&self.folder).with_context(here)?;
        Ok(Some(trajectory))
    }

    /// File and line of the trajectory that was read last.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.path.display(), self.number)
    }
}
