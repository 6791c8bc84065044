//! How trajectories are stored.

use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteSynchronous;

use super::Retention;

/// How long data takes to be safe from what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Synchronous {
    /// Safe from a crash of the process when a call returns; a loss of power may take the latest
    /// seconds, and never more than those. Checkpoints, with all that came before, are safe from it.
    #[default]
    Normal,
    /// Safe from a loss of power when a call returns, images included.
    Full,
}

/// How trajectories are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqliteConfig {
    /// What data is safe from when a call returns. Default normal: tens of thousands of rows a
    /// second instead of thousands.
    pub synchronous: Synchronous,
    /// Kilobytes up to which a compressed image is kept in the database instead of a file of its own.
    /// Default 64: below some 100 KB rows are cheaper than files, and those of a real desktop are
    /// several times as large.
    pub inline_kilobytes: usize,
    /// Megabytes of trajectories kept in memory for the batch that they will be part of. Default 256.
    pub cache_megabytes: usize,
    /// Which steps and screenshots stay once nobody can train on them any more. Default the newest
    /// 10,000 trajectories; what a kept checkpoint or the experience pool needs stays in any case,
    /// and so does the row that says what became of each trajectory.
    pub retention: Retention,
    /// Megabytes that the database may grow to; beyond, it is full. Default none: the disk decides.
    pub max_megabytes: Option<u64>,
    /// Seconds that writers wait for room on a full disk before they give up. Default 600: time for
    /// a person to make some.
    pub full_patience_seconds: u64,
}

impl Default for SqliteConfig {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Normal,
            inline_kilobytes: 64,
            cache_megabytes: 256,
            retention: Retention::default(),
            max_megabytes: None,
            full_patience_seconds: 600,
        }
    }
}

impl SqliteConfig {
    pub(super) const fn pragma(&self) -> SqliteSynchronous {
        match self.synchronous {
            Synchronous::Normal => SqliteSynchronous::Normal,
            Synchronous::Full => SqliteSynchronous::Full,
        }
    }
}
