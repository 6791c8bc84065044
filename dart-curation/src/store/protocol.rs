//! What callers and stores say to each other.

use dart_core::{
    BatchId, GroupId, Outcome, PolicyVersion, StopReason, TaskId, Trajectory, TrajectoryId,
};

/// Failed attempts after which a trajectory is quarantined.
pub const MAX_FAILURES: u32 = 3;

/// Why an attempt failed that never came to an end.
pub(super) fn lease_over(owner: &str) -> String {
    format!("{owner} claimed it, and neither used it nor gave it back in time")
}

/// Which trajectories [`TrajectoryStore::list`](super::TrajectoryStore::list) names.
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

impl TrajectoryQuery {
    /// Whether it names this trajectory, its limit aside.
    pub fn matches(&self, trajectory: &Trajectory) -> bool {
        let reward = trajectory.outcome.reward();
        let success = reward.map(dart_core::Reward::is_success);
        self.task
            .as_ref()
            .is_none_or(|task| *task == trajectory.task.id)
            && (self.success.is_none() || self.success == success)
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
    /// Newest policy version in it.
    pub newest_version: Option<PolicyVersion>,
    /// The batch that used it up, if any.
    pub used_in: Option<BatchId>,
    /// Why it is in quarantine, if it is.
    pub quarantined: Option<String>,
    /// Whether its steps are still stored.
    pub has_body: bool,
}

impl TrajectorySummary {
    pub(super) fn of(trajectory: &Trajectory) -> Self {
        let versions = trajectory.steps.iter().map(|step| step.decision.version);
        Self {
            id: trajectory.id,
            group: trajectory.group,
            task: trajectory.task.id.clone(),
            seed: trajectory.seed,
            outcome: trajectory.outcome,
            stop: trajectory.stop,
            steps: trajectory.steps.len() as u32,
            oldest_version: trajectory.oldest_version(),
            newest_version: versions.max(),
            used_in: None,
            quarantined: None,
            has_body: true,
        }
    }
}

/// Orders claims: a later one has a larger fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// Trajectories that somebody works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Shown with the acknowledgement; an outdated one is refused.
    pub fence: Fence,
    /// What was claimed.
    pub trajectories: Vec<TrajectoryId>,
}

/// A batch was trained on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Which batch.
    pub batch: BatchId,
    /// The learner's version after it.
    pub version: PolicyVersion,
    /// The claim on its trajectories. Pool samples are not claimed: they are used again.
    pub claim: Claim,
}

/// A checkpoint, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRef {
    /// Its version.
    pub version: PolicyVersion,
    /// The name of its folder, without path: run folders may be moved.
    pub name: String,
}

/// What one transaction writes when a checkpoint is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The checkpoint; the pointer of the run from now on.
    pub checkpoint: CheckpointRef,
    /// The oldest checkpoint that is kept. What the curator of that one did not need, and was
    /// stored by then, will never be asked for again.
    pub oldest_kept: PolicyVersion,
    /// What it contains that no earlier checkpoint does.
    pub uses: Vec<Use>,
    /// [`TrajectoryStore::watermark`](super::TrajectoryStore::watermark) just before its snapshot.
    pub watermark: u64,
    /// What its curator may still ask for.
    pub needed: Vec<TrajectoryId>,
}

/// Whether a failed trajectory will be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quarantined {
    /// It has failed too often, and stays out of all batches from now on.
    Yes,
    /// It may be tried again; so many attempts have failed.
    NotYet(u32),
}
