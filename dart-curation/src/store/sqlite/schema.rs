//! Which schema the database has, and the way to the present one.

use std::{collections::BTreeMap, fs, path::Path};

use sqlx::{Connection, Row, SqliteConnection, migrate::Migrator};

use super::blobs::io;
use crate::error::{CurationError, Result, short};

/// The database, inside the store's folder.
pub(super) const FILE: &str = "trajectories.sqlite";

/// Beside the database, once it has been made: without the one, the other was lost.
const MADE: &str = "made";

/// Bytes of a page, SQLite's default.
pub(super) const PAGE: u64 = 4096;

static MIGRATIONS: Migrator = sqlx::migrate!();

/// The schema that this program writes.
fn known() -> i64 {
    let versions = MIGRATIONS.iter().map(|migration| migration.version);
    versions.max().unwrap_or(0)
}

/// The schema that the database has; 0 if it is empty.
pub(super) async fn version(connection: &mut SqliteConnection) -> Result<i64> {
    let (tables,): (i64,) =
        sqlx::query_as("SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'")
            .fetch_one(&mut *connection)
            .await?;
    if tables == 0 {
        return Ok(0);
    }
    let (version,): (Option<i64>,) =
        sqlx::query_as("SELECT max(version) FROM _sqlx_migrations WHERE success")
            .fetch_one(connection)
            .await?;
    Ok(version.unwrap_or(0))
}

/// Whether the database needs [`bring_up_to_date`].
///
/// # Errors
/// [`CurationError::NewerSchema`].
pub(super) async fn is_old(dir: &Path, connection: &mut SqliteConnection) -> Result<bool> {
    let (found, known) = (version(connection).await?, known());
    if found > known {
        return Err(CurationError::NewerSchema {
            dir: dir.to_owned(),
            found,
            known,
        });
    }
    Ok(found < known)
}

/// Runs the migrations that are missing, each in a transaction of its own.
pub(super) async fn bring_up_to_date(dir: &Path, connection: &mut SqliteConnection) -> Result<()> {
    if is_old(dir, connection).await? {
        // Not `run`: the future of that cannot be shown to be Send.
        MIGRATIONS.run_direct(None, connection, false).await?;
    }
    Ok(())
}

/// Refuses a folder whose database was there once and is gone, before SQLite makes a new one.
pub(super) fn was_destroyed(dir: &Path) -> Result<()> {
    let length = fs::metadata(dir.join(FILE)).map_or(0, |metadata| metadata.len());
    if length == 0 {
        was_never_made(dir)
    } else {
        Ok(())
    }
}

/// Refuses a folder whose database was made once and now holds nothing, as without its journal.
pub(super) fn was_never_made(dir: &Path) -> Result<()> {
    if !dir.join(MADE).exists() {
        return Ok(());
    }
    Err(CurationError::Destroyed {
        path: dir.join(FILE),
    })
}

/// Notes that the database has been made, once it is on the disk itself: a note that outlived a
/// loss of power which the database did not would refuse a folder that lost nothing.
pub(super) async fn note_made(dir: &Path, connection: &mut SqliteConnection) -> Result<()> {
    let path = dir.join(MADE);
    if path.exists() {
        return Ok(());
    }
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
        .execute(connection)
        .await?;
    for synced in [dir.join(FILE), dir.to_owned()] {
        let file = fs::File::open(&synced).and_then(|file| file.sync_all());
        file.map_err(io("sync", &synced))?;
    }
    let text = "The database beside this file has been made; if it is gone, it was lost.\n";
    fs::write(&path, text).map_err(io("write", &path))
}

/// Whether the tables are those that the migrations make. A bit that flips in their text would make
/// all that follows mean something else.
///
/// # Errors
/// [`CurationError::DamagedFile`], naming the first table that differs.
pub(super) async fn check_tables(dir: &Path, connection: &mut SqliteConnection) -> Result<()> {
    let mut fresh = SqliteConnection::connect("sqlite::memory:").await?;
    MIGRATIONS.run_direct(None, &mut fresh, false).await?;
    let expected = tables(&mut fresh).await?;
    fresh.close().await?;
    let found = tables(connection).await?;
    let differing = expected
        .iter()
        .find(|(name, text)| found.get(*name) != Some(*text));
    match differing {
        None => Ok(()),
        Some((name, _)) => Err(CurationError::DamagedFile {
            path: dir.join(FILE),
            what: format!("the definition of {name} is not the one that was made"),
        }),
    }
}

/// Name → text of every table and index of ours.
async fn tables(connection: &mut SqliteConnection) -> Result<BTreeMap<String, String>> {
    // As bytes: what is damaged may be no text.
    let rows: Vec<(Vec<u8>, Vec<u8>)> = sqlx::query_as(
        "SELECT CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_schema
         WHERE sql IS NOT NULL AND name NOT GLOB '_sqlx*'",
    )
    .fetch_all(connection)
    .await?;
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let rows = rows.iter().map(|(name, sql)| (text(name), text(sql)));
    Ok(rows.collect())
}

/// Whether the pages of the database fit together: its structure, the types and bounds of its
/// columns. What the rows say is compared with their checksums when they are read.
///
/// # Errors
/// [`CurationError::DamagedFile`], with the first finding.
pub(super) async fn check(dir: &Path, connection: &mut SqliteConnection) -> Result<()> {
    let rows = sqlx::query("PRAGMA quick_check(1)")
        .fetch_all(connection)
        .await?;
    // It may quote bytes that are no text.
    let said = rows
        .iter()
        .map(|row| row.try_get_unchecked::<Vec<u8>, _>(0));
    let said = said.collect::<sqlx::Result<Vec<_>>>()?;
    let finding = said.iter().find(|said| said[..] != b"ok"[..]);
    match finding {
        None => Ok(()),
        Some(said) => Err(CurationError::DamagedFile {
            path: dir.join(FILE),
            what: short(&String::from_utf8_lossy(said)),
        }),
    }
}
