//! [`CurationConfig`]: every choice of the data manager, with the reason for its default.
//!
//! The defaults are the preset `paper` (arXiv 2509.23866 §3); [`CurationConfig::released`] is what
//! its released code does where the two differ.

use dart_core::selection::Deviation;
use serde::{Deserialize, Serialize};

use crate::{
    error::{CurationError, Result},
    pool::PoolConfig,
    rollout_number::RolloutNumberConfig,
    sampler::SamplerConfig,
    trajectory_length::TrajectoryLengthConfig,
};

/// Every choice of the data manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CurationConfig {
    /// Groups that a batch needs. Default 8: the released code trains on 6 to 8 tasks a step.
    pub groups_per_batch: usize,
    /// Groups that a batch takes at most, if more are ready. Default 8: batches of one size.
    pub max_groups_per_batch: usize,
    /// Rollouts of a group while the dynamic rollout number is off. Default 8 (paper).
    pub rollouts_per_group: u32,
    /// Scored trajectories below which a group is dropped. Default 2: one alone has no spread.
    pub min_group_size: usize,
    /// Times that one slot is handed out before it is given up. Default 4: at 5 % aborts a slot is
    /// lost once in 160,000.
    pub max_attempts: u32,
    /// Rollouts in flight at most. Default 256: the paper's cluster has 80 environments.
    pub max_in_flight: usize,
    /// Largest learner version − oldest version of a trajectory at consumption. Default 1: the
    /// paper trains on trajectories of the newest two published versions.
    pub max_staleness: u64,
    /// Temperature of the rollouts. Default 1 (paper).
    pub temperature: f32,
    /// Which deviation advantages are divided by. Default population (paper).
    pub deviation: Deviation,
    /// Which tasks and seeds come next.
    pub sampler: SamplerConfig,
    /// Fewer rollouts for tasks that go well.
    pub rollout_number: RolloutNumberConfig,
    /// Shorter episodes for tasks that are solved in few steps.
    pub trajectory_length: TrajectoryLengthConfig,
    /// Earlier successes for groups in which every rollout failed.
    pub pool: PoolConfig,
}

impl Default for CurationConfig {
    fn default() -> Self {
        Self {
            groups_per_batch: 8,
            max_groups_per_batch: 8,
            rollouts_per_group: 8,
            min_group_size: 2,
            max_attempts: 4,
            max_in_flight: 256,
            max_staleness: 1,
            temperature: 1.0,
            deviation: Deviation::Population,
            sampler: SamplerConfig::default(),
            rollout_number: RolloutNumberConfig::default(),
            trajectory_length: TrajectoryLengthConfig::default(),
            pool: PoolConfig::default(),
        }
    }
}

impl CurationConfig {
    /// What the released code does: sample deviation, no dynamic length, newest pool success.
    pub fn released() -> Self {
        Self {
            deviation: Deviation::Sample,
            trajectory_length: TrajectoryLengthConfig {
                enabled: false,
                ..TrajectoryLengthConfig::default()
            },
            pool: PoolConfig::released(),
            ..Self::default()
        }
    }

    /// Checks what no type can say.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the key.
    pub fn validate(&self) -> dart_core::Result<()> {
        self.check().map_err(|error| error.during("configure"))
    }

    fn check(&self) -> Result<()> {
        let rules = [
            (
                self.groups_per_batch >= 1,
                "groups_per_batch",
                "is at least 1",
            ),
            (
                self.max_groups_per_batch >= self.groups_per_batch,
                "max_groups_per_batch",
                "is at least groups_per_batch",
            ),
            (
                self.min_group_size >= 2,
                "min_group_size",
                "is at least 2: one trajectory has no spread",
            ),
            (
                self.rollouts_per_group as usize >= self.min_group_size,
                "rollouts_per_group",
                "is at least min_group_size",
            ),
            (
                self.rollouts_per_group <= 4096,
                "rollouts_per_group",
                "is at most 4096",
            ),
            (self.max_attempts >= 1, "max_attempts", "is at least 1"),
            (self.max_in_flight >= 1, "max_in_flight", "is at least 1"),
            (
                self.temperature.is_finite() && self.temperature >= 0.0,
                "temperature",
                "is a finite number, 0 or more",
            ),
        ];
        for (holds, key, rule) in rules {
            if !holds {
                return Err(CurationError::BadSetting { key, rule });
            }
        }
        self.rollout_number.check(self.min_group_size)?;
        self.trajectory_length.check()?;
        self.sampler.check()?;
        self.pool.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid() {
        CurationConfig::default().validate().unwrap();
        CurationConfig::released().validate().unwrap();
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let config = CurationConfig {
            max_groups_per_batch: 3,
            ..CurationConfig::default()
        };
        let error = config.validate().unwrap_err();
        assert_eq!(error.kind(), dart_core::ErrorKind::Config);
        assert!(
            error.to_string().contains("max_groups_per_batch"),
            "{error}"
        );
    }

    #[test]
    fn unknown_keys_are_refused_and_missing_ones_defaulted() {
        assert!(serde_json::from_str::<CurationConfig>(r#"{"groups_per_bach": 3}"#).is_err());
        let config: CurationConfig = serde_json::from_str(r#"{"max_staleness": 4}"#).unwrap();
        assert_eq!(config.max_staleness, 4);
        assert_eq!(config.groups_per_batch, 8);
    }
}
