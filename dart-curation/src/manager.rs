//! [`DataManager`]: the curator of this crate.

mod checkpoint;
mod handing;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dart_core::{
    Batch, Commit, Curator, CuratorStatus, Outcome, PolicyVersion, Result, RolloutRequest, Task,
    Trajectory, fault,
};
use tokio::sync::Notify;

pub use self::checkpoint::{CuratorCheckpoint, Recovered};
pub(crate) use self::handing::rollouts;
use crate::{
    config::CurationConfig,
    error::CurationError,
    event::CurationEventSink,
    ledger::{Ledger, Pending},
    pool::Provenance,
    store::TrajectoryStore,
};

/// How long a batch may be worked on before somebody else may take it over. Long: the fence alone
/// keeps an outdated acknowledgement out.
const LEASE: Duration = Duration::from_hours(6);

/// Tells the data managers of one process apart.
static MANAGERS: AtomicU64 = AtomicU64::new(0);

/// The data manager: hands out rollouts, keeps trajectories, forms groups, makes batches.
///
/// Its books are behind one lock that is never held across a wait; bodies of trajectories are in
/// the store alone, so memory does not grow with the run.
///
/// # Checkpoints
///
/// `commit` a batch *before* [`checkpoint`](Self::checkpoint) takes the snapshot that goes into the
/// checkpoint that contains it; when its files are safe, [`seal`](Self::seal) writes the uses of
/// all batches since the last one together with the pointer to it, in one transaction. Until then
/// nothing counts as used. A batch that is handed out and not committed at the snapshot is handed
/// out again, under the same id, after `restore`; whoever knows that the restored weights contain
/// it commits it instead. After `restore`, [`recover`](Self::recover) takes in what was finished
/// between the checkpoint and the crash.
///
/// What cannot be read from the store counts a failure; at the third it is quarantined and leaves
/// its group, and the run goes on.
///
/// A run that begins anew on a store that an earlier one has used first calls
/// [`TrajectoryStore::rewind`] with version 0: with the same seed the same ids come again.
pub struct DataManager {
    ledger: Mutex<Ledger>,
    store: Arc<dyn TrajectoryStore>,
    changed: Notify,
    closed: AtomicBool,
    /// In whose name batches are claimed.
    owner: String,
    /// The last trajectory of the checkpoint that was restored.
    restored_at: Mutex<Option<u64>>,
}

