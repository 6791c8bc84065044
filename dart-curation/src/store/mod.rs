//! [`TrajectoryStore`]: where trajectories are kept.

mod memory;
mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{
    BatchId, Commit, GroupId, Outcome, PolicyVersion, Result, StopReason, TaskId, Trajectory,
    TrajectoryId,
};

pub use self::{
    memory::MemoryStore,
    sqlite::{SqliteConfig, SqliteStore, Synchronous},
};

/// Which trajectories [`TrajectoryStore::list`] names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrajectoryQuery {
    /// Of this task alone.
    pub task: Option<TaskId>,
    /// Successes or failures alone; aborted ones are neither.
    pub success: Option<bool>,
    /// At most this many, the latest first.
    pub limit: u32,
}

impl Default for TrajectoryQuery {
    fn default() -> Self {
        Self {
            task: None,
            success: None,
            limit: 100,
        }
    }
}

/// A trajectory without its steps.
#[derive(Clone, Debug, PartialEq)]
pub struct TrajectorySummary {
    /// Its identity.
    pub id: TrajectoryId,
    /// The group it belongs to.
    pub group: GroupId,
    /// What was to be done.
    pub task: TaskId,
    /// The seed of the task instance.
    pub seed: u64,
    /// What it was worth.
    pub outcome: Outcome,
    /// Why it ended.
    pub stop: StopReason,
    /// Its steps.
    pub steps: u32,
    /// Oldest policy version in it.
    pub oldest_version: Option<PolicyVersion>,
    /// The batch that used it up, if any.
    pub used_in: Option<BatchId>,
}

/// Where trajectories are kept.
///
/// # Contract
///
/// 1. A trajectory is there for good before `put` returns.
/// 2. `get` gives back exactly what was put, UI elements included.
/// 3. Putting the same id again replaces the body: a request that was handed out again after a
///    restore has one answer.
/// 4. `mark_used` writes all its trajectories and the checkpoint or nothing; a repetition changes
///    nothing; a trajectory that another batch of the lineage used is an error.
/// 5. Calls run concurrently. A dropped future leaves no half of anything.
#[async_trait]
pub trait TrajectoryStore: Send + Sync {
    /// Keeps a trajectory.
    async fn put(&self, trajectory: Arc<Trajectory>) -> Result<()>;

    /// The trajectory, or `None` if there is none.
    async fn get(&self, id: TrajectoryId) -> Result<Option<Arc<Trajectory>>>;

    /// Names trajectories, the latest first.
    async fn list(&self, query: &TrajectoryQuery) -> Result<Vec<TrajectorySummary>>;

    /// Says that a batch has used these trajectories up, and which checkpoint contains it.
    async fn mark_used(&self, trajectories: &[TrajectoryId], commit: &Commit) -> Result<()>;

    /// Forgets every use after `version`: training goes on from there, in another lineage.
    async fn rewind(&self, version: PolicyVersion) -> Result<()>;

    /// Says that these will not be asked for again by the data manager. A store that keeps bodies
    /// in memory may let them go; what is durable stays.
    fn release(&self, trajectories: &[TrajectoryId]);

    /// Finishes what is being written and lets go of files. Idempotent.
    async fn close(&self) -> Result<()>;
}
