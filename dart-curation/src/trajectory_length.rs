//! How long a rollout may be: little more than the longest success of its task so far
//! (arXiv 2509.23866 §3.3; absent from its released code).
//!
//! Deviation from the paper: a margin, a lower limit and occasional uncapped probes, without which
//! a first lucky success would forbid every longer solution for ever.

use serde::{Deserialize, Serialize};

use crate::error::{CurationError, Result};

/// The dynamic trajectory length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrajectoryLengthConfig {
    /// Whether rollouts are capped by the longest success. Default true (paper).
    pub enabled: bool,
    /// Share of the longest success added to it. Default 0.5: a retry or two still fits.
    pub margin: f64,
    /// Least cap, in steps. Default 3: one step to look, one to act, one to say done.
    pub min_steps: u32,
    /// One group of a task in this many is not capped; 0 means none. Default 8.
    pub probe_every: u64,
}

impl Default for TrajectoryLengthConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            margin: 0.5,
            min_steps: 3,
            probe_every: 8,
        }
    }
}

impl TrajectoryLengthConfig {
    pub(crate) fn check(&self) -> Result<()> {
        if !self.margin.is_finite() || self.margin < 0.0 {
            return Err(CurationError::BadSetting {
                key: "trajectory_length.margin",
                rule: "is a finite number, 0 or more",
            });
        }
        if self.min_steps == 0 {
            return Err(CurationError::BadSetting {
                key: "trajectory_length.min_steps",
                rule: "is at least 1",
            });
        }
        Ok(())
    }
}

/// The step limit of the `visit`-th group (from 0) of a task whose longest success had
/// `longest_success` steps: clamp(ceil(longest · (1 + margin)), min_steps, horizon), and the
/// horizon while there is no success and for probes.
pub fn step_limit(
    config: &TrajectoryLengthConfig,
    longest_success: Option<u32>,
    visit: u64,
    horizon: u32,
) -> u32 {
    let probe = config.probe_every > 0 && visit % config.probe_every == config.probe_every - 1;
    match longest_success {
        Some(longest) if config.enabled && !probe => {
            let cap = (f64::from(longest) * (1.0 + config.margin)).ceil() as u32;
            cap.max(config.min_steps).min(horizon)
        }
        _ => horizon,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_cap_follows_the_longest_success() {
        let config = TrajectoryLengthConfig::default();
        assert_eq!(step_limit(&config, None, 0, 30), 30);
        assert_eq!(step_limit(&config, Some(1), 0, 30), 3);
        assert_eq!(step_limit(&config, Some(5), 0, 30), 8);
        assert_eq!(step_limit(&config, Some(25), 0, 30), 30);
        assert_eq!(step_limit(&config, Some(5), 7, 30), 30, "a probe");
        assert_eq!(step_limit(&config, Some(1), 0, 2), 2, "the horizon wins");
        let off = TrajectoryLengthConfig {
            enabled: false,
            ..config
        };
        assert_eq!(step_limit(&off, Some(5), 0, 30), 30);
    }

    proptest! {
        #[test]
        fn the_cap_never_forbids_what_succeeded(
            longest in 1u32..40, more in 0u32..10, visit in 0u64..50, margin in 0.0f64..2.0,
        ) {
            let config = TrajectoryLengthConfig { margin, ..TrajectoryLengthConfig::default() };
            let horizon = 50;
            let cap = step_limit(&config, Some(longest), visit, horizon);
            prop_assert!(cap >= longest && cap <= horizon);
            let later = step_limit(&config, Some(longest + more), visit, horizon);
            prop_assert!(later >= cap, "the cap is monotone in the longest success");
        }
    }
}
