//! Estimates of advantages: pure functions from rewards to one number for each step or token.
//!
//! [`step_wise_advantages`] is the paper's (arXiv 2509.23866 §3.4), the others are those of its
//! peers, each with its source. None of them knows tasks, batches or padding: what belongs together
//! is the caller's choice. Deviations from the peers' code: means are divided by the count itself
//! (some add 1e-8 to it), and what stands alone has the advantage 0 instead of its raw reward.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

/// Which standard deviation an advantage is divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deviation {
    /// Divided by n: the paper.
    #[default]
    Population,
    /// Divided by n − 1: the released code.
    Sample,
}

/// Added to the standard deviation (arXiv 2509.23866 §3.4, its released code).
pub const ADVANTAGE_EPSILON: f64 = 1e-6;

/// Added to the variance when a batch is whitened, as the peers do.
const WHITENING_EPSILON: f64 = 1e-8;

/// Step-wise GRPO advantages of one group: one number for each trajectory, shared by its steps.
///
/// Every *step* counts once in mean and deviation, so a long trajectory weighs more:
/// A_i = (R_i − μ)/(σ + 1e-6) over the multiset that holds R_i once for each of its `lengths[i]`
/// steps. Over all steps of the group the advantages sum to zero.
///
/// # Panics
/// If the slices differ in length: a bug of the caller.
///
/// # Source
/// arXiv 2509.23866 §3.4.
///
/// ```
/// use dart_core::advantage::{Deviation, step_wise_advantages};
///
/// let advantages = step_wise_advantages(&[1.0, 0.0], &[3, 9], Deviation::Population);
/// assert!((advantages[0] - 1.7320).abs() < 1e-4);
/// assert!((advantages[1] + 0.5773).abs() < 1e-4);
/// ```
pub fn step_wise_advantages(rewards: &[f64], lengths: &[usize], deviation: Deviation) -> Vec<f64> {
    assert_eq!(rewards.len(), lengths.len(), "one length for each reward");
    let steps: usize = lengths.iter().sum();
    let over_steps = |value: &dyn Fn(f64) -> f64| -> f64 {
        rewards
            .iter()
            .zip(lengths)
            .map(|(r, l)| value(*r) * *l as f64)
            .sum()
    };
    let mean = over_steps(&|r| r) / steps.max(1) as f64;
    let divisor = match deviation {
        Deviation::Population => steps.max(1),
        Deviation::Sample => steps.saturating_sub(1).max(1),
    };
    let sd = (over_steps(&|r| (r - mean).powi(2)) / divisor as f64).sqrt();
    rewards
        .iter()
        .map(|r| (r - mean) / (sd + ADVANTAGE_EPSILON))
        .collect()
}

/// GRPO by trajectory: (R − mean)/(sd + `epsilon`) with the unbiased deviation (n − 1).
///
/// `epsilon` is 1e-6 in verl, 1e-5 in AReaL, 1e-4 in TRL. One trajectory alone gets 0.
///
/// # Source
/// arXiv 2402.03300 §4.1.
///
/// ```
/// let advantages = dart_core::advantage::grpo_advantages(&[1.0, 0.0], 1e-6);
/// assert!((advantages[0] - 0.7071).abs() < 1e-4);
/// ```
pub fn grpo_advantages(rewards: &[f64], epsilon: f64) -> Vec<f64> {
    let sd = variance(rewards).sqrt();
    let mut advantages = centred_advantages(rewards);
    for advantage in &mut advantages {
        *advantage /= sd + epsilon;
    }
    advantages
}

/// Dr. GRPO: R − mean, without a division, so that easy and hard tasks weigh what they differ.
///
/// # Source
/// arXiv 2503.20783 §3.2.
pub fn centred_advantages(rewards: &[f64]) -> Vec<f64> {
    let mean = mean(rewards);
    rewards.iter().map(|reward| reward - mean).collect()
}

/// RLOO: each reward less the mean of the others, which is n/(n − 1)(R − mean). One trajectory
/// alone gets 0.
///
/// # Source
/// arXiv 2402.14740 §2.2.
pub fn leave_one_out_advantages(rewards: &[f64]) -> Vec<f64> {
    let others = rewards.len().saturating_sub(1).max(1) as f64;
    let factor = rewards.len() as f64 / others;
    let mut advantages = centred_advantages(rewards);
    for advantage in &mut advantages {
        *advantage *= factor;
    }
    advantages
}

/// Discounted returns G_t = r_t + `discount` · G_{t+1} of one trajectory, by token or by step.
pub fn discounted_returns(rewards: &[f64], discount: f64) -> Vec<f64> {
    let mut returns = rewards.to_vec();
    for t in (0..returns.len().saturating_sub(1)).rev() {
        returns[t] += discount * returns[t + 1];
    }
    returns
}

