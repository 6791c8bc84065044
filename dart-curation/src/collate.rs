//! Groups and demonstrations become batches. Pure functions.
//!
//! Advantages are computed over all steps of a group, before anything is selected, split or
//! padded (arXiv 2509.23866 §3.4; its released code drops and duplicates steps before that).

use std::sync::Arc;

use dart_core::{Batch, BatchId, Group, Objective, Sample, SampleOrigin, Trajectory};

use crate::{
    advantage::{AdvantageConfig, token_advantages},
    error::{CurationError, Result},
    images::Images,
    overlong::OverlongConfig,
};

/// How outcomes become advantages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Credit {
    /// Which estimate.
    pub advantage: AdvantageConfig,
    /// What long trajectories lose before it.
    pub overlong: OverlongConfig,
}

/// A group with the origin of each of its trajectories.
#[derive(Clone, Debug)]
pub struct TrainingGroup {
    /// The scored trajectories.
    pub group: Group,
    /// Where each of them comes from, in the same order.
    pub origins: Vec<SampleOrigin>,
}

impl TrainingGroup {
    /// A group of rollouts alone.
    pub fn of_rollouts(group: Group) -> Self {
        let origins = vec![SampleOrigin::Rollout; group.trajectories.len()];
        Self { group, origins }
    }
}

/// Makes a policy-gradient batch: one sample for each step of each trajectory, in order of the
/// groups, with an advantage for each token and each image once.
///
/// # Errors
/// [`Internal`](dart_core::ErrorKind::Internal) if a trajectory has no reward or a prompt refers to
/// an image that the trajectory does not have.
///
/// # Panics
/// If a group does not have one origin for each trajectory: a bug of the caller.
pub fn collate(id: BatchId, groups: &[TrainingGroup], credit: &Credit) -> dart_core::Result<Batch> {
    policy_gradient(id, groups, credit).map_err(|error| error.during("collate"))
}

/// Makes an imitation batch out of demonstrations: one sample for each step, no log-probs.
///
/// # Errors
/// [`Internal`](dart_core::ErrorKind::Internal) if a prompt refers to an image that the trajectory
/// does not have.
pub fn imitation_batch(id: BatchId, trajectories: &[Trajectory]) -> dart_core::Result<Batch> {
    imitation(id, trajectories).map_err(|error| error.during("make an imitation batch"))
}

fn policy_gradient(id: BatchId, groups: &[TrainingGroup], credit: &Credit) -> Result<Batch> {
    let mut images = Images::default();
    let mut samples = Vec::new();
    let mut rewards = Vec::with_capacity(groups.len());
    for TrainingGroup { group, origins } in groups {
        assert_eq!(
            group.trajectories.len(),
            origins.len(),
            "one origin for each trajectory"
        );
        rewards.push(shaped_rewards(group, &credit.overlong)?);
        for (trajectory, origin) in group.trajectories.iter().zip(origins) {
            for step in 0..trajectory.steps.len() {
                let mut sample = sample(&mut images, trajectory, step)?;
                sample.group = group.id;
                sample.origin = *origin;
                samples.push(sample);
            }
        }
    }
    let groups: Vec<&Group> = groups.iter().map(|training| &training.group).collect();
    let advantages = token_advantages(&credit.advantage, &groups, &rewards);
    for (sample, advantages) in samples.iter_mut().zip(advantages) {
        sample.advantages = advantages;
    }
    Ok(Batch {
        id,
        objective: Objective::PolicyGradient,
        images: images.into_vec(),
        samples,
    })
}

fn imitation(id: BatchId, trajectories: &[Trajectory]) -> Result<Batch> {
    let mut images = Images::default();
    let mut samples = Vec::new();
    for trajectory in trajectories {
        for step in 0..trajectory.steps.len() {
            let mut sample = sample(&mut images, trajectory, step)?;
            sample.origin = SampleOrigin::Expert;
            sample.rollout_log_probs = Arc::default();
            samples.push(sample);
        }
    }
    Ok(Batch {
        id,
        objective: Objective::Imitation,
        images: images.into_vec(),
        samples,
    })
}

fn shaped_rewards(group: &Group, overlong: &OverlongConfig) -> Result<Vec<f64>> {
    group
        .trajectories
        .iter()
        .map(|trajectory| {
            let reward = trajectory.outcome.reward();
            let reward = reward.ok_or(CurationError::NoReward(trajectory.id))?;
            let (steps, horizon) = (trajectory.steps.len(), trajectory.task.horizon);
            Ok(overlong.shaped(reward.value(), steps, horizon))
        })
        .collect()
}

fn sample(images: &mut Images, trajectory: &Trajectory, step: usize) -> Result<Sample> {
    let decision = &trajectory.steps[step].decision;
    Ok(Sample {
        trajectory: trajectory.id,
        step: step as u32,
        group: trajectory.group,
        origin: SampleOrigin::Rollout,
        prompt: images.remap(trajectory, step)?,
        response: decision.token_ids.clone(),
        rollout_log_probs: decision.rollout_log_probs.clone(),
        log_prob_kind: decision.log_prob_kind,
        temperature: decision.temperature,
        version: decision.version,
        advantages: Arc::default(),
    })
}
