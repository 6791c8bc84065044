//! How many rollouts a task gets: fewer the better it goes (arXiv 2509.23866 §3.3).

use serde::{Deserialize, Serialize};

use crate::error::{CurationError, Result};

/// The dynamic rollout number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutNumberConfig {
    /// Whether the number follows the success rate. Default true (paper).
    pub enabled: bool,
    /// Rollouts of a task that goes badly. Default 8 (paper).
    pub max: u32,
    /// Rollouts of a task that goes well. Default 2: the paper's 1 is never reached by its own
    /// formula, and a group of one teaches nothing.
    pub min: u32,
    /// Success rate below which a task gets `max`. Default 0.6 (paper).
    pub threshold: f64,
}

impl Default for RolloutNumberConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            max: 8,
            min: 2,
            threshold: 0.6,
        }
    }
}

impl RolloutNumberConfig {
    pub(crate) fn check(&self, min_group_size: usize) -> Result<()> {
        let rules = [
            (
                self.min as usize >= min_group_size,
                "rollout_number.min",
                "is at least min_group_size",
            ),
            (
                self.max >= self.min && self.max <= 4096,
                "rollout_number.max",
                "is at least rollout_number.min and at most 4096",
            ),
            (
                self.threshold > 0.0 && self.threshold <= 1.0,
                "rollout_number.threshold",
                "lies above 0 and is at most 1",
            ),
        ];
        for (holds, key, rule) in rules {
            if !holds {
                return Err(CurationError::BadSetting { key, rule });
            }
        }
        Ok(())
    }
}

/// The number of rollouts of a task with success rate `rate`: `max` below the threshold, from
/// there floor(9/rate − 7), held within `min..=max`.
///
/// ```
/// use dart_curation::rollout_number::{RolloutNumberConfig, rollout_number};
///
/// let config = RolloutNumberConfig::default();
/// assert_eq!(rollout_number(&config, 0.75), 5);
/// ```
pub fn rollout_number(config: &RolloutNumberConfig, rate: f64) -> u32 {
    if rate < config.threshold {
        return config.max;
    }
    // A rate such as 9/13 is not exact in binary; what is an integer on paper must not fall below.
    let number = (9.0 / rate - 7.0 + 1e-9).floor().max(0.0) as u32;
    number.clamp(config.min, config.max)
}

/// Mean of the latest `window` rewards; 0 of none (a new task counts as unsolved).
pub fn recent_rate(rewards: impl DoubleEndedIterator<Item = f64>, window: u32) -> f64 {
    let (sum, count) = rewards
        .rev()
        .take(window as usize)
        .fold((0.0, 0u32), |(sum, count), reward| {
            (sum + reward, count + 1)
        });
    if count == 0 {
        return 0.0;
    }
    sum / f64::from(count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_of_the_paper() {
        let table = [
            (0.0, 8),
            (0.599, 8),
            (0.60, 8),
            (0.625, 7),
            (0.65, 6),
            (0.70, 5),
            (0.75, 5),
            (0.80, 4),
            (0.85, 3),
            (0.90, 3),
            (0.95, 2),
            (1.0, 2),
        ];
        for (rate, number) in table {
            assert_eq!(
                rollout_number(&RolloutNumberConfig::default(), rate),
                number,
                "rate {rate}"
            );
        }
    }

    #[test]
    fn the_rate_is_of_the_latest() {
        let rewards = [1.0, 0.0, 0.0, 1.0];
        assert_eq!(recent_rate(rewards.into_iter(), 2), 0.5);
        assert_eq!(recent_rate(rewards.into_iter(), 1), 1.0);
        assert_eq!(recent_rate(rewards.into_iter(), 8), 0.5);
        assert_eq!(recent_rate([].into_iter(), 8), 0.0);
    }

    proptest! {
        /// Rates of k successes in n rollouts, against integers: floor(9n/k − 7).
        #[test]
        fn the_formula_in_integers(n in 1u32..40, k in 0u32..40) {
            let k = k.min(n);
            let number = rollout_number(&RolloutNumberConfig::default(), f64::from(k) / f64::from(n));
            let expected = if 5 * k < 3 * n { 8 } else { (9 * n / k - 7).clamp(2, 8) };
            prop_assert_eq!(number, expected, "{} of {}", k, n);
        }

        #[test]
        fn better_tasks_never_get_more(a in 0.0f64..=1.0, b in 0.0f64..=1.0) {
            let config = RolloutNumberConfig::default();
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            prop_assert!(rollout_number(&config, low) >= rollout_number(&config, high));
            prop_assert!((config.min..=config.max).contains(&rollout_number(&config, a)));
        }
    }
}
