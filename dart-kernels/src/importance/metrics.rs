//! How far the learner's policy is from the one that drew the tokens.

use super::{Drift, Mean, clamped, exp, k3};

/// How far the learner's policy (`old`) is from the one that drew the tokens (`rollout`). Numbers
/// over nothing are NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriftMetrics {
    /// Tokens that the mask lets through.
    pub tokens: usize,
    /// Sequences that have any.
    pub sequences: usize,
    /// Mean over tokens of rollout − old log-prob: estimates KL(rollout ‖ old), of any sign.
    pub kl_k1: f64,
    /// Mean over tokens of r − 1 − log r: estimates the same, never negative.
    pub kl_k3: f64,
    /// Mean over sequences of exp(−mean log-prob) under `old`.
    pub old_perplexity: f64,
    /// Mean over sequences of −mean log-prob under `old`.
    pub old_log_perplexity: f64,
    /// Mean over sequences of exp(−mean log-prob) under `rollout`.
    pub rollout_perplexity: f64,
    /// Mean over sequences of −mean log-prob under `rollout`.
    pub rollout_log_perplexity: f64,
    /// Mean over sequences of the log-perplexity under `old` less that under `rollout`.
    pub log_perplexity_difference: f64,
    /// Mean of its size.
    pub log_perplexity_distance: f64,
    /// Its smallest and largest value.
    pub log_perplexity_range: (f64, f64),
    /// Mean over sequences of the ratio of the perplexities.
    pub perplexity_ratio: f64,
    /// χ² divergence by tokens: mean of r² − 1.
    pub chi_squared_token: f64,
    /// χ² divergence by sequences, r the product over the sequence.
    pub chi_squared_sequence: f64,
}

#[derive(Default)]
struct Sums {
    k1: Mean,
    k3: Mean,
    squares: Mean,
    /// Of sequences: exp(−mean) and −mean, under old and under rollout.
    perplexity: [Mean; 4],
    differences: Vec<f64>,
    ratio: Mean,
    sequence_squares: Mean,
}

impl Sums {
    fn add_sequence(&mut self, drift: &Drift<'_>, range: std::ops::Range<usize>) {
        let (mut old, mut rollout) = (Mean::default(), Mean::default());
        for (index, log_ratio) in drift.read(range) {
            old.push(drift.old[index]);
            rollout.push(drift.rollout[index]);
            self.k1.push(-log_ratio);
            self.k3.push(k3(log_ratio));
            self.squares.push(exp(log_ratio).powi(2));
        }
        if old.count == 0 {
            return;
        }
        let (old_log, rollout_log) = (-old.mean(), -rollout.mean());
        let logs = [old_log.exp(), old_log, rollout_log.exp(), rollout_log];
        for (mean, value) in self.perplexity.iter_mut().zip(logs) {
            mean.push(value);
        }
        let difference = old_log - rollout_log;
        self.differences.push(difference);
        self.ratio.push(exp(difference));
        let log_ratio = clamped(old.sum - rollout.sum);
        self.sequence_squares.push((2.0 * log_ratio).exp());
    }
}

impl Drift<'_> {
    /// How far apart the two policies are on these tokens.
    pub fn metrics(&self) -> DriftMetrics {
        let mut sums = Sums::default();
        for range in self.sequences.ranges() {
            sums.add_sequence(self, range);
        }
        let [old, old_log, rollout, rollout_log] = sums.perplexity.map(Mean::mean);
        let differences = || sums.differences.iter().copied();
        let count = sums.differences.len() as f64;
        DriftMetrics {
            tokens: sums.k1.count,
            sequences: sums.differences.len(),
            kl_k1: sums.k1.mean(),
            kl_k3: sums.k3.mean(),
            old_perplexity: old,
            old_log_perplexity: old_log,
            rollout_perplexity: rollout,
            rollout_log_perplexity: rollout_log,
            log_perplexity_difference: differences().sum::<f64>() / count,
            log_perplexity_distance: differences().map(f64::abs).sum::<f64>() / count,
            log_perplexity_range: extremes(differences()),
            perplexity_ratio: sums.ratio.mean(),
            chi_squared_token: sums.squares.mean() - 1.0,
            chi_squared_sequence: sums.sequence_squares.mean() - 1.0,
        }
    }
}

/// Smallest and largest; NaN if there is none or one is NaN.
fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .map(|value| (value, value))
        .reduce(|(low, high), (value, _)| {
            if value.is_nan() || low.is_nan() {
                (f64::NAN, f64::NAN)
            } else {
                (low.min(value), high.max(value))
            }
        })
        .unwrap_or((f64::NAN, f64::NAN))
}
