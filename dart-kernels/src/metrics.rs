//! Numbers of a pass, from what its tokens gave.
//!
//! Sums are taken in two stages, over blocks of [`BLOCK`] tokens and then over blocks, both in
//! order: bits depend on the tokens alone. Parts of a batch are joined with [`LossSums::merge`].

use crate::{ClipSide, Importance, Token, TokenLoss, TokenOutcome, loss::LOG_RATIO_BOUND};

/// Tokens of one sum of the first stage.
pub const BLOCK: usize = 256;

/// Sums over the tokens that were read and have a finite log-probability; `loss` is over all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSums {
    /// Shares of the loss. Not finite if the numbers of any token are not.
    pub loss: f64,
    /// Surrogates, without weights.
    pub surrogate: f64,
    /// Log-probabilities.
    pub log_prob: f64,
    /// Entropies.
    pub entropy: f64,
    /// KL terms, without β.
    pub kl: f64,
    /// Importance weights.
    pub importance: f64,
    /// Their squares.
    pub importance_squared: f64,
    /// The largest of them; −∞ of nothing.
    pub importance_max: f64,
    /// −log r of the surrogate's ratio.
    pub ratio_k1: f64,
    /// r − 1 − log r, its exponent clamped to ±20.
    pub ratio_k3: f64,
    /// Tokens summed.
    pub tokens: usize,
    /// Tokens cut on each side.
    pub clip_low: usize,
    /// See `clip_low`.
    pub clip_high: usize,
    /// See `clip_low`.
    pub clip_dual: usize,
    /// Weights that truncation cut to the cap or masking to 0.
    pub importance_bound: usize,
    /// Tokens read that have no finite log-probability or entropy.
    pub bad_rows: usize,
}

/// Means over the tokens that were read. NaN of nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossMetrics {
    /// The loss: a sum of shares, not a mean.
    pub loss: f64,
    /// Mean surrogate, without weights.
    pub surrogate: f64,
    /// Mean log-probability.
    pub log_prob: f64,
    /// Mean entropy.
    pub entropy: f64,
    /// Mean KL term to the reference, without β.
    pub kl: f64,
    /// KL(old ‖ current), estimate k1, of any sign.
    pub ratio_k1: f64,
    /// KL(old ‖ current), estimate k3, never negative.
    pub ratio_k3: f64,
    /// Share of tokens cut at the lower bound.
    pub clip_low: f64,
    /// Share of tokens cut at the upper bound.
    pub clip_high: f64,
    /// Share of tokens cut by the dual clip or the cap of the ratio.
    pub clip_dual: f64,
    /// Mean importance weight.
    pub importance_mean: f64,
    /// Largest importance weight.
    pub importance_max: f64,
    /// Effective share of the tokens under their weights.
    pub importance_ess: f64,
    /// Share of weights that truncation or masking changed.
    pub importance_bound: f64,
    /// Tokens that the means are over.
    pub tokens: usize,
    /// Tokens read that have no finite log-probability or entropy.
    pub bad_rows: usize,
}

impl Default for LossSums {
    fn default() -> Self {
        Self {
            loss: 0.0,
            surrogate: 0.0,
            log_prob: 0.0,
            entropy: 0.0,
            kl: 0.0,
            importance: 0.0,
            importance_squared: 0.0,
            importance_max: f64::NEG_INFINITY,
            ratio_k1: 0.0,
            ratio_k3: 0.0,
            tokens: 0,
            clip_low: 0,
            clip_high: 0,
            clip_dual: 0,
            importance_bound: 0,
            bad_rows: 0,
        }
    }
}

