//! [`SqliteStore`]: rows in SQLite, images as files beside it.

mod blobs;
mod cache;
mod lock;
mod record;
mod writer;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dart_core::{BatchId, Commit, PolicyVersion, Task, TaskId, Trajectory, TrajectoryId};
use serde::{Deserialize, Serialize};
use sqlx::{
    ConnectOptions, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};

use self::{
    blobs::{Blobs, io},
    cache::Cache,
    record::{StoredStep, StoredTrajectory},
    writer::{Job, Order, Writer},
};
use super::{TrajectoryQuery, TrajectoryStore, TrajectorySummary};
use crate::error::{CurationError, Result};

/// Orders that may wait for the writer.
const QUEUE: usize = 256;

/// How long data takes to be safe from what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Synchronous {
    /// Safe from a crash of the process when a call returns; a loss of power may take the latest
    /// seconds, and never more than those.
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
}

impl Default for SqliteConfig {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Normal,
            inline_kilobytes: 64,
            cache_megabytes: 256,
        }
    }
}

/// Keeps trajectories in `trajectories.sqlite` and `blobs/` of one folder, which it locks.
///
/// Writes of concurrent calls share transactions. A runtime has to run while the store is used.
pub struct SqliteStore {
    orders: mpsc::Sender<Order>,
    reader: AsyncMutex<SqliteConnection>,
    blobs: Arc<Blobs>,
    tasks: Mutex<BTreeMap<i64, Arc<Task>>>,
    cache: Mutex<Cache>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore")
            .field("blobs", &self.blobs)
            .finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store in the folder `dir`, creating what is missing.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if another process uses the folder, which is named;
    /// [`Storage`](dart_core::ErrorKind::Storage) if files cannot be made or read.
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
        let full = config.synchronous == Synchronous::Full;
        let blobs = Arc::new(Blobs::open(
            dir.join("blobs"),
            config.inline_kilobytes << 10,
            full,
        )?);
        let options = SqliteConnectOptions::new()
            .filename(dir.join("trajectories.sqlite"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(if full {
                SqliteSynchronous::Full
            } else {
                SqliteSynchronous::Normal
            })
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(5))
            .disable_statement_logging();
        let mut connection = options.connect().await?;
        // Not `run`: the future of that cannot be shown to be Send.
        let migrations = sqlx::migrate!();
        migrations.run_direct(None, &mut connection, false).await?;
        let reader = options.read_only(true).connect().await?;
        let (orders, received) = mpsc::channel(QUEUE);
        let writer = Writer {
            connection,
            blobs: blobs.clone(),
            lock,
        };
        tokio::spawn(writer.run(received));
        Ok(Self {
            orders,
            reader: AsyncMutex::new(reader),
            blobs,
            tasks: Mutex::default(),
            cache: Mutex::new(Cache::new(config.cache_megabytes << 20)),
        })
    }

    async fn order(&self, job: Job) -> Result<()> {
        let (done, answer) = oneshot::channel();
        let sent = self.orders.send(Order { job, done }).await;
        sent.map_err(|_| CurationError::WriterGone)?;
        answer.await.map_err(|_| CurationError::WriterGone)?
    }