impl std::fmt::Debug for DataManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataManager")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl DataManager {
    /// A data manager for `tasks`. The same seed and the same answers give the same requests and
    /// batches.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if a setting is wrong, or a task is held out or
    /// listed twice, or there is none.
    pub fn new(
        config: CurationConfig,
        tasks: Vec<Arc<Task>>,
        seed: u64,
        store: Arc<dyn TrajectoryStore>,
    ) -> Result<Self> {
        config.validate()?;
        let ledger = Ledger::new(config, tasks, seed)
            .map_err(|error| error.during("make a data manager"))?;
        Ok(Self {
            ledger: Mutex::new(ledger),
            store,
            changed: Notify::new(),
            closed: AtomicBool::new(false),
            owner: format!(
                "{}-{}",
                std::process::id(),
                MANAGERS.fetch_add(1, Ordering::Relaxed)
            ),
            restored_at: Mutex::default(),
        })
    }

    /// Sends what happens to `sink`, in order.
    pub fn with_events(self, sink: CurationEventSink) -> Self {
        self.lock().set_events(sink);
        self
    }

    /// Says that the learner is at `version` before any batch of this curator, because of a warm
    /// start. Later versions come with commits.
    pub fn start_at(&self, version: PolicyVersion) {
        self.update(|ledger| ledger.start_at(version));
    }

    /// Puts a demonstration into the experience pool, for groups of the same task and seed. Its
    /// log-probs have to be those of a policy, not the zeros of an expert: the loss uses them.
    ///
    /// # Errors
    /// [`Misuse`](dart_core::ErrorKind::Misuse) if it is not a success with at least one step, or
    /// its decisions are not valid; [`Storage`](dart_core::ErrorKind::Storage) from the store.
    pub async fn add_to_pool(&self, trajectory: Trajectory) -> Result<()> {
        self.add_to_pool_as(trajectory, Provenance::Demonstration)
            .await
    }

    /// Puts a success of some other origin into the experience pool. Errors as `add_to_pool`.
    pub async fn add_to_pool_as(
        &self,
        trajectory: Trajectory,
        provenance: Provenance,
    ) -> Result<()> {
        if !trajectory.outcome.is_success() || trajectory.steps.is_empty() {
            return Err(CurationError::NotForPool(trajectory.id).during("add to the pool"));
        }
        for step in &trajectory.steps {
            step.decision.validate()?;
        }
        let trajectory = Arc::new(trajectory);
        self.store.import(trajectory.clone()).await?;
        self.update(|ledger| ledger.add_to_pool(&trajectory, provenance));
        Ok(())
    }

    /// Successes in the experience pool.
    pub fn pool_len(&self) -> usize {
        self.lock().pool_len()
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        // A panic inside would be a bug of the ledger; the run ends with it elsewhere.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Changes the books, passes on what may be forgotten and wakes whoever waits.
    fn update<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let (result, released) = {
            let mut ledger = self.lock();
            let result = change(&mut ledger);
            (result, ledger.take_released())
        };
        if !released.is_empty() {
            self.store.release(&released);
        }
        self.changed.notify_waiters();
        result
    }

    /// Waits until `ready` gives something, or until the end. Cancel safe if `ready` is.
    async fn wait_for<T>(&self, mut ready: impl FnMut(&mut Ledger) -> Option<T>) -> Option<T> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before looking: nothing that happens in between is missed.
            changed.as_mut().enable();
            if self.is_closed() {
                return None;
            }
            if let Some(value) = ready(&mut self.lock()) {
                return Some(value);
            }
            changed.await;
        }
    }

    async fn adopt_finished(&self) -> Result<()> {
        let recalled = self.lock().recalled();
        for issue in recalled {
            // One that cannot be read is made again.
            if let Ok(Some(trajectory)) = self.read(issue.trajectory).await? {
                self.update(|ledger| ledger.adopt(&trajectory));
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Curator for DataManager {
    async fn next_request(&self) -> Result<Option<RolloutRequest>> {
        Ok(self.wait_for(Ledger::next_request).await)
    }

    async fn ingest(&self, mut trajectory: Trajectory) -> Result<()> {
        let expected = self.lock().expects(&trajectory);
        if !expected.map_err(|error| error.during("ingest"))? {
            return Ok(());
        }
        make_sound(&mut trajectory);
        let trajectory = Arc::new(trajectory);
        // Durable first. If this future is dropped here, the slot is still in flight.
        self.store.put(trajectory.clone()).await?;
        fault::point("ingest.stored");
        self.update(|ledger| ledger.take(&trajectory));
        Ok(())
    }

    async fn next_batch(&self) -> Result<Option<Batch>> {
        loop {
            let Some(plan) = self.wait_for(|ledger| ledger.plan()).await else {
                return Ok(None);
            };
            if let Some(batch) = self.carry_out(&plan).await? {
                return Ok(Some(batch));
            }
        }
    }

    async fn commit(&self, commit: Commit) -> Result<()> {
        let pending = self.lock().pending_commit(&commit);
        match pending.map_err(|error| error.during("commit"))? {
            Pending::Claimed => {}
            Pending::Unclaimed(trajectories) => {
                let claim = self.store.claim(&trajectories, &self.owner, LEASE).await?;
                self.lock().hold(commit.batch, claim);
            }
            Pending::Already => return Ok(()),
        }
        self.update(|ledger| ledger.commit(&commit));
        Ok(())
    }

    async fn snapshot(&self) -> Result<Vec<u8>> {
        let snapshot = self.lock().snapshot();
        snapshot.map_err(|error| error.during("snapshot"))
    }

    async fn restore(&self, snapshot: &[u8]) -> Result<()> {
        let restored = self.lock().restore(snapshot);
        let version = restored.map_err(|error| error.during("restore"))?;
        let watermark = self.store.rewind(version).await?;
        *self
            .restored_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = watermark;
        self.adopt_finished().await?;
        self.changed.notify_waiters();
        Ok(())
    }

    fn status(&self) -> CuratorStatus {
        self.lock().status()
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

/// A trajectory with a decision that breaks its rules is not trained on: its slot is retried. Times
/// that are no numbers are of no use to anyone.
fn make_sound(trajectory: &mut Trajectory) {
    for step in &mut trajectory.steps {
        for millis in [&mut step.decide_ms, &mut step.act_ms] {
            if !millis.is_finite() {
                *millis = 0.0;
            }
        }
    }
    let checked = trajectory
        .steps
        .iter()
        .enumerate()
        .try_for_each(|(index, step)| {
            let last = step
                .decision
                .prompt
                .images
                .iter()
                .map(|span| span.image)
                .max();
            if last.is_some_and(|image| image as usize > index) {
                return Err(format!("step {index}: the prompt refers to a later image"));
            }
            let valid = step.decision.validate();
            valid.map_err(|error| format!("step {index}: {error}"))
        });
    if let Err(fault) = checked {
        tracing::warn!(trajectory = %trajectory.id, fault, "unsound trajectory counts as aborted");
        trajectory.outcome = Outcome::Aborted;
        trajectory.error = Some(fault);
    }
}
