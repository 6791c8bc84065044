//! Which schema the database has, and the way to the present one.

use std::path::Path;

use sqlx::{SqliteConnection, migrate::Migrator};

use crate::error::{CurationError, Result};

/// The database, inside the store's folder.
pub(super) const FILE: &str = "trajectories.sqlite";

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
