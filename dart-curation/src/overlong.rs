//! Overlong shaping: what comes close to the limit is worth less (DAPO, arXiv 2503.14476 §3.4).
//!
//! Deviation: DAPO counts the tokens of one answer, which is what its limit cuts. An agent's answer
//! is an action and short; what is cut is the episode. So length means *steps of the trajectory*,
//! and the limit is the task's horizon. The dynamic trajectory length is no measure: it moves with
//! the task's successes, and a reward must not depend on when its rollout was made.
//!
//! Only advantages see the shaped rewards. Success rates, spread, the pool and reports keep to the
//! outcome, as DAPO's choice of groups does.

use serde::{Deserialize, Serialize};

use crate::error::{CurationError, Result};

/// Overlong shaping.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverlongConfig {
    /// Whether long trajectories lose reward. Default false: the paper has no such thing.
    pub enabled: bool,
    /// Share of the horizon, at its end, over which the reward falls by 1 in all. Default 0.2:
    /// DAPO has 4096 of 20480 tokens.
    pub buffer: f64,
}

impl Default for OverlongConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            buffer: 0.2,
        }
    }
}

impl OverlongConfig {
    pub(crate) fn check(&self) -> Result<()> {
        if self.buffer > 0.0 && self.buffer <= 1.0 {
            return Ok(());
        }
        Err(CurationError::BadSetting {
            key: "overlong.buffer",
            rule: "lies above 0 and is at most 1",
        })
    }

    /// `reward` of a trajectory of `steps` steps out of at most `horizon`.
    pub fn shaped(&self, reward: f64, steps: usize, horizon: u32) -> f64 {
        if !self.enabled {
            return reward;
        }
        let limit = f64::from(horizon);
        reward + overlong_penalty(steps as f64, limit, self.buffer * limit)
    }
}

/// max(−1, −(length − (limit − buffer))/buffer) beyond limit − buffer, 0 before: never above 0.
///
/// ```
/// use dart_curation::overlong::overlong_penalty;
///
/// assert_eq!(overlong_penalty(24.0, 30.0, 6.0), 0.0);
/// assert_eq!(overlong_penalty(27.0, 30.0, 6.0), -0.5);
/// assert_eq!(overlong_penalty(40.0, 30.0, 6.0), -1.0);
/// ```
pub fn overlong_penalty(length: f64, limit: f64, buffer: f64) -> f64 {
    let excess = length - (limit - buffer);
    if excess <= 0.0 {
        return 0.0;
    }
    (-excess / buffer).max(-1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn off_changes_nothing() {
        let config = OverlongConfig::default();
        assert_eq!(config.shaped(1.0, 30, 30), 1.0);
        let on = OverlongConfig {
            enabled: true,
            ..config
        };
        assert_eq!(on.shaped(1.0, 24, 30), 1.0);
        assert_eq!(on.shaped(1.0, 30, 30), 0.0);
        assert_eq!(on.shaped(0.0, 27, 30), -0.5);
        for buffer in [0.0, 1.5, f64::NAN] {
            assert!(OverlongConfig { buffer, ..on }.check().is_err());
        }
    }

    proptest! {
        /// Only downwards, by 1 at most, more for longer ones, and not before the buffer.
        #[test]
        fn rewards_only_fall(
            reward in 0.0f64..=1.0, steps in 0usize..80, more in 0usize..20,
            horizon in 1u32..60, buffer in 0.01f64..=1.0,
        ) {
            let config = OverlongConfig { enabled: true, buffer };
            let shaped = config.shaped(reward, steps, horizon);
            prop_assert!(shaped <= reward && shaped >= reward - 1.0 - 1e-12);
            prop_assert!(config.shaped(reward, steps + more, horizon) <= shaped);
            let limit = f64::from(horizon);
            if (steps as f64) <= limit - buffer * limit {
                prop_assert_eq!(shaped, reward);
            }
            if steps >= horizon as usize {
                prop_assert!((shaped - (reward - 1.0)).abs() < 1e-9);
            }
        }
    }
}
