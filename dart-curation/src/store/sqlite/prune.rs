//! The retention rule, and images that nobody refers to any more.
//!
//! The rows of trajectories stay, they are small; their steps and images go when no kept checkpoint
//! can ask for them and enough newer ones are there. An image goes with the last step that shows it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sqlx::{Connection, Row, SqliteConnection};

use dart_core::fault;

use super::blobs::{Blobs, FrameHash, io};
use crate::error::{CurationError, Result};

/// Which bodies of finished trajectories stay. What the curation of a kept checkpoint needs always
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Retention {
    /// All of them.
    All {},
    /// The newest ones.
    Newest {
        /// How many.
        trajectories: u64,
    },
}

impl Default for Retention {
    /// The newest 10,000: some 30 MB of the simulator's, some ten gigabytes of a large desktop's.
    fn default() -> Self {
        Self::Newest {
            trajectories: 10_000,
        }
    }
}

/// Trajectories whose bodies go in one transaction: others wait for it.
const CHUNK: i64 = 200;

/// What may go, found out once after each checkpoint, and how far that has come.
#[derive(Debug)]
pub(super) struct Plan {
    /// Up to here, exclusively.
    end: i64,
    /// Except for these.
    needed: BTreeSet<[u8; 16]>,
    next: i64,
}

impl Plan {
    /// What the oldest checkpoint allows to go; `None` without one, or if all stays.
    pub(super) async fn make(
        connection: &mut SqliteConnection,
        retention: Retention,
    ) -> Result<Option<Self>> {
        let Retention::Newest { trajectories } = retention else {
            return Ok(None);
        };
        let oldest: Option<(i64, Vec<u8>)> =
            sqlx::query_as("SELECT watermark, needed FROM checkpoints ORDER BY version LIMIT 1")
                .fetch_optional(&mut *connection)
                .await?;
        let cut: Option<(i64,)> = sqlx::query_as(
            "SELECT seq FROM trajectories WHERE body = 1 AND imported = 0
             ORDER BY seq DESC LIMIT 1 OFFSET ?1",
        )
        .bind(i64::try_from(trajectories).unwrap_or(i64::MAX))
        .fetch_optional(&mut *connection)
        .await?;
        let (Some((watermark, needed)), Some((cut,))) = (oldest, cut) else {
            return Ok(None);
        };
        Ok(Some(Self {
            end: watermark.min(cut) + 1,
            needed: needed.as_chunks::<16>().0.iter().copied().collect(),
            next: 0,
        }))
    }

    /// Lets the bodies of a few trajectories go. `false` when there is nothing left to do.
    pub(super) async fn advance(
        &mut self,
        connection: &mut SqliteConnection,
        blobs: &Blobs,
    ) -> Result<bool> {
        let rows = sqlx::query(
            "SELECT seq, id FROM trajectories
             WHERE body = 1 AND seq >= ?1 AND seq < ?2 AND claim IS NULL AND imported = 0
             ORDER BY seq LIMIT ?3",
        )
        .bind(self.next)
        .bind(self.end)
        .bind(CHUNK)
        .fetch_all(&mut *connection)
        .await?;
        let mut gone = Vec::new();
        for row in &rows {
            let (seq, id): (i64, &[u8]) = (row.try_get("seq")?, row.try_get("id")?);
            self.next = seq + 1;
            let needed = <[u8; 16]>::try_from(id).is_ok_and(|id| self.needed.contains(&id));
            if !needed {
                gone.push(seq);
            }
        }
        if !gone.is_empty() {
            let_go(connection, blobs, &gone).await?;
        }
        Ok(rows.len() as i64 == CHUNK)
    }
}

/// Deletes steps, then images that no step shows any more; files only after the rows are gone.
async fn let_go(connection: &mut SqliteConnection, blobs: &Blobs, seqs: &[i64]) -> Result<()> {
    let list = serde_json::Value::from(seqs.to_vec()).to_string();
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let frames: Vec<(Vec<u8>,)> = sqlx::query_as(
        "DELETE FROM steps WHERE trajectory IN (SELECT value FROM json_each(?1)) RETURNING frame",
    )
    .bind(&list)
    .fetch_all(&mut *tx)
    .await?;
    sqlx::query("UPDATE trajectories SET body = 0 WHERE seq IN (SELECT value FROM json_each(?1))")
        .bind(&list)
        .execute(&mut *tx)
        .await?;
    let frames: BTreeSet<Vec<u8>> = frames.into_iter().map(|(frame,)| frame).collect();
    let mut unused = Vec::new();
    for frame in frames {
        if !is_shown(&mut tx, &frame).await? {
            sqlx::query("DELETE FROM images WHERE hash = ?1")
                .bind(&frame)
                .execute(&mut *tx)
                .await?;
            unused.extend(FrameHash::try_from(&frame[..]));
        }
    }
    tx.commit().await?;
    fault::point("prune.committed");
    for hash in &unused {
        blobs.remove(hash)?;
    }
    Ok(())
}

async fn is_shown(connection: &mut SqliteConnection, frame: &[u8]) -> Result<bool> {
    let (shown,): (bool,) = sqlx::query_as("SELECT EXISTS (SELECT 1 FROM steps WHERE frame = ?1)")
        .bind(frame)
        .fetch_one(connection)
        .await?;
    Ok(shown)
}

/// Deletes images that no step shows: a crash came between file and row. Gives their number.
pub(super) async fn sweep(connection: &mut SqliteConnection, dir: &Path) -> Result<u64> {
    let mut swept = 0;
    for (hash, path) in files(dir)? {
        if !is_shown(connection, &hash[..]).await? {
            fs::remove_file(&path).map_err(io("remove", &path))?;
            swept += 1;
        }
    }
    // Those inside the database are left by trajectories that were answered anew.
    let inside =
        sqlx::query("DELETE FROM images WHERE NOT EXISTS (SELECT 1 FROM steps WHERE frame = hash)");
    swept += inside.execute(connection).await?.rows_affected();
    if swept > 0 {
        tracing::info!(swept, "removed images that no trajectory shows");
    }
    Ok(swept)
}

/// Every file of a shelf whose place says which image it holds.
fn files(dir: &Path) -> Result<Vec<(FrameHash, PathBuf)>> {
    let mut found = Vec::new();
    for shelf in fs::read_dir(dir).map_err(io("list", dir))? {
        let shelf = shelf.map_err(io("list", dir))?.path();
        let Some(first) = shelf.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if first.len() != 2 || !shelf.is_dir() {
            continue;
        }
        for file in fs::read_dir(&shelf).map_err(io("list", &shelf))? {
            let path = file.map_err(io("list", &shelf))?.path();
            let rest = path.file_name().and_then(|name| name.to_str());
            let hash = rest.and_then(|rest| blake3::Hash::from_hex(format!("{first}{rest}")).ok());
            found.extend(hash.map(|hash| (*hash.as_bytes(), path)));
        }
    }
    Ok::<_, CurationError>(found)
}
