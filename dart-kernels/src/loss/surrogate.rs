//! The part of the loss that improves the policy.
//!
//! A is the advantage, lp the current log-probability, r the ratio of current to old probability
//! with its logarithm clamped to ±20.

use super::{Token, clamped_exp};

/// Clipping of the probability ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// The ratio is kept above 1 − `low`.
    pub low: f64,
    /// The ratio is kept below 1 + `high`.
    pub high: f64,
    /// With a negative advantage A the loss is at most −A · `dual` (arXiv 1912.09729).
    pub dual: Option<f64>,
    /// The unclipped term's ratio is at most this ("delta" of arXiv 2505.07291), whatever the sign
    /// of the advantage.
    pub ratio_cap: Option<f64>,
}

impl Clip {
    /// Bounds 1 − `low` and 1 + `high` alone.
    pub const fn new(low: f64, high: f64) -> Self {
        Self {
            low,
            high,
            dual: None,
            ratio_cap: None,
        }
    }
}

/// The part of the loss that improves the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Surrogate {
    /// max(−A r, −A clip(r)): PPO, GRPO, DAPO (clip-higher), GSPO with [`RatioLevel::Sequence`].
    Clipped(Clip),
    /// −A lp: REINFORCE; with A = 1 the negative log-likelihood.
    LogLikelihood,
    /// −sg(clip(r)) A lp (arXiv 2506.13585): clipped tokens keep a gradient.
    Cispo {
        /// The factor is kept above 1 − `low`; `None` leaves it free below.
        low: Option<f64>,
        /// The factor is kept below 1 + `high`.
        high: f64,
    },
    /// −A σ(τ (r − 1)) · 4/τ (arXiv 2511.20347): a soft clip.
    Sapo {
        /// τ where A > 0.
        positive: f64,
        /// τ elsewhere.
        negative: f64,
    },
    /// −A r + `penalty` · (log r)², r taken against the *rollout* policy. The first part is left
    /// out where the probability itself has moved too far from the rollout's.
    Prime {
        /// With A ≤ 0 the token is dropped once its probability has fallen by more than this.
        low: f64,
        /// With A > 0 the token is dropped once its probability has risen by more than this.
        high: f64,
        /// Factor of (log r)²; it also acts on dropped tokens.
        penalty: f64,
    },
}

impl Surrogate {
    /// CISPO with an absolute cap of the factor: min(r, `cap`).
    pub const fn cispo_capped(cap: f64) -> Self {
        Self::Cispo {
            low: None,
            high: cap - 1.0,
        }
    }

    /// The settings of the published trainer of that name.
    pub const PRIME: Self = Self::Prime {
        low: 0.2,
        high: 0.2,
        penalty: 1e-3,
    };
}

/// Whose ratio the surrogate uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RatioLevel {
    /// The token's own.
    #[default]
    Token,
    /// GSPO (arXiv 2507.18071): s = exp(mean log-ratio of the sequence's read tokens) in value, and
    /// sg(s)·exp(lp − sg(lp)) in the gradient, so that each token carries its share of ∂s.
    Sequence,
}

/// Which bound cut the surrogate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClipSide {
    /// None.
    #[default]
    None,
    /// The lower bound: of the ratio with a negative advantage, of CISPO's factor, or of prime's
    /// probability.
    Low,
    /// The upper bound: of the ratio with a positive advantage, of CISPO's factor, or of prime's
    /// probability.
    High,
    /// The dual clip or the cap of the ratio.
    Dual,
}

/// Value and derivative with respect to lp.
pub(super) struct Term {
    pub(super) value: f64,
    pub(super) slope: f64,
    pub(super) clip: ClipSide,
}

impl Term {
    const fn cut(value: f64, clip: ClipSide) -> Self {
        Self {
            value,
            slope: 0.0,
            clip,
        }
    }
}

impl Surrogate {
    /// Log-ratio of one token, not clamped: against the old policy, prime's against the rollout's.
    /// Without that policy's log-prob it is 0.
    pub fn log_ratio(&self, token: &Token, log_prob: f64) -> f64 {
        let before = match self {
            Self::Prime { .. } => token.rollout,
            _ => token.old,
        };
        log_prob - before.unwrap_or(log_prob)
    }

