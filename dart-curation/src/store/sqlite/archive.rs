//! [`SqliteArchive`]: a store that somebody else may be writing to, to read from.

use std::{path::Path, sync::Arc};

use dart_core::{TaskId, Trajectory, TrajectoryId};
use serde::Serialize;
use sqlx::{ConnectOptions, SqliteConnection};

use super::{
    audit::{self, Audit},
    blobs::Blobs,
    lock, options,
    reader::Reader,
    schema,
};
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
        schema::was_destroyed(dir)?;
        if !dir.join(schema::FILE).is_file() {
            return Err(CurationError::NoStore {
                dir: dir.to_owned(),
            });
        }
        let connection = Self::connect(dir).await;
        let connection = connection.map_err(|error| error.of_file(&dir.join(schema::FILE)))?;
        let blobs = Arc::new(Blobs::look(dir.join("blobs")));
        Ok(Self {
            reader: Reader::new(connection, blobs),
        })
    }

    async fn connect(dir: &Path) -> Result<SqliteConnection> {
        let mut connection = look(dir).await?;
        if schema::version(&mut connection).await? == 0 {
            schema::was_never_made(dir)?;
            // Whoever makes it has not come far yet.
            return Err(CurationError::NoStore {
                dir: dir.to_owned(),
            });
        }
        if !schema::is_old(dir, &mut connection).await? {
            schema::check_tables(dir, &mut connection).await?;
            return Ok(connection);
        }
        drop(connection);
        let held = lock::lock(dir)?;
        let mut owner = options(dir).connect().await?;
        schema::check(dir, &mut owner).await?;
        schema::bring_up_to_date(dir, &mut owner).await?;
        sqlx::Connection::close(owner).await?;
        drop(held);
        look(dir).await
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

    /// Every task of which something is stored, by name. Errors as `get`.
    pub async fn tasks(&self) -> dart_core::Result<Vec<TaskId>> {
        let found = self.reader.tasks().await;
        found.map_err(|error| error.during("list tasks"))
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

    /// Reads everything and compares it with its checksums. What is damaged is a finding and hides
    /// nothing else.
    pub async fn audit(&self) -> Audit {
        audit::audit(&self.reader).await
    }

    /// Every trajectory that can be found in a database, damaged or not, oldest first.
    pub async fn salvage(&self) -> Vec<TrajectoryId> {
        audit::find(&self.reader).await.ids
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
