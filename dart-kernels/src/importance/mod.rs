//! Off-policy correction: importance weights, rejection of what drifted too far, and metrics.
//!
//! Log-ratios are log r = old − rollout log-prob: the learner's policy over the one that drew the
//! tokens, in this order everywhere. They are clamped to ±20 before they are exponentiated, sums
//! and means of a sequence as a whole. A NaN is neither truncated nor masked nor rejected: it shows
//! in weights, losses and metrics.
//!
//! # Source
//! arXiv 2509.23866 §3.4 (truncated weights); IcePop (masking); Geo-RS (geometric mean). The loss
//! applies the simpler weights itself ([`Importance`](crate::Importance)); this module is for what
//! needs the whole batch.

mod metrics;
mod rejection;

use std::ops::Range;

use crate::{Error, Result, Sequences, WeightLevel, loss::LOG_RATIO_BOUND};

pub use metrics::DriftMetrics;
pub use rejection::{Kept, Rejection, RejectionLevel, RejectionTest};

/// Log-probs of the same tokens under the learner's policy and under the one that drew them.
#[derive(Clone, Copy, Debug)]
pub struct Drift<'a> {
    old: &'a [f64],
    rollout: &'a [f64],
    mask: &'a [bool],
    sequences: &'a Sequences,
}

/// How weights are made of ratios.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightRule {
    /// Whose ratio.
    pub level: WeightLevel,
    /// Ratios outside these bounds, which are inside, weigh 0 (IcePop).
    pub bounds: Option<(f64, f64)>,
    /// The largest weight.
    pub cap: Option<f64>,
    /// Whether weights are divided by their mean: over tokens, or over sequences at sequence
    /// level. Weights that the bounds made 0 count. A mean of 0 leaves them as they are.
    pub normalise: bool,
}

impl WeightRule {
    fn weight(&self, log_ratio: f64) -> f64 {
        let ratio = exp(log_ratio);
        match (self.bounds, self.cap) {
            (Some((low, high)), _) if ratio < low || ratio > high => 0.0,
            (_, Some(cap)) if ratio > cap => cap,
            _ => ratio,
        }
    }
}

impl<'a> Drift<'a> {
    /// Log-probs of the tokens of `sequences`; tokens where `mask` is false do not exist, and
    /// their log-probs may be anything.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::Sequences`] if the lengths differ.
    pub fn new(
        (old, rollout): (&'a [f64], &'a [f64]),
        mask: &'a [bool],
        sequences: &'a Sequences,
    ) -> Result<Self> {
        sequences.check(mask.len())?;
        let rows = mask.len();
        for (what, got) in [
            ("old log-probs", old.len()),
            ("rollout log-probs", rollout.len()),
        ] {
            if got != rows {
                return Err(Error::Length { what, got, rows });
            }
        }
        Ok(Self {
            old,
            rollout,
            mask,
            sequences,
        })
    }

    /// A weight for each token; 0 where the mask is false.
    pub fn weights(&self, rule: &WeightRule) -> Vec<f64> {
        let mut weights = vec![0.0; self.mask.len()];
        for range in self.sequences.ranges() {
            let shared = match rule.level {
                WeightLevel::Token => None,
                WeightLevel::SequenceSum => Some(self.log_ratio(range.clone()).sum),
                WeightLevel::SequenceMean => Some(self.log_ratio(range.clone()).mean()),
            };
            for (index, log_ratio) in self.read(range) {
                weights[index] = rule.weight(shared.unwrap_or(log_ratio));
            }
        }
        if rule.normalise {
            self.normalise(&mut weights, rule.level);
        }
        weights
    }

    fn normalise(&self, weights: &mut [f64], level: WeightLevel) {
        let mut mean = Mean::default();
        for range in self.sequences.ranges() {
            let mut read = self.read(range);
            match level {
                WeightLevel::Token => read.for_each(|(index, _)| mean.push(weights[index])),
                _ => read
                    .next()
                    .into_iter()
                    .for_each(|(index, _)| mean.push(weights[index])),
            }
        }
        let mean = mean.mean();
        if mean != 0.0 && mean.is_finite() {
            for weight in weights {
                *weight /= mean;
            }
        }
    }

    /// Effective share of the tokens under `weights`, of those that the mask lets through.
    pub fn effective_sample_size(&self, weights: &[f64]) -> f64 {
        let pairs = weights.iter().zip(self.mask);
        let read: Vec<f64> = pairs.filter_map(|(w, read)| read.then_some(*w)).collect();
        effective_sample_size(&read)
    }

    /// Index and log-ratio of the tokens that exist.
    fn read(&self, range: Range<usize>) -> impl Iterator<Item = (usize, f64)> + '_ {
        range
            .filter(|index| self.mask[*index])
            .map(|index| (index, self.old[index] - self.rollout[index]))
    }

    /// Sum and mean of a sequence's log-ratio.
    fn log_ratio(&self, range: Range<usize>) -> Mean {
        let mut mean = Mean::default();
        self.read(range)
            .for_each(|(_, log_ratio)| mean.push(log_ratio));
        mean
    }
}

/// Effective share of samples under importance weights: 1 / mean((w / mean w)²), in 0 to 1.
/// NaN of nothing, and if all weights are 0.
pub fn effective_sample_size(weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let squares: f64 = weights.iter().map(|w| w * w).sum();
    sum * sum / (squares * weights.len() as f64)
}

fn clamped(log_ratio: f64) -> f64 {
    log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
}

fn exp(log_ratio: f64) -> f64 {
    clamped(log_ratio).exp()
}

/// k3 of a log-ratio r = old / rollout of a token that the rollout policy drew: r − 1 − log r,
/// its exponent clamped.
fn k3(log_ratio: f64) -> f64 {
    let log_ratio = clamped(log_ratio);
    log_ratio.exp_m1() - log_ratio
}

/// A mean; 0/0, which is NaN, of nothing.
#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn push(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn mean(self) -> f64 {
        self.sum / self.count as f64
    }
}
