//! [`Curator`]: the only stateful hub. Hands out rollouts, takes trajectories, makes batches.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Batch, BatchId, GroupId, PolicyVersion, Result, Task, Trajectory, TrajectoryId};

/// One requested rollout. It comes back exactly once, as a [`Trajectory`] with the same id,
/// whatever happened (invariant I3).
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutRequest {
    /// Identity of the trajectory to be made.
    pub trajectory: TrajectoryId,
    /// The group it will belong to.
    pub group: GroupId,
    /// What is to be done.
    pub task: Arc<Task>,
    /// The seed of the task instance; the same for the whole group.
    pub seed: u64,
    /// Step limit of this rollout: the task's horizon or less (dynamic trajectory length).
    pub step_limit: u32,
    /// Temperature of the draws.
    pub temperature: f32,
    /// Seeds the draws; different for each rollout of a group.
    pub sampling_seed: u64,
}

/// Says that a batch has been trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Which batch.
    pub batch: BatchId,
    /// The learner's version after it.
    pub version: PolicyVersion,
}

/// Where the curator stands, for progress displays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CuratorStatus {
    /// Rollouts handed out and not yet back.
    pub in_flight: usize,
    /// Groups complete and waiting for a batch.
    pub groups_ready: usize,
    /// Groups that a batch takes.
    pub groups_needed: usize,
    /// Trajectories taken in, aborted ones not counted.
    pub trajectories: u64,
    /// Rollouts that were aborted.
    pub aborted: u64,
    /// Groups dropped because all rewards were equal.
    pub groups_without_spread: u64,
    /// Trajectories dropped because they were too old.
    pub stale: u64,
    /// Mean reward of the latest trajectories.
    pub recent_success: f64,
}

/// The data manager: decides what is rolled out, keeps what comes back, decides what is trained on.
///
/// # Contract
///
/// Each number is the name of a conformance check in `dart-testkit`.
///
/// 1. Every request is answered by exactly one `ingest`; a second one with the same id is ignored.
/// 2. An aborted trajectory changes no statistic; its slot alone is handed out again.
/// 3. No batch holds a sample older than the staleness bound.
/// 4. Each trajectory is in at most one batch of a lineage, pool samples excepted.
/// 5. `next_request` waits while more rollouts would break the staleness bound or the bound on
///    rollouts in flight, and goes on after a `commit` or an `ingest`.
/// 6. A trajectory is durable before `ingest` returns.
/// 7. `snapshot` then `restore` gives the same following requests and batches.
/// 8. The same seed and the same answers give the same requests and batches.
/// 9. After `close`, `next_request` and `next_batch` give `None` at once, waiting calls included.
/// 10. A batch without samples is never given.
#[async_trait]
pub trait Curator: Send + Sync {
    /// The next rollout to make, or `None` after `close`. Cancel safe.
    async fn next_request(&self) -> Result<Option<RolloutRequest>>;

    /// Takes what became of a request. Idempotent by trajectory id.
    async fn ingest(&self, trajectory: Trajectory) -> Result<()>;

    /// The next batch, or `None` after `close`. Waits until one is ready. Cancel safe.
    async fn next_batch(&self) -> Result<Option<Batch>>;

    /// Says that a batch has been trained on; its trajectories are used up from now on.
    async fn commit(&self, commit: Commit) -> Result<()>;

    /// The state that `restore` needs, as opaque bytes. Trajectories in the store are not part of it.
    async fn snapshot(&self) -> Result<Vec<u8>>;

    /// Goes back to a snapshot. Called before any request is handed out.
    async fn restore(&self, snapshot: &[u8]) -> Result<()>;

    /// Where things stand.
    fn status(&self) -> CuratorStatus;

    /// Ends all waiting. Idempotent.
    fn close(&self);
}