/// Discounted returns of `length` tokens or steps of which the last one alone has a reward.
pub fn discounted_outcome(reward: f64, length: usize, discount: f64) -> Vec<f64> {
    let mut rewards = vec![0.0; length];
    if let Some(last) = rewards.last_mut() {
        *last = reward;
    }
    discounted_returns(&rewards, discount)
}

/// Shifts and scales `values` to the mean 0 and the unbiased variance 1, over all of them: what
/// REINFORCE++ does with the returns of a batch, and PPO with its advantages. Fewer than two
/// become 0.
///
/// # Source
/// arXiv 2501.03262 §3; 1e-8 is added to the variance.
pub fn whiten(values: &mut [f64]) {
    let mean = mean(values);
    let scale = (variance(values) + WHITENING_EPSILON).sqrt();
    for value in values {
        *value = (*value - mean) / scale;
    }
}

/// Generalised advantage estimation of one trajectory.
#[derive(Clone, Debug, PartialEq)]
pub struct Gae {
    /// Advantages, not whitened.
    pub advantages: Vec<f64>,
    /// What a critic is fitted to: advantage + value.
    pub returns: Vec<f64>,
}

/// Generalised advantage estimation, by token: δ_t = r_t + γ V_{t+1} − V_t and
/// A_t = δ_t + γ λ A_{t+1}, with the value 0 after the end.
///
/// It needs the values of a critic, which the built-in learner does not have: this is for learners
/// that bring one.
///
/// # Panics
/// If the slices differ in length: a bug of the caller.
///
/// # Source
/// arXiv 1506.02438 §3.
///
/// ```
/// let gae = dart_core::advantage::generalised_advantages(&[0.0, 1.0], &[0.4, 0.5], 0.99, 0.95);
/// assert!((gae.returns[0] - 0.96525).abs() < 1e-12);
/// ```
pub fn generalised_advantages(rewards: &[f64], values: &[f64], discount: f64, lambda: f64) -> Gae {
    assert_eq!(rewards.len(), values.len(), "one value for each reward");
    let (mut next_value, mut next_advantage) = (0.0, 0.0);
    let mut advantages = vec![0.0; rewards.len()];
    for t in (0..rewards.len()).rev() {
        let surprise = rewards[t] + discount * next_value - values[t];
        next_advantage = surprise + discount * lambda * next_advantage;
        next_value = values[t];
        advantages[t] = next_advantage;
    }
    let returns = advantages.iter().zip(values).map(|(a, v)| a + v).collect();
    Gae {
        advantages,
        returns,
    }
}

/// How GiGPO weighs its two advantages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gigpo {
    /// Factor of the advantage among steps with the same observation.
    pub weight: f64,
    /// Discount of the outcome by step.
    pub discount: f64,
    /// Added to the unbiased deviation; `None` divides by nothing.
    pub epsilon: Option<f64>,
}

/// GiGPO advantages of one group (same task, same initial state): for each trajectory one number
/// for each step, A_episode + `weight` · A_step.
///
/// A_episode compares outcomes of trajectories. A_step compares the discounted returns of all steps
/// of the group at which the same was observed; a step whose observation nobody else had gets 0
/// there. `observations` names for each trajectory what was observed at each step.
///
/// # Panics
/// If the slices differ in length: a bug of the caller.
///
/// # Source
/// arXiv 2505.10978 §4.
pub fn gigpo_advantages<K: Ord>(
    rewards: &[f64],
    observations: &[Vec<K>],
    rule: Gigpo,
) -> Vec<Vec<f64>> {
    assert_eq!(rewards.len(), observations.len(), "one row for each reward");
    let relative = |values: &[f64]| match rule.epsilon {
        Some(epsilon) => grpo_advantages(values, epsilon),
        None => centred_advantages(values),
    };
    let mut advantages: Vec<Vec<f64>> = relative(rewards)
        .into_iter()
        .zip(observations)
        .map(|(advantage, row)| vec![advantage; row.len()])
        .collect();
    let mut visits: BTreeMap<&K, Vec<(usize, usize, f64)>> = BTreeMap::new();
    for (i, (reward, row)) in rewards.iter().zip(observations).enumerate() {
        let returns = discounted_outcome(*reward, row.len(), rule.discount);
        for (j, (seen, value)) in row.iter().zip(returns).enumerate() {
            visits.entry(seen).or_default().push((i, j, value));
        }
    }
    for places in visits.into_values() {
        let returns: Vec<f64> = places.iter().map(|(.., value)| *value).collect();
        for ((i, j, _), advantage) in places.into_iter().zip(relative(&returns)) {
            advantages[i][j] += rule.weight * advantage;
        }
    }
    advantages
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The unbiased variance; 0 of fewer than two.
fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    squares / values.len().saturating_sub(1).max(1) as f64
}
