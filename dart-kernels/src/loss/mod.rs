//! Loss of one token and its derivatives, as closed forms in f64.
//!
//! loss = weight · (w · surrogate + β · kl − η · entropy), with w a detached importance weight.
//! The token's `weight` holds mask and averaging and comes from *global* counts, so that the split
//! into micro-batches cannot change the loss ([`Aggregation`]).
//!
//! | module | what |
//! |---|---|
//! | [`surrogate`] | the part that improves the policy: clipped, CISPO, SAPO, prime, likelihood |
//! | [`kl`] | the pull towards a reference |
//! | [`weight`] | importance weights of a token or of its sequence |
//! | [`aggregation`] | weights of tokens from global counts |
//! | [`batch`] | the loss of many tokens, whose ratios or weights may belong to sequences |
//!
//! Gradients treat as constant: importance weights, sequence ratios (beyond the share that each
//! token carries, see [`RatioLevel::Sequence`]), the old, rollout and reference log-probs. Beyond a
//! clamp the derivative is 0, on its edge it is that of the inside. NaN is never clipped away.
//!
//! # Source
//! arXiv 2509.23866 §3.4 and its public code (clamps, dual clip); the papers named at each variant.

pub mod aggregation;
pub mod batch;
pub mod kl;
pub mod surrogate;
pub mod weight;

pub use aggregation::{Aggregation, Counts};
pub use batch::{SequenceTerm, sequence_terms, token_losses, token_losses_with};
pub use kl::{Kl, KlEstimate, KlGradient};
pub use surrogate::{Clip, ClipSide, RatioLevel, Surrogate};
pub use weight::{Importance, WeightLevel};

/// Log-ratios are clamped to ± this before they are exponentiated.
pub const LOG_RATIO_BOUND: f64 = 20.0;

/// The loss of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLoss {
    /// The part that improves the policy.
    pub surrogate: Surrogate,
    /// Whether the surrogate's ratio is the token's or its sequence's.
    pub ratio: RatioLevel,
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
        ratio: RatioLevel::Token,
        importance: Importance::Off,
        kl: Kl::OFF,
        entropy_bonus: 0.0,
    };

    /// The loss of arXiv 2509.23866.
    pub const PAPER: Self = Self {
        surrogate: Surrogate::Clipped(Clip {
            dual: Some(10.0),
            ..Clip::new(0.2, 0.28)
        }),
        ratio: RatioLevel::Token,
        importance: Importance::Truncated {
            level: WeightLevel::Token,
            cap: 1.0,
        },
        kl: Kl::k3(0.1),
        entropy_bonus: 0.0,
    };

    /// The loss of the paper's public code: it clips at 0.1 below.
    pub const RELEASED: Self = Self {
        surrogate: Surrogate::Clipped(Clip {
            dual: Some(10.0),
            ..Clip::new(0.1, 0.28)
        }),
        ..Self::PAPER
    };

    /// Whether the loss of a token depends on that token alone. Otherwise all log-probs of a
    /// sequence are needed before the first loss ([`token_losses`]).
    pub const fn is_token_level(&self) -> bool {
        let weight = match self.importance {
            Importance::Off => WeightLevel::Token,
            Importance::Truncated { level, .. } | Importance::Masked { level, .. } => level,
        };
        matches!(self.ratio, RatioLevel::Token) && matches!(weight, WeightLevel::Token)
    }
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
    /// The KL term (estimate, times the ratio where asked for), without β.
    pub kl: f64,
    /// What cut the surrogate.
    pub clip: ClipSide,
    /// Derivative of `loss` with respect to the log-probability.
    pub by_log_prob: f64,
    /// Derivative of `loss` with respect to the entropy.
    pub by_entropy: f64,
    /// Logarithm of the ratio that the surrogate used (of the sequence at
    /// [`RatioLevel::Sequence`]), before it was clamped.
    pub log_ratio: f64,
}

/// Loss of one token whose current log-probability and entropy are given. For losses with a
/// sequence-level part this is the loss of a sequence of one token.
///
/// ```
/// use dart_kernels::{Token, TokenLoss, token_loss};
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
    let term = SequenceTerm {
        log_ratio: loss.surrogate.log_ratio(token, log_prob),
        importance: loss.importance.of_token(token, log_prob),
    };
    outcome(loss, token, (log_prob, entropy), term)
}

/// The loss with its ratio and importance weight given.
fn outcome(
    loss: &TokenLoss,
    token: &Token,
    (log_prob, entropy): (f64, f64),
    given: SequenceTerm,
) -> TokenOutcome {
    let SequenceTerm {
        log_ratio,
        importance,
    } = given;
    let term = loss.surrogate.term(token, log_prob, log_ratio);
    let (kl, kl_slope) = loss.kl.term(token, log_prob, log_ratio);
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
        log_ratio,
    }
}

/// exp of the clamped log-ratio, and whether it lies within the clamp (NaN does not).
fn clamped_exp(log_ratio: f64) -> (f64, bool) {
    let ratio = log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp();
    (ratio, log_ratio.abs() <= LOG_RATIO_BOUND)
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
            surrogate: Surrogate::Clipped(Clip::new(0.2, 0.28)),
            ..TokenLoss::PAPER
        };
        let far = token_loss(&loss, &token(-1.0, -25.0), -1.0, 0.0);
        assert_eq!((far.surrogate, far.by_log_prob), (20f64.exp(), 0.0));
        let edge = token_loss(&loss, &token(-1.0, -21.0), -1.0, 0.0);
        assert_eq!(
            (edge.surrogate, edge.by_log_prob),
            (20f64.exp(), 20f64.exp())
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
