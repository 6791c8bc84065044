//! How an episode ends and what it is worth.

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// A finite number in `0.0..=1.0`: what a finished episode is worth.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Reward(f64);

impl Reward {
    /// The task was not done.
    pub const FAILURE: Self = Self(0.0);
    /// The task was done.
    pub const SUCCESS: Self = Self(1.0);

    /// Checks and wraps `value`.
    ///
    /// # Errors
    /// [`ErrorKind::Numeric`] if it is not finite or outside `0.0..=1.0`. One bad reward would
    /// poison the statistics of its whole group.
    pub fn new(value: f64) -> Result<Self> {
        if (0.0..=1.0).contains(&value) {
            return Ok(Self(value));
        }
        Err(Error::new(
            ErrorKind::Numeric,
            "dart-core",
            "reward",
            "a reward lies in 0 to 1",
        )
        .with("reward", value))
    }

    /// The number.
    pub const fn value(self) -> f64 {
        self.0
    }

    /// Whether the task counts as done: the reward is 1.
    pub fn is_success(self) -> bool {
        self.0 >= 1.0
    }
}

impl From<bool> for Reward {
    fn from(success: bool) -> Self {
        if success {
            Self::SUCCESS
        } else {
            Self::FAILURE
        }
    }
}

impl TryFrom<f64> for Reward {
    type Error = Error;

    fn try_from(value: f64) -> Result<Self> {
        Self::new(value)
    }
}

impl From<Reward> for f64 {
    fn from(reward: Reward) -> Self {
        reward.0
    }
}

/// What became of one requested rollout. Exactly one for each request (invariant I3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Outcome {
    /// The environment judged the episode.
    Scored {
        /// The judgement.
        reward: Reward,
    },
    /// The policy broke the rules (unparsable output, forbidden action): scored 0.
    PolicyFault,
    /// The infrastructure failed. Not a reward, in no statistic; the slot alone is retried.
    Aborted,
}

impl Outcome {
    /// The reward that enters statistics, or `None` if nothing may.
    pub const fn reward(self) -> Option<Reward> {
        match self {
            Self::Scored { reward } => Some(reward),
            Self::PolicyFault => Some(Reward::FAILURE),
            Self::Aborted => None,
        }
    }

    /// Whether the task was done.
    pub fn is_success(self) -> bool {
        self.reward().is_some_and(Reward::is_success)
    }
}

/// Why an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// The run was told to stop.
    Cancelled,
    /// The task ended, or the agent said done or fail.
    Completed,
    /// The environment failed and could not be recovered.
    EnvironmentError,
    /// The policy's output was not an action.
    ParseError,
    /// The step limit was reached.
    StepLimit,
    /// The wall-clock limit of the episode was reached.
    TimeLimit,
    /// The policy's token limit was reached.
    TokenLimit,
}

impl StopReason {
    /// Whether the episode was cut by a limit rather than ended by task or agent.
    pub const fn is_truncation(self) -> bool {
        matches!(self, Self::StepLimit | Self::TimeLimit | Self::TokenLimit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finite_unit_rewards_enter() {
        for bad in [f64::NAN, f64::INFINITY, -0.1, 1.000_001] {
            assert_eq!(Reward::new(bad).unwrap_err().kind(), ErrorKind::Numeric);
        }
        assert!(serde_json::from_str::<Reward>("1.5").is_err());
        assert_eq!(Reward::new(0.5).unwrap().value(), 0.5);
    }

    #[test]
    fn an_aborted_rollout_has_no_reward() {
        assert_eq!(Outcome::Aborted.reward(), None);
        assert_eq!(Outcome::PolicyFault.reward(), Some(Reward::FAILURE));
    }
}
