//! The recorded data of one episode.

use std::sync::Arc;

use crate::{
    Decision, GroupId, Observation, Outcome, PolicyVersion, StopReason, Task, TrajectoryId,
};

/// One observation, the decision taken on it, and how long both took.
#[derive(Clone, Debug)]
pub struct Step {
    /// What the policy saw.
    pub observation: Observation,
    /// What it decided.
    pub decision: Decision,
    /// Milliseconds spent in the policy.
    pub decide_ms: f64,
    /// Milliseconds spent in the environment.
    pub act_ms: f64,
}

/// The recorded data of one episode.
#[derive(Clone, Debug)]
pub struct Trajectory {
    /// Its identity, from the request.
    pub id: TrajectoryId,
    /// The group it belongs to.
    pub group: GroupId,
    /// What was to be done.
    pub task: Arc<Task>,
    /// The seed of the task instance; the same for the whole group.
    pub seed: u64,
    /// The instruction that the policy was given.
    pub instruction: Arc<str>,
    /// The steps; empty if the episode could not begin.
    pub steps: Vec<Step>,
    /// What it was worth.
    pub outcome: Outcome,
    /// Why it ended.
    pub stop: StopReason,
    /// What went wrong, if it was aborted.
    pub error: Option<String>,
}

impl Trajectory {
    /// Oldest policy version in the trajectory; `None` without steps.
    pub fn oldest_version(&self) -> Option<PolicyVersion> {
        self.steps.iter().map(|step| step.decision.version).min()
    }

    /// Learner version − oldest version in the trajectory.
    pub fn staleness(&self, learner: PolicyVersion) -> u64 {
        self.oldest_version()
            .map_or(0, |oldest| learner.since(oldest))
    }
}
