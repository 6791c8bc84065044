//! Which estimate of advantages a batch gets. The formulas are in [`dart_core::advantage`].

use std::sync::Arc;

use dart_core::{
    Group, Observation, Size, Step,
    advantage::{
        ADVANTAGE_EPSILON, Deviation, Gigpo, centred_advantages, discounted_outcome,
        gigpo_advantages, grpo_advantages, leave_one_out_advantages, step_wise_advantages, whiten,
    },
};
use serde::{Deserialize, Serialize};

use crate::error::{CurationError, Result};

/// How rewards become advantages. Generalised advantage estimation is not among them: it needs a
/// critic, which the built-in learner does not have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AdvantageConfig {
    /// Group-relative, each step counting once (paper, arXiv 2509.23866 §3.4).
    StepWise {
        /// Which deviation is divided by. Default population (paper).
        #[serde(default)]
        deviation: Deviation,
    },
    /// Group-relative, each trajectory counting once (arXiv 2402.03300).
    Grpo {
        /// Added to the unbiased deviation. Default 1e-6 (verl); AReaL has 1e-5, TRL 1e-4.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Reward less the group's mean (Dr. GRPO, arXiv 2503.20783).
    DrGrpo {},
    /// Reward less the mean of the group's others (arXiv 2402.14740).
    Rloo {},
    /// Discounted return of each token of the trajectory, whitened over the batch
    /// (REINFORCE++, arXiv 2501.03262).
    #[serde(rename = "reinforce++")]
    ReinforcePlusPlus {
        /// Discount by generated token. Default 1: a GUI episode has a thousand and more.
        #[serde(default = "one")]
        discount: f64,
    },
    /// Reward less the group's mean, whitened over all tokens of the batch (the same source).
    #[serde(rename = "reinforce++-baseline")]
    ReinforcePlusPlusBaseline {},
    /// Advantage of the episode plus that among steps of the group with the same observation
    /// (arXiv 2505.10978).
    Gigpo {
        /// Factor of the second. Default 1 (its paper).
        #[serde(default = "one")]
        weight: f64,
        /// Discount of the outcome by step. Default 0.95 (its paper).
        #[serde(default = "gigpo_discount")]
        discount: f64,
        /// Whether both are divided by their unbiased deviation. Default true (its paper).
        #[serde(default = "yes")]
        divided: bool,
        /// Added to that deviation. Default 1e-6.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
}

const fn epsilon() -> f64 {
    ADVANTAGE_EPSILON
}

const fn one() -> f64 {
    1.0
}

const fn gigpo_discount() -> f64 {
    0.95
}

const fn yes() -> bool {
    true
}

impl Default for AdvantageConfig {
    fn default() -> Self {
        Self::StepWise {
            deviation: Deviation::Population,
        }
    }
}

impl AdvantageConfig {
    /// What the released code divides by: the sample deviation of all steps.
    pub const fn released() -> Self {
        Self::StepWise {
            deviation: Deviation::Sample,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let (epsilon, discount, weight) = match *self {
            Self::Grpo { epsilon } => (epsilon, 1.0, 1.0),
            Self::ReinforcePlusPlus { discount } => (ADVANTAGE_EPSILON, discount, 1.0),
            Self::Gigpo {
                weight,
                discount,
                epsilon,
                ..
            } => (epsilon, discount, weight),
            _ => return Ok(()),
        };
        let rules = [
            (
                epsilon.is_finite() && epsilon > 0.0,
                "advantage.epsilon",
                "is a finite number above 0",
            ),
            (
                (0.0..=1.0).contains(&discount),
                "advantage.discount",
                "lies in 0 to 1",
            ),
            (
                weight.is_finite() && weight >= 0.0,
                "advantage.weight",
                "is a finite number, 0 or more",
            ),
        ];
        match rules.iter().find(|(holds, ..)| !holds) {
            Some((_, key, rule)) => Err(CurationError::BadSetting { key, rule }),
            None => Ok(()),
        }
    }
}

/// Advantages of a batch, one for each response token: in order of the groups, their trajectories,
/// and the steps of these. `rewards` holds one number for each trajectory, shaped or not.
///
/// # Panics
/// If `rewards` does not fit `groups`: a bug of the caller.
pub fn token_advantages(
    config: &AdvantageConfig,
    groups: &[&Group],
    rewards: &[Vec<f64>],
) -> Vec<Arc<[f64]>> {
    assert_eq!(groups.len(), rewards.len(), "rewards for each group");
    let estimates = groups
        .iter()
        .zip(rewards)
        .flat_map(|(group, rewards)| of_group(config, group, rewards));
    let mut tokens: Vec<Vec<f64>> = estimates.collect();
    let whitened = matches!(
        config,
        AdvantageConfig::ReinforcePlusPlus { .. } | AdvantageConfig::ReinforcePlusPlusBaseline {}
    );
    if whitened {
        let mut all = tokens.concat();
        whiten(&mut all);
        let mut all = all.into_iter();
        for advantage in tokens.iter_mut().flatten() {
            *advantage = all.next().unwrap_or_default();
        }
    }
    tokens.into_iter().map(Arc::from).collect()
}

/// One row of token advantages for each step of the group.
fn of_group(config: &AdvantageConfig, group: &Group, rewards: &[f64]) -> Vec<Vec<f64>> {
    assert_eq!(
        group.trajectories.len(),
        rewards.len(),
        "one reward for each trajectory"
    );
    let by_trajectory = match *config {
        AdvantageConfig::StepWise { deviation } => {
            step_wise_advantages(rewards, &group.lengths(), deviation)
        }
        AdvantageConfig::Grpo { epsilon } => grpo_advantages(rewards, epsilon),
        AdvantageConfig::DrGrpo {} | AdvantageConfig::ReinforcePlusPlusBaseline {} => {
            centred_advantages(rewards)
        }
        AdvantageConfig::Rloo {} => leave_one_out_advantages(rewards),
        AdvantageConfig::ReinforcePlusPlus { discount } => {
            return returns_by_token(group, rewards, discount);
        }
        AdvantageConfig::Gigpo { .. } => return gigpo(config, group, rewards),
    };
    let trajectories = group.trajectories.iter().zip(by_trajectory);
    trajectories
        .flat_map(|(trajectory, advantage)| {
            let steps = trajectory.steps.iter();
            steps.map(move |step| vec![advantage; tokens(step)])
        })
        .collect()
}

fn tokens(step: &Step) -> usize {
    step.decision.token_ids.len()
}

/// Returns run over the generated tokens of the whole trajectory; its last one has the reward.
fn returns_by_token(group: &Group, rewards: &[f64], discount: f64) -> Vec<Vec<f64>> {
    let mut rows = Vec::new();
    for (trajectory, reward) in group.trajectories.iter().zip(rewards) {
        let length = trajectory.steps.iter().map(tokens).sum();
        let mut returns = discounted_outcome(*reward, length, discount);
        for step in &trajectory.steps {
            let rest = returns.split_off(tokens(step));
            rows.push(std::mem::replace(&mut returns, rest));
        }
    }
    rows
}

/// What a step saw. A group shares task and seed. Compared byte by byte, which ends at the first
/// difference.
fn seen(step: &Step) -> (u32, u32, &[u8], Option<&str>) {
    let Observation {
        frame,
        last_action_error,
        ..
    } = &step.observation;
    let Size { width, height } = frame.size();
    (width, height, frame.rgb(), last_action_error.as_deref())
}

fn gigpo(config: &AdvantageConfig, group: &Group, rewards: &[f64]) -> Vec<Vec<f64>> {
    let AdvantageConfig::Gigpo {
        weight,
        discount,
        divided,
        epsilon,
    } = *config
    else {
        return Vec::new();
    };
    let observations: Vec<Vec<_>> = group
        .trajectories
        .iter()
        .map(|trajectory| trajectory.steps.iter().map(seen).collect())
        .collect();
    let rule = Gigpo {
        weight,
        discount,
        epsilon: divided.then_some(epsilon),
    };
    let by_step = gigpo_advantages(rewards, &observations, rule);
    let steps = group.trajectories.iter().flat_map(|t| &t.steps);
    by_step
        .into_iter()
        .flatten()
        .zip(steps)
        .map(|(advantage, step)| vec![advantage; tokens(step)])
        .collect()
}
