//! The reading half of the store, shared by the owner of the folder and by those who only look.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dart_core::{BatchId, PolicyVersion, Task, TaskId, Trajectory, TrajectoryId};
use sqlx::{Row, SqliteConnection};
use tokio::sync::Mutex as AsyncMutex;

use super::{
    super::{CheckpointRef, TrajectoryQuery, TrajectorySummary},
    blobs::Blobs,
    digest::Digest,
    record::{self, StoredStep, StoredTrajectory},
};
use crate::error::{CurationError, Result};

/// Columns of every summary; the queries add their conditions.
const SUMMARIES: &str = "SELECT trajectories.*, used.batch, quarantine.reason FROM trajectories
     LEFT JOIN used ON used.trajectory = seq
     LEFT JOIN quarantine ON quarantine.trajectory = seq";

/// Reads rows and images.
pub(super) struct Reader {
    pub(super) connection: AsyncMutex<SqliteConnection>,
    pub(super) blobs: Arc<Blobs>,
    tasks: Mutex<BTreeMap<i64, Arc<Task>>>,
}

impl Reader {
    pub(super) fn new(connection: SqliteConnection, blobs: Arc<Blobs>) -> Self {
        Self {
            connection: AsyncMutex::new(connection),
            blobs,
            tasks: Mutex::default(),
        }
    }

    /// The trajectory with its steps, checked against its checksum; `None` if it is not stored or
    /// its steps were let go.
    pub(super) async fn get(&self, id: TrajectoryId) -> Result<Option<Arc<Trajectory>>> {
        let Some((mut trajectory, steps)) = self.rows(id).await? else {
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

    /// Reads the row and, if they are there, the steps of a trajectory that something names.
    /// `false` if the steps were let go.
    pub(super) async fn check(&self, id: TrajectoryId) -> Result<bool> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!("{SUMMARIES} WHERE id = ?1")))
            .bind(id.0.to_be_bytes().to_vec())
            .fetch_optional(&mut *self.connection.lock().await)
            .await?;
        let found = summary(&row.ok_or(CurationError::Damaged(id))?)?;
        if found.has_body {
            self.get(id).await?.ok_or(CurationError::Damaged(id))?;
        }
        Ok(found.has_body)
    }

    async fn rows(&self, id: TrajectoryId) -> Result<Option<(Trajectory, Vec<StoredStep>)>> {
        let mut reader = self.connection.lock().await;
        let row = sqlx::query("SELECT * FROM trajectories WHERE id = ?1 AND body = 1")
            .bind(id.0.to_be_bytes().to_vec())
            .fetch_optional(&mut *reader)
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let stored = StoredTrajectory::of_row(&row)?;
        let (task, task_digest) = self.task(&mut reader, id, row.try_get("task")?).await?;
        let rows = sqlx::query(
            "SELECT steps.*, images.packed AS image FROM steps
             LEFT JOIN images ON images.hash = steps.frame WHERE trajectory = ?1 ORDER BY step",
        )
        .bind(stored.seq)
        .fetch_all(&mut *reader)
        .await?;
        drop(reader);
        if let Some(expected) = row.try_get::<Option<&[u8]>, _>("digest")? {
            let found = Digest::of_rows(&row, &task_digest, &rows)?;
            if found[..] != *expected {
                return Err(CurationError::Damaged(id));
            }
        }
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

    /// The task in row `seq`, the same object for all trajectories of it, and its digest.
    async fn task(
        &self,
        reader: &mut SqliteConnection,
        id: TrajectoryId,
        seq: i64,
    ) -> Result<(Arc<Task>, Vec<u8>)> {
        let (digest, json): (Vec<u8>, String) =
            sqlx::query_as("SELECT digest, json FROM tasks WHERE seq = ?1")
                .bind(seq)
                .fetch_one(reader)
                .await?;
        if let Some(task) = locked(&self.tasks).get(&seq) {
            return Ok((task.clone(), digest));
        }
        if blake3::hash(json.as_bytes()).as_bytes()[..] != digest[..] {
            return Err(CurationError::Damaged(id));
        }
        let task: Arc<Task> = Arc::new(record::parse(id, "task", &json)?);
        locked(&self.tasks).insert(seq, task.clone());
        Ok((task, digest))
    }

    pub(super) async fn list(&self, query: &TrajectoryQuery) -> Result<Vec<TrajectorySummary>> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "{SUMMARIES} WHERE (?1 IS NULL OR task_id = ?1)
               AND (?2 IS NULL OR (outcome <> 'aborted' AND (coalesce(reward, 0) >= 1) = ?2))
             ORDER BY seq DESC LIMIT ?3"
        )))
        .bind(query.task.as_ref().map(TaskId::as_str))
        .bind(query.success)
        .bind(query.limit)
        .fetch_all(&mut *self.connection.lock().await)
        .await?;
        rows.iter().map(summary).collect()
    }

    pub(super) async fn tasks(&self) -> Result<Vec<TaskId>> {
        let rows: Vec<(String,)> =
            sqlx::query_as("SELECT DISTINCT task_id FROM trajectories ORDER BY task_id")
                .fetch_all(&mut *self.connection.lock().await)
                .await?;
        // A damaged name is found when its trajectory is read.
        Ok(rows
            .into_iter()
            .filter_map(|(name,)| TaskId::new(name).ok())
            .collect())
    }

    pub(super) async fn after(&self, watermark: u64) -> Result<Vec<TrajectorySummary>> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "{SUMMARIES} WHERE seq > ?1 AND imported = 0 ORDER BY seq"
        )))
        .bind(watermark as i64)
        .fetch_all(&mut *self.connection.lock().await)
        .await?;
        rows.iter().map(summary).collect()
    }

    pub(super) async fn pointer(&self) -> Result<Option<CheckpointRef>> {
        let row: Option<(i64, String)> =
            sqlx::query_as("SELECT version, name FROM checkpoints ORDER BY version DESC LIMIT 1")
                .fetch_optional(&mut *self.connection.lock().await)
                .await?;
        Ok(row.map(|(version, name)| CheckpointRef {
            version: PolicyVersion(version as u64),
            name,
        }))
    }

    /// One number of the database.
    pub(super) async fn number(&self, query: &'static str) -> Result<u64> {
        let (number,): (Option<i64>,) = sqlx::query_as(query)
            .fetch_one(&mut *self.connection.lock().await)
            .await?;
        Ok(number.unwrap_or(0) as u64)
    }
}

fn summary(row: &sqlx::sqlite::SqliteRow) -> Result<TrajectorySummary> {
    let stored = StoredTrajectory::of_row(row)?;
    let version = |name| -> Result<Option<PolicyVersion>> {
        let version: Option<i64> = row.try_get(name)?;
        Ok(version.map(|version| PolicyVersion(version as u64)))
    };
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
        oldest_version: version("oldest_version")?,
        newest_version: version("newest_version")?,
        used_in: batch.map(|batch| BatchId(batch as u64)),
        quarantined: row.try_get("reason")?,
        has_body: row.try_get("body")?,
    })
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept in memory can be read again; no panic makes it wrong.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
