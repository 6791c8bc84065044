//! [`SqliteStore`]: rows in SQLite, large images as files beside it.

mod archive;
mod audit;
mod blobs;
mod boot;
mod cache;
mod config;
mod digest;
mod lock;
mod progress;
mod prune;
mod put;
mod queue;
mod reader;
mod record;
mod schema;
mod writer;

use std::{
    fs::File,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use dart_core::{PolicyVersion, Trajectory, TrajectoryId};
use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};
use tokio::sync::{mpsc, oneshot};

pub use self::{
    archive::{SqliteArchive, StoreOverview},
    audit::Audit,
    config::{SqliteConfig, Synchronous},
    lock::FolderLock,
    prune::Retention,
};
use self::{
    blobs::{Blobs, io},
    cache::Cache,
    progress::Written,
    queue::Wish,
    reader::{Reader, locked},
    writer::{Answer, Job, Order, Writer},
};
use super::{
    CheckpointRef, Claim, Quarantined, Seal, TrajectoryQuery, TrajectoryStore, TrajectorySummary,
};
use crate::error::{CurationError, Result};

/// Orders that may wait for the writer.
const QUEUE: usize = 256;

/// Keeps trajectories in `trajectories.sqlite` and `blobs/` of one folder, which it locks.
///
/// Writes of concurrent calls share transactions. A runtime has to run while the store is used.
/// Opening checks that the pages of the database fit together, ends all claims of the process before,
/// brings the schema up to date and removes image files that a crash left without a row. Others may look meanwhile: [`SqliteArchive`].
pub struct SqliteStore {
    orders: mpsc::Sender<Order>,
    reader: Reader,
    written: Arc<Written>,
    cache: Mutex<Cache>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore")
            .field("blobs", &self.reader.blobs)
            .finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store in the folder `dir`, creating what is missing.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if another process uses the folder, which is named,
    /// or a newer version of the program wrote it; [`Storage`](dart_core::ErrorKind::Storage) if
    /// files cannot be made or read, or the database is damaged or was lost, naming it.
    pub async fn open(dir: impl AsRef<Path>) -> dart_core::Result<Self> {
        Self::open_with(dir, SqliteConfig::default()).await
    }

    /// Opens the store with other settings. Errors as `open`.
    pub async fn open_with(dir: impl AsRef<Path>, config: SqliteConfig) -> dart_core::Result<Self> {
        let opened = Self::start(dir.as_ref(), config).await;
        opened.map_err(|error| error.during("open the trajectory store"))
    }

    async fn start(dir: &Path, config: SqliteConfig) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(io("create", dir))?;
        let lock = lock::lock(dir)?;
        schema::was_destroyed(dir)?;
        let started = Self::start_locked(dir, config, lock).await;
        started.map_err(|error| error.of_file(&dir.join(schema::FILE)))
    }

    async fn start_locked(dir: &Path, config: SqliteConfig, lock: File) -> Result<Self> {
        let full = config.synchronous == Synchronous::Full;
        let folder = dir.join("blobs");
        let blobs = Blobs::open(folder.clone(), config.inline_kilobytes << 10, full)?;
        let blobs = Arc::new(blobs);
        let options = options(dir)
            .create_if_missing(true)
            .synchronous(config.pragma());
        let mut connection = options.connect().await?;
        schema::check(dir, &mut connection).await?;
        if schema::version(&mut connection).await? == 0 {
            schema::was_never_made(dir)?;
        }
        schema::bring_up_to_date(dir, &mut connection).await?;
        schema::check_tables(dir, &mut connection).await?;
        schema::note_made(dir, &mut connection).await?;
        queue::void_claims(&mut connection).await?;
        prune::sweep(&mut connection, &folder).await?;
        let max_pages = config
            .max_megabytes
            .map(|megabytes| (megabytes << 20) / schema::PAGE);
        writer::limit(&mut connection, max_pages).await?;
        let reader = Reader::new(
            options.clone().read_only(true).connect().await?,
            blobs.clone(),
        );
        let written = Arc::new(Written::default());
        written.reach(reader.number("SELECT max(seq) FROM trajectories").await?);
        let (orders, received) = mpsc::channel(QUEUE);
        let writer = Writer {
            connection,
            options,
            dir: dir.to_owned(),
            blobs,
            written: written.clone(),
            retention: config.retention,
            patience: Duration::from_secs(config.full_patience_seconds),
            max_pages,
            always_full: full,
            pruning: None,
            lock,
        };
        tokio::spawn(writer.run(received));
        Ok(Self {
            orders,
            reader,
            written,
            cache: Mutex::new(Cache::new(config.cache_megabytes << 20)),
        })
    }

    async fn order(&self, job: Job) -> Result<Answer> {
        let (done, answer) = oneshot::channel();
        let sent = self.orders.send(Order { job, done }).await;
        sent.map_err(|_| CurationError::WriterGone)?;
        answer.await.map_err(|_| CurationError::WriterGone)?
    }
}

