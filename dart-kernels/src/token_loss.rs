//! Loss of one token and its derivatives, as closed forms.
//!
//! loss = weight · (w · surrogate + β · kl − η · entropy), with w a detached importance weight.
//! The token's `weight` holds mask and averaging and comes from *global* counts, so that the split
//! into micro-batches cannot change the loss.
//!
//! # Source
//! arXiv 2509.23866 §3.4 and its public code (clamps, dual clip).

/// Log-ratios are clamped to ± this before they are exponentiated.
const LOG_RATIO_BOUND: f64 = 20.0;
/// The KL estimate is clamped to ± this.
const KL_BOUND: f64 = 10.0;

/// Clipping of the probability ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// The ratio is kept above 1 − `low`.
    pub low: f64,
    /// The ratio is kept below 1 + `high`.
    pub high: f64,
    /// With a negative advantage A the loss is at most −A · `dual`.
    pub dual: Option<f64>,
}

/// The part of the loss that improves the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Surrogate {
    /// max(−A k, −A clip(k)) with k the ratio of current to old probability.
    Clipped(Clip),
    /// −A log-probability; with A = 1 the negative log-likelihood.
    LogLikelihood,
}

/// Correction for tokens that were drawn from another policy than the old one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Importance {
    /// None: weight 1.
    Off,
    /// min(old probability / rollout probability, `cap`).
    Truncated {
        /// The largest weight.
        cap: f64,
    },
}

/// Pull towards a reference policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kl {
    /// Factor of the estimate k3 = e^q − q − 1, q = log(reference / current); 0 turns it off.
    pub beta: f64,
}

/// The loss of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLoss {
    /// The part that improves the policy.
    pub surrogate: Surrogate,
    /// Its off-policy correction.
    pub importance: Importance,
    /// The pull towards the reference.
    pub kl: Kl,
    /// Factor of the entropy, which is subtracted from the loss.
    pub entropy_bonus: f64,
}

impl TokenLoss {
    /// Negative log-likelihood, for imitation (with an advantage of 1).
    pub const LIKELIHOOD: Self = Self {
        surrogate: Surrogate::LogLikelihood,
        importance: Importance::Off,
        kl: Kl { beta: 0.0 },
        entropy_bonus: 0.0,
    };

    /// The loss of arXiv 2509.23866.
    pub const PAPER: Self = Self {
        surrogate: Surrogate::Clipped(Clip {
            low: 0.2,
            high: 0.28,
            dual: Some(10.0),
        }),
        importance: Importance::Truncated { cap: 1.0 },
        kl: Kl { beta: 0.1 },
        entropy_bonus: 0.0,
    };
}

/// One token and what is known about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// Index into the vocabulary.
    pub target: u32,
    /// Temperature of its distribution, above 0.
    pub temperature: f64,
    /// Share of the loss: mask and averaging. With 0 the token's logits are not read.
    pub weight: f64,
    /// Advantage of its step.
    pub advantage: f64,
    /// Log-probability before the update; `None` takes the current one, detached.
    pub old: Option<f64>,
    /// Log-probability under the policy that drew it; without it the importance weight is 1.
    pub rollout: Option<f64>,
    /// Log-probability under the reference; without it the KL term is 0.
    pub reference: Option<f64>,
}

/// Which bound cut the surrogate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClipSide {
    /// None.
    #[default]
    None,
    /// 1 − low, with a negative advantage.
    Low,
    /// 1 + high, with a positive advantage.
    High,
    /// The dual clip.
    Dual,
}

/// What one token gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenOutcome {
    /// Log-probability now.
    pub log_prob: f64,
    /// Entropy now.
    pub entropy: f64,
    /// Its share of the loss, weight included.
    pub loss: f64,
    /// The surrogate, without weights.
    pub surrogate: f64,
    /// The importance weight.
    pub importance: f64,
    /// The KL estimate to the reference, without β.
    pub kl: f64,
    /// What cut the surrogate.
    pub clip: ClipSide,
    /// Derivative of `loss` with respect to the log-probability.
    pub by_log_prob: f64,
    /// Derivative of `loss` with respect to the entropy.
    pub by_entropy: f64,
}

struct Term {
    value: f64,
    slope: f64,
    clip: ClipSide,
}

fn clipped(clip: &Clip, advantage: f64, log_ratio: f64) -> Term {
    let inside = log_ratio.abs() <= LOG_RATIO_BOUND;
    let ratio = log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp();
    let free = -advantage * ratio;
    let bounded = -advantage * ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
    let cut = |value, clip| Term {
        value,
        slope: 0.0,
        clip,
    };
    if let Some(dual) = clip.dual
        && advantage < 0.0
        && free.max(bounded) > -advantage * dual
    {
        return cut(-advantage * dual, ClipSide::Dual);
    }
    if bounded > free {
        let side = if advantage > 0.0 {
            ClipSide::High
        } else {
            ClipSide::Low
        };
        return cut(bounded, side);
    }
    Term {
        value: free,
        slope: if inside { free } else { 0.0 },
        clip: ClipSide::None,
    }
}

