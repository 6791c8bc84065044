//! The one task that writes: everything that waits goes into one transaction.
//!
//! While one transaction is written the next jobs gather, so that many small trajectories cost few
//! commits. Images are hashed, compressed and written on a blocking thread. When the disk is full
//! the jobs stay here, and with them whoever waits for them, until there is room or patience ends.

use std::{fs::File, path::PathBuf, sync::Arc, time::Duration};

use dart_core::{PolicyVersion, Trajectory, TrajectoryId, fault};
use sqlx::{
    ConnectOptions, Connection, Sqlite, SqliteConnection, Transaction, sqlite::SqliteConnectOptions,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    super::{Claim, Fence, Quarantined, Seal},
    blobs::{Blobs, FrameHash},
    boot::Moment,
    progress::Written,
    prune::{self, Retention},
    put::put,
    queue::{self, Wish},
    record::TrajectoryRecord,
};
use crate::error::{CurationError, Result};

/// Jobs of one transaction at most.
const BATCH: usize = 128;

/// Pause between two tries while the disk is full.
const FULL_PAUSE: Duration = Duration::from_millis(250);

/// Something to be written.
#[derive(Debug)]
pub(super) enum Job {
    /// Keep a trajectory.
    Put(Arc<Trajectory>),
    /// Keep one that is no rollout of this run.
    Import(Arc<Trajectory>),
    /// Take trajectories to work on.
    Claim(Wish),
    /// End a claim without a use.
    GiveBack(Fence),
    /// An attempt failed.
    Fail(TrajectoryId, String),
    /// A checkpoint is complete.
    Seal(Box<Seal>),
    /// Forget what came after this version.
    Rewind(PolicyVersion),
    /// Finish.
    Close,
}

/// What a job gives back.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    Claimed(Claim),
    Failed(Quarantined),
    Rewound(Option<u64>),
}

/// A job and whoever waits for it.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) job: Job,
    pub(super) done: oneshot::Sender<Result<Answer>>,
}

/// The writing end of the store.
pub(super) struct Writer {
    pub(super) connection: SqliteConnection,
    pub(super) options: SqliteConnectOptions,
    pub(super) dir: PathBuf,
    pub(super) blobs: Arc<Blobs>,
    pub(super) written: Arc<Written>,
    pub(super) retention: Retention,
    pub(super) patience: Duration,
    /// Database pages at most.
    pub(super) max_pages: Option<u64>,
    /// Whether every transaction is on the disk when it ends, not those of checkpoints alone.
    pub(super) always_full: bool,
    /// Bodies that may go.
    pub(super) pruning: Option<prune::Plan>,
    /// Held until the last byte is written.
    pub(super) lock: File,
}

/// What a job needs besides itself.
enum Prepared {
    Put(Box<TrajectoryRecord>),
    Nothing,
}

