//! [`TrajectoryStore`]: where trajectories are kept, and who works on them.

mod memory;
mod protocol;
mod sqlite;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dart_core::{PolicyVersion, Result, Trajectory, TrajectoryId};

pub use self::{
    memory::MemoryStore,
    protocol::{
        CheckpointRef, Claim, Fence, MAX_FAILURES, Quarantined, Seal, TrajectoryQuery,
        TrajectorySummary, Use,
    },
    sqlite::{
        Audit, FolderLock, Retention, SqliteArchive, SqliteConfig, SqliteStore, StoreOverview,
        Synchronous,
    },
};

/// Where trajectories are kept.
///
/// A trajectory is *ready*, then *claimed*, then *used*; a claim that ends without a checkpoint
/// makes it ready again, and one that cannot be worked with is *quarantined*. It counts as used
/// when a checkpoint contains what was learnt from it: [`Seal`] writes both at once.
///
/// # Contract
///
/// 1. A trajectory is there for good before `put` returns.
/// 2. `get` gives back exactly what was put, UI elements included.
/// 3. Putting the same trajectory again changes nothing. Another one of the same id replaces it
///    (a request that was handed out again after a restore has one answer), unless it is claimed or
///    used: then it is [`Misuse`](dart_core::ErrorKind::Misuse).
/// 4. `claim` gives all of its trajectories or none. None is given to two claimants at a time; a
///    claim whose lease has run out may be taken over. Fences only grow.
/// 5. `seal` writes its uses and the checkpoint or nothing. A use by a claim that was taken over,
///    given back or voided by a restart is [`Stale`](dart_core::ErrorKind::Stale). A repetition
///    changes nothing.
/// 6. A trajectory that failed [`MAX_FAILURES`] times is quarantined and not given out again. A
///    lease that has run out when somebody claims the trajectory anew is a failure too. The end of
///    the process is none: whoever stops a run three times has damaged nothing.
/// 7. Calls run concurrently. A dropped future leaves no half of anything.
/// 8. While the disk is full, writing calls wait (up to a limit); then they are
///    [`Exhausted`](dart_core::ErrorKind::Exhausted), and what was stored before is as it was.
#[async_trait]
pub trait TrajectoryStore: Send + Sync {
    /// Keeps a trajectory.
    async fn put(&self, trajectory: Arc<Trajectory>) -> Result<()>;

    /// Keeps a trajectory that is no rollout of this run: a demonstration, or one of another run.
    /// [`after`](Self::after) does not name it.
    async fn import(&self, trajectory: Arc<Trajectory>) -> Result<()>;

    /// The trajectory, or `None` if there is none (any more).
    async fn get(&self, id: TrajectoryId) -> Result<Option<Arc<Trajectory>>>;

    /// Names trajectories, the latest first.
    async fn list(&self, query: &TrajectoryQuery) -> Result<Vec<TrajectorySummary>>;

    /// Names what was stored after `watermark`, oldest first; not what was imported.
    async fn after(&self, watermark: u64) -> Result<Vec<TrajectorySummary>>;

    /// The order of the trajectory stored last.
    fn watermark(&self) -> u64;

    /// Takes trajectories to work on for `lease`. The same `owner` may claim again what it holds.
    ///
    /// # Errors
    /// [`Stale`](dart_core::ErrorKind::Stale), naming the trajectory, if one is missing, used,
    /// quarantined or claimed by somebody else.
    async fn claim(&self, ids: &[TrajectoryId], owner: &str, lease: Duration) -> Result<Claim>;

    /// Gives a claim back, unused. Of a claim that is not held any more: nothing.
    async fn give_back(&self, claim: &Claim) -> Result<()>;

    /// Says that an attempt to work with a trajectory failed, and why. One that is not stored (any
    /// more) is not given out again either: [`Quarantined::Yes`].
    async fn fail(&self, id: TrajectoryId, reason: &str) -> Result<Quarantined>;

    /// Says which checkpoint contains what was learnt from which claims.
    async fn seal(&self, seal: &Seal) -> Result<()>;

    /// The newest checkpoint that was sealed.
    async fn pointer(&self) -> Result<Option<CheckpointRef>>;

    /// Forgets every use and checkpoint after `version`: training goes on from there, in another
    /// lineage. Gives the watermark of that checkpoint, if it was sealed here.
    async fn rewind(&self, version: PolicyVersion) -> Result<Option<u64>>;

    /// Says that these will not be asked for again by the data manager. A store that keeps bodies
    /// in memory may let them go; what is durable goes by its own rule.
    fn release(&self, trajectories: &[TrajectoryId]);

    /// Finishes what is being written and lets go of files. Idempotent.
    async fn close(&self) -> Result<()>;
}
