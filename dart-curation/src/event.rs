//! What the data manager tells the event log.

use std::sync::Arc;

use dart_core::{
    BatchId, GroupId, Outcome, PolicyVersion, SampleOrigin, StopReason, TaskId, TrajectoryId,
};
use serde::Serialize;

use crate::groups::DropReason;

/// Something that the data manager did. It carries no time: whoever logs it adds that.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum CurationEvent {
    /// A rollout was handed out.
    Request {
        /// The trajectory to be made.
        trajectory: TrajectoryId,
        /// Its group.
        group: GroupId,
        /// What is to be done.
        task: TaskId,
        /// The seed of the task instance.
        seed: u64,
        /// Step limit of the rollout.
        step_limit: u32,
        /// Whether the same slot was handed out before.
        again: bool,
    },
    /// A trajectory was taken in.
    Ingest {
        /// Which one.
        trajectory: TrajectoryId,
        /// Its group.
        group: GroupId,
        /// What it was worth.
        outcome: Outcome,
        /// Why it ended.
        stop: StopReason,
        /// Its steps.
        steps: u32,
        /// Version of the oldest weights that acted in it.
        oldest_version: Option<PolicyVersion>,
    },
    /// A group is complete and waits for a batch.
    GroupReady {
        /// Which group.
        group: GroupId,
        /// Its task.
        task: TaskId,
        /// Its seed.
        seed: u64,
        /// Rewards of its trajectories.
        rewards: Vec<f64>,
        /// Where each of them comes from.
        origins: Vec<SampleOrigin>,
    },
    /// A group will not be trained on.
    GroupDropped {
        /// Which group.
        group: GroupId,
        /// Its task.
        task: TaskId,
        /// Why.
        reason: DropReason,
        /// Rewards of what was left of it.
        rewards: Vec<f64>,
    },
    /// A batch was handed out.
    Batch {
        /// Which batch.
        batch: BatchId,
        /// Its groups, in order.
        groups: Vec<GroupId>,
        /// Its trajectories.
        trajectories: usize,
        /// Those of them that it uses up: all but those of the pool.
        rollouts: Vec<TrajectoryId>,
        /// Its samples.
        samples: usize,
        /// Largest staleness of a rollout in it, had it been trained on at once.
        max_staleness: u64,
    },
    /// A batch was trained on.
    Commit {
        /// Which batch.
        batch: BatchId,
        /// The learner's version after it.
        version: PolicyVersion,
    },
}

/// Takes events in the order in which they happen. It is called with the manager's lock held: it
/// must return quickly and must not call the manager.
pub type CurationEventSink = Arc<dyn Fn(&CurationEvent) + Send + Sync>;