    pub(super) fn term(&self, token: &Token, log_prob: f64, log_ratio: f64) -> Term {
        let advantage = token.advantage;
        match *self {
            Self::Clipped(clip) => clipped(&clip, advantage, log_ratio),
            Self::LogLikelihood => Term {
                value: -advantage * log_prob,
                slope: -advantage,
                clip: ClipSide::None,
            },
            Self::Cispo { low, high } => cispo((low, high), advantage, log_prob, log_ratio),
            Self::Sapo { positive, negative } => {
                let tau = if advantage > 0.0 { positive } else { negative };
                sapo(tau, advantage, log_ratio)
            }
            Self::Prime { low, high, penalty } => {
                let moved = log_prob.exp() - token.rollout.unwrap_or(log_prob).exp();
                prime((low, high), penalty, (advantage, moved, log_ratio))
            }
        }
    }
}

fn clipped(clip: &Clip, advantage: f64, log_ratio: f64) -> Term {
    let (ratio, inside) = clamped_exp(log_ratio);
    let capped = clip.ratio_cap.filter(|cap| ratio > *cap);
    let within = ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
    let free = -advantage * capped.unwrap_or(ratio);
    let bounded = -advantage * within;
    if let Some(dual) = clip.dual
        && advantage < 0.0
        && free.max(bounded) > -advantage * dual
    {
        return Term::cut(-advantage * dual, ClipSide::Dual);
    }
    // A cap below 1 + high can make the clipped term the larger one where it is not clipped.
    if bounded > free && within != ratio {
        let side = if ratio > within {
            ClipSide::High
        } else {
            ClipSide::Low
        };
        return Term::cut(bounded, side);
    }
    if capped.is_some() && bounded <= free {
        return Term::cut(free, ClipSide::Dual);
    }
    let value = -advantage * ratio;
    Term {
        value,
        slope: if inside { value } else { 0.0 * value },
        clip: ClipSide::None,
    }
}

fn cispo((low, high): (Option<f64>, f64), advantage: f64, log_prob: f64, log_ratio: f64) -> Term {
    let (ratio, _) = clamped_exp(log_ratio);
    // Comparisons, not `min` and `max`, which would turn NaN into the bound.
    let (factor, clip) = match low {
        Some(low) if ratio < 1.0 - low => (1.0 - low, ClipSide::Low),
        _ if ratio > 1.0 + high => (1.0 + high, ClipSide::High),
        _ => (ratio, ClipSide::None),
    };
    Term {
        value: -factor * advantage * log_prob,
        slope: -factor * advantage,
        clip,
    }
}

fn sapo(tau: f64, advantage: f64, log_ratio: f64) -> Term {
    let (ratio, inside) = clamped_exp(log_ratio);
    let gate = 1.0 / (1.0 + (-tau * (ratio - 1.0)).exp());
    let slope = -advantage * 4.0 * gate * (1.0 - gate) * ratio;
    Term {
        value: -advantage * gate * 4.0 / tau,
        slope: if inside { slope } else { 0.0 * slope },
        clip: ClipSide::None,
    }
}

fn prime(
    (low, high): (f64, f64),
    penalty: f64,
    (advantage, moved, log_ratio): (f64, f64, f64),
) -> Term {
    let (ratio, inside) = clamped_exp(log_ratio);
    let log_ratio = log_ratio.clamp(-super::LOG_RATIO_BOUND, super::LOG_RATIO_BOUND);
    let clip = if advantage > 0.0 && moved > high {
        ClipSide::High
    } else if advantage <= 0.0 && moved < -low {
        ClipSide::Low
    } else {
        ClipSide::None
    };
    let gain = if clip == ClipSide::None {
        -advantage * ratio
    } else {
        0.0
    };
    let slope = gain + 2.0 * penalty * log_ratio;
    Term {
        value: gain + penalty * log_ratio * log_ratio,
        slope: if inside { slope } else { 0.0 * slope },
        clip,
    }
}
