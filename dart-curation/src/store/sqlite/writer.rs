//! The one task that writes: everything that waits goes into one transaction.
//!
//! While one transaction is written the next jobs gather, so that many small trajectories cost few
//! commits. Images are hashed, compressed and written on a blocking thread.

use std::{fs::File, path::PathBuf, sync::Arc};

use dart_core::{Commit, PolicyVersion, Trajectory, TrajectoryId};
use sqlx::{Connection, Sqlite, SqliteConnection, Transaction};
use tokio::sync::{mpsc, oneshot};

use super::{
    blobs::{Blobs, FrameHash},
    record::{StepRecord, TrajectoryRecord},
};
use crate::error::{CurationError, Result};

/// Jobs of one transaction at most.
const BATCH: usize = 128;

/// Something to be written.
#[derive(Debug)]
pub(super) enum Job {
    /// Keep a trajectory.
    Put(Arc<Trajectory>),
    /// Trajectories are used up.
    MarkUsed(Vec<TrajectoryId>, Commit),
    /// Forget every use after this version.
    Rewind(PolicyVersion),
    /// Finish.
    Close,
}

/// A job and whoever waits for it.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) job: Job,
    pub(super) done: oneshot::Sender<Result<()>>,
}

/// The writing end of the store.
pub(super) struct Writer {
    pub(super) connection: SqliteConnection,
    pub(super) blobs: Arc<Blobs>,
    /// Held until the last byte is written.
    pub(super) lock: File,
}

/// A job that is ready for the database.
enum Write {
    Put(Box<TrajectoryRecord>),
    MarkUsed(Vec<TrajectoryId>, Commit),
    Rewind(PolicyVersion),
}

impl Writer {
    /// Works until `Close` or until nobody can send jobs any more.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut waiting = Vec::with_capacity(BATCH);
        let mut closing = None;
        while closing.is_none() && orders.recv_many(&mut waiting, BATCH).await > 0 {
            let mut batch = Vec::with_capacity(waiting.len());
            for order in waiting.drain(..) {
                match order.job {
                    Job::Close => closing = Some(order.done),
                    _ => batch.push(order),
                }
            }
            self.write(batch).await;
        }
        orders.close();
        let closed = self.connection.close().await;
        drop(self.lock);
        if let Some(done) = closing {
            // Nobody waits any more if the future was dropped.
            let _ = done.send(closed.map_err(CurationError::from));
        }
    }

    async fn write(&mut self, orders: Vec<Order>) {
        let (jobs, waiting): (Vec<_>, Vec<_>) = orders
            .into_iter()
            .map(|order| (order.job, order.done))
            .unzip();
        let blobs = self.blobs.clone();
        let prepared = tokio::task::spawn_blocking(move || {
            let prepare = |job| prepare(job, &blobs);
            jobs.into_iter().map(prepare).collect::<Vec<_>>()
        });
        let results = match prepared.await {
            Ok(prepared) => self.write_prepared(prepared).await,
            Err(_) => waiting
                .iter()
                .map(|_| Err(CurationError::WriterGone))
                .collect(),
        };
        for (done, result) in waiting.into_iter().zip(results) {
            let _ = done.send(result);
        }
    }

    /// Writes all that could be prepared in one transaction. If it fails, all of it fails.
    async fn write_prepared(&mut self, prepared: Vec<Result<Write>>) -> Vec<Result<()>> {
        let images = image_hashes(&prepared);
        let mut results = Vec::with_capacity(prepared.len());
        let written = async {
            let mut transaction = self.connection.begin_with("BEGIN IMMEDIATE").await?;
            for write in prepared {
                results.push(match write {
                    Ok(write) => apply(&mut transaction, write).await?,
                    Err(error) => Err(error),
                });
            }
            transaction.commit().await.map_err(CurationError::from)
        };
        match written.await {
            Ok(()) => {
                for hash in images {
                    self.blobs.remember(hash);
                }
                results
            }
            Err(error) => {
                let error = Arc::new(error);
                let failed = std::iter::repeat_with(|| Err(CurationError::Write(error.clone())));
                failed.take(BATCH).collect()
            }
        }
    }
}

fn prepare(job: Job, blobs: &Blobs) -> Result<Write> {
    match job {
        Job::Put(body) => TrajectoryRecord::of(body, blobs).map(|record| Write::Put(record.into())),
        Job::MarkUsed(trajectories, commit) => Ok(Write::MarkUsed(trajectories, commit)),
        Job::Rewind(version) => Ok(Write::Rewind(version)),
        Job::Close => Err(CurationError::WriterGone),
    }
}

/// The images that will be in the database once these are written.
fn image_hashes(prepared: &[Result<Write>]) -> Vec<FrameHash> {
    let records = prepared.iter().filter_map(|write| match write {
        Ok(Write::Put(record)) => Some(record),
        _ => None,
    });
    let images = records.flat_map(|record| record.steps.iter().map(|step| &step.frame));
    let packed = images.filter(|image| image.packed.is_some());
    packed.map(|image| image.hash).collect()
}

type Tx<'a> = Transaction<'a, Sqlite>;

/// The outer error ends the transaction; the inner one is of this job alone, which has then
/// written nothing.
async fn apply(tx: &mut Tx<'_>, write: Write) -> Result<Result<()>> {
    match write {
        Write::Put(record) => put(tx, &record).await.map(Ok),
        Write::MarkUsed(trajectories, commit) => mark_used(tx, &trajectories, &commit).await,
        Write::Rewind(version) => rewind(tx, version).await.map(Ok),
    }
}

