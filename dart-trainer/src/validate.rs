//! What a batch must be before anything is computed from it.

use dart_core::{Batch, LogProbKind, Objective, Sample, SampleOrigin};

use crate::{
    MissingLogProbs, TrainerConfig,
    error::{Result, TrainerError},
};

/// Checks every sample of `batch`. Nothing has been changed when this fails.
pub(crate) fn check_batch(batch: &Batch, config: &TrainerConfig) -> Result<()> {
    for (index, sample) in batch.samples.iter().enumerate() {
        sample.prompt.validate()?;
        if let Err(message) = check_sample(batch, sample, config) {
            return Err(TrainerError::Sample {
                message,
                index,
                trajectory: sample.trajectory.to_string(),
                step: sample.step,
            });
        }
    }
    Ok(())
}

fn check_sample(
    batch: &Batch,
    sample: &Sample,
    config: &TrainerConfig,
) -> Result<(), &'static str> {
    let images = &sample.prompt.images;
    if sample.response.is_empty() {
        return Err("a sample has no response");
    }
    if images.is_empty() && config.require_images {
        return Err("a sample has no image (require_images)");
    }
    if images
        .iter()
        .any(|span| span.image as usize >= batch.images.len())
    {
        return Err("a sample names an image that is not in the batch");
    }
    let log_probs = &sample.rollout_log_probs;
    if !log_probs.is_empty() && log_probs.len() != sample.response.len() {
        return Err("one rollout log-prob for each response token is needed");
    }
    match batch.objective {
        Objective::Imitation => Ok(()),
        Objective::PolicyGradient => check_rollout(sample, config),
    }
}

fn check_rollout(sample: &Sample, config: &TrainerConfig) -> Result<(), &'static str> {
    let log_probs = &sample.rollout_log_probs;
    if log_probs.is_empty() && config.missing_rollout_log_probs == MissingLogProbs::Error {
        return Err("rollout log-probs are missing (missing_rollout_log_probs)");
    }
    if log_probs.iter().any(|lp| !lp.is_finite() || *lp > 0.0) {
        return Err("rollout log-probs are finite and not positive");
    }
    if sample.advantages.len() != sample.response.len() {
        return Err("one advantage for each response token is needed");
    }
    if sample.advantages.iter().any(|a| !a.is_finite()) {
        return Err("an advantage is not finite");
    }
    let drawn = sample.origin == SampleOrigin::Rollout;
    if drawn && sample.log_prob_kind == LogProbKind::AfterTemperature && sample.temperature == 0.0 {
        return Err("a greedy rollout has no distribution to train on");
    }
    if !sample.temperature.is_finite() || sample.temperature < 0.0 {
        return Err("a temperature is a number of 0 or more");
    }
    Ok(())
}

/// Temperature of the distribution that the learner's log-probs belong to: the recorded log-probs'.
///
/// Experts draw nothing, so their temperature is 0; their tokens are scored at 1.
pub(crate) fn temperature(objective: Objective, sample: &Sample) -> f64 {
    let raw = sample.log_prob_kind == LogProbKind::Raw || sample.temperature == 0.0;
    if raw || objective == Objective::Imitation {
        1.0
    } else {
        f64::from(sample.temperature)
    }
}