fn surrogate(kind: &Surrogate, token: &Token, log_prob: f64) -> Term {
    match kind {
        Surrogate::Clipped(clip) => clipped(
            clip,
            token.advantage,
            log_prob - token.old.unwrap_or(log_prob),
        ),
        Surrogate::LogLikelihood => Term {
            value: -token.advantage * log_prob,
            slope: -token.advantage,
            clip: ClipSide::None,
        },
    }
}

fn importance(kind: &Importance, token: &Token, log_prob: f64) -> f64 {
    match (kind, token.rollout) {
        (Importance::Truncated { cap }, Some(rollout)) => {
            let log_ratio = token.old.unwrap_or(log_prob) - rollout;
            let weight = log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp();
            // Not `min`, which would turn NaN into the cap.
            if weight > *cap { *cap } else { weight }
        }
        _ => 1.0,
    }
}

/// k3 and its derivative with respect to the current log-probability.
fn k3(reference: f64, log_prob: f64) -> (f64, f64) {
    let raw = reference - log_prob;
    let q = raw.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    let value = q.exp_m1() - q;
    let inside = raw.abs() <= LOG_RATIO_BOUND && value.abs() <= KL_BOUND;
    (
        value.clamp(-KL_BOUND, KL_BOUND),
        if inside { -q.exp_m1() } else { 0.0 },
    )
}

/// Loss of one token whose current log-probability and entropy are given.
///
/// ```
/// use dart_kernels::{Token, TokenLoss, token_loss::token_loss};
///
/// let token = Token {
///     target: 0, temperature: 1.0, weight: 1.0, advantage: 2.0,
///     old: None, rollout: None, reference: None,
/// };
/// let outcome = token_loss(&TokenLoss::PAPER, &token, -0.5, 0.1);
/// assert_eq!(outcome.loss, -2.0); // ratio 1
/// assert_eq!(outcome.by_log_prob, -2.0);
/// ```
pub fn token_loss(loss: &TokenLoss, token: &Token, log_prob: f64, entropy: f64) -> TokenOutcome {
    let term = surrogate(&loss.surrogate, token, log_prob);
    let importance = importance(&loss.importance, token, log_prob);
    let (kl, kl_slope) = token
        .reference
        .map_or((0.0, 0.0), |reference| k3(reference, log_prob));
    let beta = loss.kl.beta;
    let sum = importance * term.value + beta * kl - loss.entropy_bonus * entropy;
    TokenOutcome {
        log_prob,
        entropy,
        loss: token.weight * sum,
        surrogate: term.value,
        importance,
        kl,
        clip: term.clip,
        by_log_prob: token.weight * (importance * term.slope + beta * kl_slope),
        by_entropy: -token.weight * loss.entropy_bonus,
    }
}

/// Effective share of samples under importance weights: 1 / mean((w / mean w)²), in 0 to 1.
/// NaN of nothing.
pub fn effective_sample_size(weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let squares: f64 = weights.iter().map(|w| w * w).sum();
    sum * sum / (squares * weights.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(advantage: f64, old: f64) -> Token {
        Token {
            target: 0,
            temperature: 1.0,
            weight: 1.0,
            advantage,
            old: Some(old),
            rollout: None,
            reference: None,
        }
    }

    #[test]
    fn a_clamped_log_ratio_has_no_slope() {
        let loss = TokenLoss {
            surrogate: Surrogate::Clipped(Clip {
                low: 0.2,
                high: 0.28,
                dual: None,
            }),
            ..TokenLoss::PAPER
        };
        let far = token_loss(&loss, &token(-1.0, -25.0), -1.0, 0.0);
        assert_eq!((far.surrogate, far.by_log_prob), (20f64.exp(), 0.0));
        let near = token_loss(&loss, &token(-1.0, -20.0), -1.0, 0.0);
        assert_eq!(
            (near.surrogate, near.by_log_prob),
            (19f64.exp(), 19f64.exp())
        );
    }

    #[test]
    fn numbers_that_are_not_finite_are_not_hidden() {
        let broken = Token {
            rollout: Some(f64::NAN),
            ..token(1.0, -1.0)
        };
        assert!(
            token_loss(&TokenLoss::PAPER, &broken, -1.0, 0.0)
                .loss
                .is_nan()
        );
        let nan = token_loss(&TokenLoss::PAPER, &token(1.0, -1.0), f64::NAN, 0.0);
        assert!(nan.loss.is_nan());
    }
}