async fn put(tx: &mut Tx<'_>, record: &TrajectoryRecord) -> Result<()> {
    let body = &record.body;
    let task = task_row(tx, record).await?;
    let (seq,): (i64,) = sqlx::query_as(
        "INSERT INTO trajectories (id, group_id, task, task_id, seed, instruction, outcome, reward,
             stop, error, steps, oldest_version)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT (id) DO UPDATE SET group_id = ?2, task = ?3, task_id = ?4, seed = ?5,
             instruction = ?6, outcome = ?7, reward = ?8, stop = ?9, error = ?10, steps = ?11,
             oldest_version = ?12
         RETURNING seq",
    )
    .bind(body.id.0.to_be_bytes().to_vec())
    .bind(body.group.0 as i64)
    .bind(task)
    .bind(body.task.id.as_str())
    .bind(body.seed as i64)
    .bind(&*body.instruction)
    .bind(record.outcome)
    .bind(record.reward)
    .bind(&record.stop)
    .bind(body.error.as_deref())
    .bind(body.steps.len() as i64)
    .bind(body.oldest_version().map(|version| version.0 as i64))
    .fetch_one(&mut **tx)
    .await?;
    sqlx::query("DELETE FROM steps WHERE trajectory = ?1")
        .bind(seq)
        .execute(&mut **tx)
        .await?;
    for (index, step) in record.steps.iter().enumerate() {
        put_step(tx, seq, index, record, step).await?;
    }
    Ok(())
}

async fn task_row(tx: &mut Tx<'_>, record: &TrajectoryRecord) -> Result<i64> {
    let known: Option<(i64,)> = sqlx::query_as("SELECT seq FROM tasks WHERE digest = ?1")
        .bind(&record.task_digest[..])
        .fetch_optional(&mut **tx)
        .await?;
    if let Some((seq,)) = known {
        return Ok(seq);
    }
    let inserted = sqlx::query("INSERT INTO tasks (digest, json) VALUES (?1, ?2)")
        .bind(&record.task_digest[..])
        .bind(&record.task_json)
        .execute(&mut **tx)
        .await?;
    Ok(inserted.last_insert_rowid())
}

async fn put_step(
    tx: &mut Tx<'_>,
    seq: i64,
    index: usize,
    record: &TrajectoryRecord,
    row: &StepRecord,
) -> Result<()> {
    if let Some(packed) = &row.frame.packed {
        sqlx::query("INSERT INTO images (hash, packed) VALUES (?1, ?2) ON CONFLICT DO NOTHING")
            .bind(&row.frame.hash[..])
            .bind(packed)
            .execute(&mut **tx)
            .await?;
    }
    let step = &record.body.steps[index];
    let size = step.observation.frame.size();
    sqlx::query(
        "INSERT INTO steps (trajectory, step, frame, width, height, last_action_error, ui, action,
             text, prompt, images, tokens, log_probs, entropies, log_prob_kind, temperature, version,
             truncated, decide_ms, act_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
             ?19, ?20)",
    )
    .bind(seq)
    .bind(index as i64)
    .bind(&row.frame.hash[..])
    .bind(size.width)
    .bind(size.height)
    .bind(step.observation.last_action_error.as_deref())
    .bind(row.ui.as_deref())
    .bind(&row.action)
    .bind(&step.decision.text)
    .bind(&row.prompt)
    .bind(&row.images)
    .bind(&row.tokens)
    .bind(&row.log_probs)
    .bind(row.entropies.as_deref())
    .bind(&row.log_prob_kind)
    .bind(f64::from(step.decision.temperature))
    .bind(step.decision.version.0 as i64)
    .bind(step.decision.truncated)
    .bind(step.decide_ms)
    .bind(step.act_ms)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn mark_used(
    tx: &mut Tx<'_>,
    trajectories: &[TrajectoryId],
    commit: &Commit,
) -> Result<Result<()>> {
    let (batch, version) = (commit.batch.0 as i64, commit.version.0 as i64);
    for id in trajectories {
        let other: Option<(i64,)> = sqlx::query_as(
            "SELECT batch FROM used JOIN trajectories ON seq = trajectory
             WHERE id = ?1 AND batch <> ?2",
        )
        .bind(id.0.to_be_bytes().to_vec())
        .bind(batch)
        .fetch_optional(&mut **tx)
        .await?;
        if let Some((other,)) = other {
            return Ok(Err(CurationError::UsedTwice(*id, other as u64)));
        }
    }
    let checkpoint: Option<PathBuf> = commit.checkpoint.clone();
    sqlx::query(
        "INSERT INTO commits (batch, version, checkpoint) VALUES (?1, ?2, ?3)
         ON CONFLICT (batch) DO UPDATE SET version = ?2, checkpoint = ?3",
    )
    .bind(batch)
    .bind(version)
    .bind(checkpoint.map(|path| path.to_string_lossy().into_owned()))
    .execute(&mut **tx)
    .await?;
    for id in trajectories {
        sqlx::query(
            "INSERT INTO used (trajectory, batch, version)
             SELECT seq, ?2, ?3 FROM trajectories WHERE id = ?1
             ON CONFLICT (trajectory) DO UPDATE SET version = ?3",
        )
        .bind(id.0.to_be_bytes().to_vec())
        .bind(batch)
        .bind(version)
        .execute(&mut **tx)
        .await?;
    }
    Ok(Ok(()))
}

async fn rewind(tx: &mut Tx<'_>, version: PolicyVersion) -> Result<()> {
    for statement in [
        "DELETE FROM used WHERE version > ?1",
        "DELETE FROM commits WHERE version > ?1",
    ] {
        sqlx::query(statement)
            .bind(version.0 as i64)
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}
