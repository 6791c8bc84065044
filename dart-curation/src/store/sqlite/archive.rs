//! [`SqliteArchive`]: a store that somebody else may be writing to, to read from.

use std::{path::Path, sync::Arc};

use dart_core::{Trajectory, TrajectoryId};
use serde::Serialize;
use sqlx::{ConnectOptions, SqliteConnection};

use super::{blobs::Blobs, lock, options, reader::Reader, schema};
use crate::{
    error::{CurationError, Result},
    store::{CheckpointRef, TrajectoryQuery, TrajectorySummary},
};

/// How much a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreOverview {
    /// Schema of the database.
    pub schema: i64,
    /// Trajectories.
    pub trajectories: u64,
    /// Those whose steps are still there.
    pub with_steps: u64,
    /// Those that were aborted.
    pub aborted: u64,
    /// Those that succeeded.
    pub successes: u64,
    /// Those that a batch of the present lineage has used.
    pub used: u64,
    /// Those that somebody works on.
    pub claimed: u64,
    /// Those in quarantine.
    pub quarantined: u64,
    /// Steps.
    pub steps: u64,
    /// Images inside the database.
    pub images: u64,
    /// Bytes of the database.
    pub bytes: u64,
    /// Version of the checkpoint pointer.
    pub checkpoint: Option<u64>,
}

/// What reading everything found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// Trajectories that were read and compared with their checksums.
    pub checked: u64,
    /// What is wrong, one line each.
    pub problems: Vec<String>,
}

/// The trajectories of a folder, to read from, also while a run writes to it. It takes no lock and
/// changes nothing, except that a store of an older version is brought up to date if nobody uses it.
pub struct SqliteArchive {
    reader: Reader,
}

impl std::fmt::Debug for SqliteArchive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteArchive")
            .field("blobs", &self.reader.blobs)
            .finish_non_exhaustive()
    }
}

impl SqliteArchive {
    /// Opens the store in the folder `dir`.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if there is none, or one of another version that is
    /// in use; [`Storage`](dart_core::ErrorKind::Storage) if it cannot be read.
    pub async fn open(dir: impl AsRef<Path>) -> dart_core::Result<Self> {
        let opened = Self::start(dir.as_ref()).await;
        opened.map_err(|error| error.during("open the trajectory store to read"))
    }

    async fn start(dir: &Path) -> Result<Self> {
        if !dir.join(schema::FILE).is_file() {
            return Err(CurationError::NoStore {
                dir: dir.to_owned(),
            });
        }
        let mut connection = look(dir).await?;
        if schema::is_old(dir, &mut connection).await? {
            drop(connection);
            let held = lock::lock(dir)?;
            let mut owner = options(dir).connect().await?;
            schema::bring_up_to_date(dir, &mut owner).await?;
            sqlx::Connection::close(owner).await?;
            drop(held);
            connection = look(dir).await?;
        }
        let blobs = Arc::new(Blobs::look(dir.join("blobs")));
        Ok(Self {
            reader: Reader::new(connection, blobs),
        })
    }

    /// The trajectory, or `None` if there is none or its steps were let go.
    ///
    /// # Errors
    /// [`Storage`](dart_core::ErrorKind::Storage) if it is damaged.
    pub async fn get(&self, id: TrajectoryId) -> dart_core::Result<Option<Arc<Trajectory>>> {
        let read = self.reader.get(id).await;
        read.map_err(|error| error.during("read a trajectory"))
    }

    /// Names trajectories, the latest first. Errors as `get`.
    pub async fn list(&self, query: &TrajectoryQuery) -> dart_core::Result<Vec<TrajectorySummary>> {
        let found = self.reader.list(query).await;
        found.map_err(|error| error.during("list trajectories"))
    }

    /// The checkpoint pointer. Errors as `get`.
    pub async fn pointer(&self) -> dart_core::Result<Option<CheckpointRef>> {
        let pointer = self.reader.pointer().await;
        pointer.map_err(|error| error.during("read the checkpoint pointer"))
    }

    /// How much there is. Errors as `get`.
    pub async fn overview(&self) -> dart_core::Result<StoreOverview> {
        let counted = self.count().await;
        counted.map_err(|error| error.during("count what is stored"))
    }

    async fn count(&self) -> Result<StoreOverview> {
        let number = |query| self.reader.number(query);
        let pointer = self.reader.pointer().await?;
        let schema = {
            let mut connection = self.reader.connection.lock().await;
            schema::version(&mut connection).await?
        };
        Ok(StoreOverview {
            schema,
            trajectories: number("SELECT count(*) FROM trajectories").await?,
            with_steps: number("SELECT count(*) FROM trajectories WHERE body = 1").await?,
            aborted: number("SELECT count(*) FROM trajectories WHERE outcome = 'aborted'").await?,
            successes: number("SELECT count(*) FROM trajectories WHERE reward >= 1").await?,
            used: number("SELECT count(*) FROM used").await?,
            claimed: number("SELECT count(*) FROM trajectories WHERE claim IS NOT NULL").await?,
            quarantined: number("SELECT count(*) FROM quarantine").await?,
            steps: number("SELECT count(*) FROM steps").await?,
            images: number("SELECT count(*) FROM images").await?,
            bytes: schema::PAGE * number("SELECT page_count FROM pragma_page_count").await?,
            checkpoint: pointer.map(|checkpoint| checkpoint.version.0),
        })
    }

    /// Reads everything and compares it with its checksums. Errors as `get`, but not for what is
    /// damaged: that is the finding.
    pub async fn audit(&self) -> dart_core::Result<Audit> {
        let audited = self.check().await;
        audited.map_err(|error| error.during("check what is stored"))
    }

    async fn check(&self) -> Result<Audit> {
        let mut audit = Audit::default();
        for pragma in ["PRAGMA integrity_check", "PRAGMA foreign_key_check"] {
            let mut connection = self.reader.connection.lock().await;
            let rows = sqlx::query(pragma).fetch_all(&mut *connection).await?;
            let said = rows
                .iter()
                .map(|row| sqlx::Row::try_get::<String, _>(row, 0));
            let bad = said.filter(|said| said.as_ref().is_ok_and(|said| said != "ok"));
            audit
                .problems
                .extend(bad.map(|said| format!("{pragma}: {}", said.unwrap_or_default())));
        }
        let query = TrajectoryQuery {
            limit: u32::MAX,
            ..TrajectoryQuery::default()
        };
        for found in self.reader.list(&query).await? {
            if found.has_body {
                audit.checked += 1;
                if let Err(error) = self.reader.get(found.id).await {
                    audit.problems.push(format!("{}: {error}", found.id));
                }
            }
        }
        Ok(audit)
    }
}

/// A folder that cannot be written has no journal index, and needs none if there is no journal.
async fn look(dir: &Path) -> Result<SqliteConnection> {
    let options = options(dir).read_only(true);
    match options.connect().await {
        Ok(connection) => Ok(connection),
        Err(_) if !dir.join(format!("{}-wal", schema::FILE)).exists() => {
            Ok(options.immutable(true).connect().await?)
        }
        Err(error) => Err(error.into()),
    }
}