impl Writer {
    /// Works until `Close` or until nobody can send jobs any more.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut waiting = Vec::with_capacity(BATCH);
        let mut closing = None;
        while closing.is_none() {
            if !self.next_orders(&mut orders, &mut waiting).await {
                break;
            }
            let mut batch = Vec::with_capacity(waiting.len());
            for order in waiting.drain(..) {
                match order.job {
                    Job::Close => closing = Some(order.done),
                    _ => batch.push(order),
                }
            }
            if !batch.is_empty() {
                self.write(batch).await;
            }
            self.prune().await;
        }
        orders.close();
        // After a clean end the database is one file, unless an onlooker holds the journal.
        let _ = self.pragma("PRAGMA wal_checkpoint(TRUNCATE)").await;
        let closed = self.connection.close().await;
        drop(self.lock);
        if let Some(done) = closing {
            // Nobody waits any more if the future was dropped.
            let _ = done.send(closed.map(|()| Answer::Done).map_err(CurationError::from));
        }
    }

    /// Waits for orders, unless there is something to tidy up meanwhile. `false` at the end.
    async fn next_orders(
        &self,
        orders: &mut mpsc::Receiver<Order>,
        waiting: &mut Vec<Order>,
    ) -> bool {
        if self.pruning.is_some() {
            while waiting.len() < BATCH
                && let Ok(order) = orders.try_recv()
            {
                waiting.push(order);
            }
            return !(orders.is_closed() && waiting.is_empty());
        }
        orders.recv_many(waiting, BATCH).await > 0
    }

    /// Never in the middle of a batch: images that are known when a batch is prepared have to be
    /// there when it is written.
    async fn prune(&mut self) {
        let Some(mut plan) = self.pruning.take() else {
            return;
        };
        match plan.advance(&mut self.connection, &self.blobs).await {
            Ok(true) => self.pruning = Some(plan),
            Ok(false) => {}
            // Tidying up can wait for the next checkpoint.
            Err(error) => {
                tracing::warn!(%error, "old trajectories could not be let go");
                let _ = self.reconnect().await;
            }
        }
    }

    async fn write(&mut self, orders: Vec<Order>) {
        let (jobs, waiting): (Vec<_>, Vec<_>) = orders
            .into_iter()
            .map(|order| (order.job, order.done))
            .unzip();
        let jobs = Arc::new(jobs);
        let end = Instant::now() + self.patience;
        let mut told = false;
        let results = loop {
            match self.try_write(&jobs).await {
                Ok(results) => break Ok(results),
                Err(error) if error.is_full() && Instant::now() < end => {
                    if !told {
                        told = true;
                        let full = CurationError::Full {
                            dir: self.dir.clone(),
                        };
                        tracing::error!(patience_s = self.patience.as_secs(), "{full}; waiting");
                    }
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                Err(error) if error.is_full() => {
                    break Err(CurationError::Full {
                        dir: self.dir.clone(),
                    });
                }
                Err(error) => break Err(error),
            }
            if let Err(error) = self.reconnect().await {
                break Err(error);
            }
        };
        match results {
            Ok(results) => {
                for (done, result) in waiting.into_iter().zip(results) {
                    let _ = done.send(result);
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for done in waiting {
                    let _ = done.send(Err(CurationError::Write(error.clone())));
                }
                let _ = self.reconnect().await;
            }
        }
    }

    /// A transaction that failed half way may have left the connection in any state.
    async fn reconnect(&mut self) -> Result<()> {
        self.connection = self.options.connect().await?;
        limit(&mut self.connection, self.max_pages).await
    }

    async fn pragma(&mut self, pragma: &'static str) -> Result<()> {
        sqlx::query(pragma).execute(&mut self.connection).await?;
        Ok(())
    }

    /// Writes all that can be prepared in one transaction. If it fails, all of it fails.
    async fn try_write(&mut self, jobs: &Arc<Vec<Job>>) -> Result<Vec<Result<Answer>>> {
        let (shared, blobs) = (jobs.clone(), self.blobs.clone());
        let prepared = tokio::task::spawn_blocking(move || {
            let prepare = |job| prepare(job, &blobs);
            shared.iter().map(prepare).collect::<Vec<_>>()
        });
        let mut prepared = prepared.await.map_err(|_| CurationError::WriterGone)?;
        let full =
            |prepared: &Result<Prepared>| prepared.as_ref().is_err_and(CurationError::is_full);
        if let Some(at) = prepared.iter().position(full) {
            prepared.swap_remove(at)?;
        }
        let images = image_hashes(&prepared);
        fault::point("put.images-written");
        let seals = jobs.iter().any(|job| matches!(job, Job::Seal(_)));
        if seals && !self.always_full {
            self.pragma("PRAGMA synchronous = FULL").await?;
        }
        let now = Moment::now();
        let mut results = Vec::with_capacity(prepared.len());
        let mut transaction = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        for (job, prepared) in jobs.iter().zip(prepared) {
            results.push(match prepared {
                Ok(prepared) => apply(&mut transaction, job, prepared, &now).await?,
                Err(error) => Err(error),
            });
        }
        fault::point("write.before-commit");
        let (last,): (Option<i64>,) = sqlx::query_as("SELECT max(seq) FROM trajectories")
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        fault::point("write.committed");
        self.written.reach(last.unwrap_or(0) as u64);
        for hash in images {
            self.blobs.remember(hash);
        }
        if seals {
            if !self.always_full {
                self.pragma("PRAGMA synchronous = NORMAL").await?;
            }
            fault::point("seal.committed");
            self.pruning = prune::Plan::make(&mut self.connection, self.retention).await?;
        }
        Ok(results)
    }
}

/// Holds the database to a number of pages.
pub(super) async fn limit(connection: &mut SqliteConnection, pages: Option<u64>) -> Result<()> {
    if let Some(pages) = pages {
        let pragma = format!("PRAGMA max_page_count = {pages}");
        sqlx::query(sqlx::AssertSqlSafe(pragma))
            .execute(connection)
            .await?;
    }
    Ok(())
}

fn prepare(job: &Job, blobs: &Blobs) -> Result<Prepared> {
    match job {
        Job::Put(body) | Job::Import(body) => {
            let record = TrajectoryRecord::of(body.clone(), blobs)?;
            Ok(Prepared::Put(record.into()))
        }
        _ => Ok(Prepared::Nothing),
    }
}

/// The images that will be in the database once these are written.
fn image_hashes(prepared: &[Result<Prepared>]) -> Vec<FrameHash> {
    let records = prepared.iter().filter_map(|prepared| match prepared {
        Ok(Prepared::Put(record)) => Some(record),
        _ => None,
    });
    let images = records.flat_map(|record| record.steps.iter().map(|step| &step.frame));
    let packed = images.filter(|image| image.packed.is_some());
    packed.map(|image| image.hash).collect()
}

pub(super) type Tx<'a> = Transaction<'a, Sqlite>;

/// The outer error ends the transaction; the inner one is of this job alone, which has then
/// written nothing.
async fn apply(
    tx: &mut Tx<'_>,
    job: &Job,
    prepared: Prepared,
    now: &Moment,
) -> Result<Result<Answer>> {
    let done = |result: Result<()>| result.map(|()| Answer::Done);
    Ok(match (job, prepared) {
        (job, Prepared::Put(record)) => {
            done(put(tx, &record, matches!(job, Job::Import(_))).await?)
        }
        (Job::Claim(wish), _) => queue::claim(tx, wish, now).await?.map(Answer::Claimed),
        (Job::GiveBack(fence), _) => done(Ok(queue::give_back(tx, *fence).await?)),
        (Job::Fail(id, reason), _) => Ok(Answer::Failed(queue::fail(tx, *id, reason).await?)),
        (Job::Seal(seal), _) => done(queue::seal(tx, seal).await?),
        (Job::Rewind(version), _) => Ok(Answer::Rewound(queue::rewind(tx, *version).await?)),
        (Job::Put(_) | Job::Import(_) | Job::Close, _) => Err(CurationError::WriterGone),
    })
}
