//! Importance weights: ω = old probability / rollout probability of a token, or of its sequence.
//!
//! They correct for tokens that another policy than the old one drew, and carry no gradient.
//! Logarithms of ω are clamped to ±20, after they were summed or averaged over a sequence.
//!
//! # Source
//! arXiv 2509.23866 §3.4 (truncated, cap 1); AReaL (arXiv 2505.24298) for decoupled PPO; IcePop
//! for masking.

use super::{Token, clamped_exp};

/// Whose ω a token is weighted with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightLevel {
    /// Its own.
    #[default]
    Token,
    /// The product over its sequence.
    SequenceSum,
    /// The geometric mean over its sequence.
    SequenceMean,
}

/// Correction for tokens that were drawn from another policy than the old one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Importance {
    /// None: weight 1.
    Off,
    /// min(ω, `cap`).
    Truncated {
        /// Whose ω.
        level: WeightLevel,
        /// The largest weight.
        cap: f64,
    },
    /// ω where it lies in [`low`, `high`], 0 elsewhere.
    Masked {
        /// Whose ω.
        level: WeightLevel,
        /// The smallest ω that counts.
        low: f64,
        /// The largest ω that counts.
        high: f64,
    },
}

impl Importance {
    /// Whose ω it needs; `None` if it needs none.
    pub const fn level(&self) -> Option<WeightLevel> {
        match self {
            Self::Off => None,
            Self::Truncated { level, .. } | Self::Masked { level, .. } => Some(*level),
        }
    }

    /// The weight for a logarithm of ω. NaN stays NaN.
    pub fn weight(&self, log_weight: f64) -> f64 {
        let (weight, _) = clamped_exp(log_weight);
        match *self {
            Self::Off => 1.0,
            // Not `min`, which would turn NaN into the cap.
            Self::Truncated { cap, .. } if weight > cap => cap,
            Self::Masked { low, high, .. } if weight < low || weight > high => 0.0,
            _ => weight,
        }
    }

    /// The weight of a token that stands alone.
    pub(super) fn of_token(&self, token: &Token, log_prob: f64) -> f64 {
        match log_weight(token, log_prob) {
            Some(log_weight) => self.weight(log_weight),
            None => 1.0,
        }
    }
}

/// log ω of one token; `None` without a rollout log-prob.
pub(super) fn log_weight(token: &Token, log_prob: f64) -> Option<f64> {
    token
        .rollout
        .map(|rollout| token.old.unwrap_or(log_prob) - rollout)
}