impl LossSums {
    /// Sums over `outcomes`, those of `tokens` under `loss`.
    ///
    /// # Panics
    /// If the slices differ in length: a bug of the caller.
    pub fn of(loss: &TokenLoss, tokens: &[Token], outcomes: &[TokenOutcome]) -> Self {
        assert_eq!(tokens.len(), outcomes.len(), "one outcome for each token");
        let blocks = tokens.chunks(BLOCK).zip(outcomes.chunks(BLOCK));
        blocks
            .map(|(tokens, outcomes)| {
                let pairs = tokens.iter().zip(outcomes);
                let read = pairs.filter(|(token, _)| token.weight != 0.0);
                read.fold(Self::default(), |sums, (_, outcome)| {
                    sums.merge(&Self::one(loss, outcome))
                })
            })
            .fold(Self::default(), |all, block| all.merge(&block))
    }

    fn one(loss: &TokenLoss, outcome: &TokenOutcome) -> Self {
        if !outcome.log_prob.is_finite() || !outcome.entropy.is_finite() {
            // Clamps may have made the loss finite; the row is broken all the same.
            return Self {
                loss: f64::NAN,
                bad_rows: 1,
                ..Self::default()
            };
        }
        let weight = outcome.importance;
        let bounded = match loss.importance {
            Importance::Off => false,
            Importance::Truncated { cap, .. } => weight == cap,
            Importance::Masked { .. } => weight == 0.0,
        };
        let log_ratio = outcome.log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
        let clipped = |side| usize::from(outcome.clip == side);
        Self {
            loss: outcome.loss,
            surrogate: outcome.surrogate,
            log_prob: outcome.log_prob,
            entropy: outcome.entropy,
            kl: outcome.kl,
            importance: weight,
            importance_squared: weight * weight,
            importance_max: weight,
            ratio_k1: -log_ratio,
            ratio_k3: log_ratio.exp_m1() - log_ratio,
            tokens: 1,
            clip_low: clipped(ClipSide::Low),
            clip_high: clipped(ClipSide::High),
            clip_dual: clipped(ClipSide::Dual),
            importance_bound: usize::from(bounded),
            bad_rows: 0,
        }
    }

    /// The sums over both.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        Self {
            loss: self.loss + other.loss,
            surrogate: self.surrogate + other.surrogate,
            log_prob: self.log_prob + other.log_prob,
            entropy: self.entropy + other.entropy,
            kl: self.kl + other.kl,
            importance: self.importance + other.importance,
            importance_squared: self.importance_squared + other.importance_squared,
            importance_max: larger(self.importance_max, other.importance_max),
            ratio_k1: self.ratio_k1 + other.ratio_k1,
            ratio_k3: self.ratio_k3 + other.ratio_k3,
            tokens: self.tokens + other.tokens,
            clip_low: self.clip_low + other.clip_low,
            clip_high: self.clip_high + other.clip_high,
            clip_dual: self.clip_dual + other.clip_dual,
            importance_bound: self.importance_bound + other.importance_bound,
            bad_rows: self.bad_rows + other.bad_rows,
        }
    }

    /// Means and shares.
    pub fn metrics(&self) -> LossMetrics {
        let tokens = self.tokens as f64;
        let share = |count: usize| count as f64 / tokens;
        LossMetrics {
            loss: self.loss,
            surrogate: self.surrogate / tokens,
            log_prob: self.log_prob / tokens,
            entropy: self.entropy / tokens,
            kl: self.kl / tokens,
            ratio_k1: self.ratio_k1 / tokens,
            ratio_k3: self.ratio_k3 / tokens,
            clip_low: share(self.clip_low),
            clip_high: share(self.clip_high),
            clip_dual: share(self.clip_dual),
            importance_mean: self.importance / tokens,
            importance_max: self.importance_max,
            importance_ess: self.importance.powi(2) / (self.importance_squared * tokens),
            importance_bound: share(self.importance_bound),
            tokens: self.tokens,
            bad_rows: self.bad_rows,
        }
    }
}

impl LossMetrics {
    /// Numbers of one pass.
    ///
    /// # Panics
    /// If the slices differ in length: a bug of the caller.
    pub fn of(loss: &TokenLoss, tokens: &[Token], outcomes: &[TokenOutcome]) -> Self {
        LossSums::of(loss, tokens, outcomes).metrics()
    }
}

/// The larger number; NaN if either is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}
