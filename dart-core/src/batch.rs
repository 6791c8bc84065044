//! What the learner consumes: self-contained, ragged, without padding.

use std::sync::Arc;

use crate::{
    BatchId, Frame, GroupId, LogProbKind, PolicyVersion, Prompt, Reward, Trajectory, TrajectoryId,
    UiElement,
};

/// Trajectories of one request for one task instance.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its identity.
    pub id: GroupId,
    /// The scored trajectories. Aborted ones are never here.
    pub trajectories: Vec<Arc<Trajectory>>,
}

impl Group {
    /// Rewards of the trajectories, in order.
    pub fn rewards(&self) -> Vec<Reward> {
        self.trajectories
            .iter()
            .filter_map(|t| t.outcome.reward())
            .collect()
    }

    /// Steps of the trajectories, in order.
    pub fn lengths(&self) -> Vec<usize> {
        self.trajectories.iter().map(|t| t.steps.len()).collect()
    }

    /// Whether rewards differ: a group without spread teaches nothing.
    pub fn has_spread(&self) -> bool {
        let rewards = self.rewards();
        rewards.iter().any(|reward| *reward != rewards[0])
    }
}

/// What the batch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Maximise the likelihood of the responses (warm start). Advantages and log-probs are unused.
    Imitation,
    /// The policy-gradient loss (arXiv 2509.23866 §3.4).
    PolicyGradient,
}

/// An image that samples refer to.
#[derive(Clone, Debug)]
pub struct BatchImage {
    /// Its pixels.
    pub frame: Frame,
    /// Where texts are drawn on it, if known: labels of the auxiliary reading loss.
    pub ui: Option<Arc<[UiElement]>>,
}

/// Where a sample comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleOrigin {
    /// A rollout of this group.
    Rollout,
    /// The experience pool.
    Pool,
    /// A scripted expert.
    Expert,
}

/// One training sequence: one step of one trajectory.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The trajectory it was taken from.
    pub trajectory: TrajectoryId,
    /// The step within it.
    pub step: u32,
    /// The group whose statistics it shares.
    pub group: GroupId,
    /// Where it comes from.
    pub origin: SampleOrigin,
    /// What the model was shown; [`ImageSpan::image`](crate::ImageSpan::image) indexes [`Batch::images`].
    pub prompt: Prompt,
    /// The produced tokens, end token included. All of them carry loss.
    pub response: Arc<[u32]>,
    /// Log-probs of the response under the policy that acted. Empty for [`Objective::Imitation`].
    pub rollout_log_probs: Arc<[f32]>,
    /// Which distribution they belong to.
    pub log_prob_kind: LogProbKind,
    /// Temperature of the draw; the learner's log-probs use the same.
    pub temperature: f32,
    /// The weights that acted.
    pub version: PolicyVersion,
    /// One advantage for each response token; the same number for most estimates
    /// ([`advantage`](crate::advantage)). Empty for [`Objective::Imitation`].
    pub advantages: Arc<[f64]>,
}

/// One learner step's worth of samples. The learner asks nobody for more (invariant I4).
#[derive(Clone, Debug)]
pub struct Batch {
    /// Its identity.
    pub id: BatchId,
    /// What it is for.
    pub objective: Objective,
    /// The images of all samples, each once.
    pub images: Vec<BatchImage>,
    /// The samples.
    pub samples: Vec<Sample>,
}