    async fn read(&self, id: TrajectoryId) -> Result<Option<Arc<Trajectory>>> {
        let Some((mut trajectory, steps)) = self.read_rows(id).await? else {
            return Ok(None);
        };
        let blobs = self.blobs.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut read = Vec::with_capacity(steps.len());
            for step in steps {
                let step = step.with_frame(&read, &blobs)?;
                read.push(step);
            }
            Ok::<Vec<_>, CurationError>(read.into_iter().map(|(_, step)| step).collect())
        });
        trajectory.steps = read.await.map_err(|_| CurationError::WriterGone)??;
        Ok(Some(Arc::new(trajectory)))
    }

    async fn read_rows(&self, id: TrajectoryId) -> Result<Option<(Trajectory, Vec<StoredStep>)>> {
        let mut reader = self.reader.lock().await;
        let row = sqlx::query("SELECT * FROM trajectories WHERE id = ?1")
            .bind(id.0.to_be_bytes().to_vec())
            .fetch_optional(&mut *reader)
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let stored = StoredTrajectory::of_row(&row)?;
        let task = self.task(&mut reader, id, row.try_get("task")?).await?;
        let rows = sqlx::query(
            "SELECT steps.*, images.packed FROM steps LEFT JOIN images ON images.hash = steps.frame
             WHERE trajectory = ?1 ORDER BY step",
        )
        .bind(stored.seq)
        .fetch_all(&mut *reader)
        .await?;
        let steps = rows.iter().map(|row| StoredStep::of_row(id, row));
        let trajectory = Trajectory {
            id: stored.id,
            group: stored.group,
            task,
            seed: stored.seed,
            instruction: row.try_get::<String, _>("instruction")?.into(),
            steps: Vec::new(),
            outcome: stored.outcome,
            stop: stored.stop,
            error: row.try_get("error")?,
        };
        Ok(Some((trajectory, steps.collect::<Result<_>>()?)))
    }

    /// The task in row `seq`, the same object for all trajectories of it.
    async fn task(
        &self,
        reader: &mut SqliteConnection,
        id: TrajectoryId,
        seq: i64,
    ) -> Result<Arc<Task>> {
        if let Some(task) = locked(&self.tasks).get(&seq) {
            return Ok(task.clone());
        }
        let (json,): (String,) = sqlx::query_as("SELECT json FROM tasks WHERE seq = ?1")
            .bind(seq)
            .fetch_one(reader)
            .await?;
        let task: Arc<Task> = Arc::new(record::parse(id, "task", &json)?);
        locked(&self.tasks).insert(seq, task.clone());
        Ok(task)
    }

    async fn find(&self, query: &TrajectoryQuery) -> Result<Vec<TrajectorySummary>> {
        let rows = sqlx::query(
            "SELECT trajectories.*, used.batch FROM trajectories
             LEFT JOIN used ON used.trajectory = seq
             WHERE (?1 IS NULL OR task_id = ?1)
               AND (?2 IS NULL OR (outcome <> 'aborted' AND (coalesce(reward, 0) >= 1) = ?2))
             ORDER BY seq DESC LIMIT ?3",
        )
        .bind(query.task.as_ref().map(TaskId::as_str))
        .bind(query.success)
        .bind(query.limit)
        .fetch_all(&mut *self.reader.lock().await)
        .await?;
        rows.iter().map(summary).collect()
    }
}

fn summary(row: &sqlx::sqlite::SqliteRow) -> Result<TrajectorySummary> {
    let stored = StoredTrajectory::of_row(row)?;
    let version: Option<i64> = row.try_get("oldest_version")?;
    let batch: Option<i64> = row.try_get("batch")?;
    let task: String = row.try_get("task_id")?;
    Ok(TrajectorySummary {
        id: stored.id,
        group: stored.group,
        task: TaskId::new(task).map_err(|error| CurationError::Malformed {
            trajectory: stored.id,
            what: "task id",
            source: error.into(),
        })?,
        seed: stored.seed,
        outcome: stored.outcome,
        stop: stored.stop,
        steps: row.try_get("steps")?,
        oldest_version: version.map(|version| PolicyVersion(version as u64)),
        used_in: batch.map(|batch| BatchId(batch as u64)),
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept in memory can be read again; no panic makes it wrong.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl TrajectoryStore for SqliteStore {
    async fn put(&self, trajectory: Arc<Trajectory>) -> dart_core::Result<()> {
        let put = self.order(Job::Put(trajectory.clone())).await;
        put.map_err(|error| error.during("store a trajectory"))?;
        locked(&self.cache).insert(trajectory);
        Ok(())
    }

    async fn get(&self, id: TrajectoryId) -> dart_core::Result<Option<Arc<Trajectory>>> {
        if let Some(body) = locked(&self.cache).get(id) {
            return Ok(Some(body));
        }
        let read = self.read(id).await;
        read.map_err(|error| error.during("read a trajectory"))
    }

    async fn list(&self, query: &TrajectoryQuery) -> dart_core::Result<Vec<TrajectorySummary>> {
        let found = self.find(query).await;
        found.map_err(|error| error.during("list trajectories"))
    }

    async fn mark_used(
        &self,
        trajectories: &[TrajectoryId],
        commit: &Commit,
    ) -> dart_core::Result<()> {
        let job = Job::MarkUsed(trajectories.to_vec(), commit.clone());
        let marked = self.order(job).await;
        marked.map_err(|error| error.during("mark trajectories as used"))
    }

    async fn rewind(&self, version: PolicyVersion) -> dart_core::Result<()> {
        let rewound = self.order(Job::Rewind(version)).await;
        rewound.map_err(|error| error.during("go back to a version"))
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
            Ok(()) | Err(CurationError::WriterGone) => Ok(()),
            Err(error) => Err(error.during("close the trajectory store")),
        }
    }
}