/// How both owner and onlookers open the database of `dir`.
fn options(dir: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(dir.join(schema::FILE))
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5))
        .disable_statement_logging()
}

#[async_trait]
impl TrajectoryStore for SqliteStore {
    async fn put(&self, trajectory: Arc<Trajectory>) -> dart_core::Result<()> {
        let put = self.order(Job::Put(trajectory.clone())).await;
        put.map_err(|error| error.during("store a trajectory"))?;
        locked(&self.cache).insert(trajectory);
        Ok(())
    }

    async fn import(&self, trajectory: Arc<Trajectory>) -> dart_core::Result<()> {
        let put = self.order(Job::Import(trajectory)).await;
        put.map(drop)
            .map_err(|error| error.during("store a trajectory from elsewhere"))
    }

    async fn get(&self, id: TrajectoryId) -> dart_core::Result<Option<Arc<Trajectory>>> {
        if let Some(body) = locked(&self.cache).get(id) {
            return Ok(Some(body));
        }
        let read = self.reader.get(id).await;
        read.map_err(|error| error.during("read a trajectory"))
    }

    async fn list(&self, query: &TrajectoryQuery) -> dart_core::Result<Vec<TrajectorySummary>> {
        let found = self.reader.list(query).await;
        found.map_err(|error| error.during("list trajectories"))
    }

    async fn after(&self, watermark: u64) -> dart_core::Result<Vec<TrajectorySummary>> {
        let found = self.reader.after(watermark).await;
        found.map_err(|error| error.during("list later trajectories"))
    }

    fn watermark(&self) -> u64 {
        self.written.last()
    }

    async fn claim(
        &self,
        ids: &[TrajectoryId],
        owner: &str,
        lease: Duration,
    ) -> dart_core::Result<Claim> {
        let wish = Wish {
            ids: ids.to_vec(),
            owner: owner.to_owned(),
            lease,
        };
        let answer = self
            .order(Job::Claim(wish))
            .await
            .and_then(|answer| match answer {
                Answer::Claimed(claim) => Ok(claim),
                _ => Err(CurationError::WriterGone),
            });
        answer.map_err(|error| error.during("claim trajectories"))
    }

    async fn give_back(&self, claim: &Claim) -> dart_core::Result<()> {
        let given = self.order(Job::GiveBack(claim.fence)).await;
        given
            .map(drop)
            .map_err(|error| error.during("give a claim back"))
    }

    async fn fail(&self, id: TrajectoryId, reason: &str) -> dart_core::Result<Quarantined> {
        locked(&self.cache).remove(id);
        let answer = self.order(Job::Fail(id, reason.to_owned())).await;
        let answer = answer.and_then(|answer| match answer {
            Answer::Failed(quarantined) => Ok(quarantined),
            _ => Err(CurationError::WriterGone),
        });
        answer.map_err(|error| error.during("note a failure"))
    }

    async fn seal(&self, seal: &Seal) -> dart_core::Result<()> {
        let sealed = self.order(Job::Seal(Box::new(seal.clone()))).await;
        sealed
            .map(drop)
            .map_err(|error| error.during("seal a checkpoint"))
    }

    async fn pointer(&self) -> dart_core::Result<Option<CheckpointRef>> {
        let pointer = self.reader.pointer().await;
        pointer.map_err(|error| error.during("read the checkpoint pointer"))
    }

    async fn rewind(&self, version: PolicyVersion) -> dart_core::Result<Option<u64>> {
        let answer = self
            .order(Job::Rewind(version))
            .await
            .and_then(|answer| match answer {
                Answer::Rewound(watermark) => Ok(watermark),
                _ => Err(CurationError::WriterGone),
            });
        answer.map_err(|error| error.during("go back to a version"))
    }

    fn release(&self, trajectories: &[TrajectoryId]) {
        let mut cache = locked(&self.cache);
        for id in trajectories {
            cache.remove(*id);
        }
    }

    async fn close(&self) -> dart_core::Result<()> {
        match self.order(Job::Close).await {
            // Closed before.
            Ok(_) | Err(CurationError::WriterGone) => Ok(()),
            Err(error) => Err(error.during("close the trajectory store")),
        }
    }
}
