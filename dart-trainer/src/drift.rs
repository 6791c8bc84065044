//! How far the learner's policy, before its step, is from what drew the tokens.

use dart_core::Batch;
use dart_kernels::{Drift, RowStats, Sequences, WeightRule};

use crate::{error::Result, metrics::Metrics, pass::Statistics};

/// Log-probs of each sample's tokens; empty where they are not known.
pub(crate) type LogProbs = Vec<Vec<f64>>;

/// The log-probs of statistics.
pub(crate) fn log_probs(statistics: &Statistics) -> LogProbs {
    let of_sample = |rows: &Vec<RowStats>| rows.iter().map(|row| row.log_prob).collect();
    statistics.iter().map(of_sample).collect()
}

/// Old and rollout log-probs of all tokens of a batch, one after another.
pub(crate) struct Pairs {
    old: Vec<f64>,
    rollout: Vec<f64>,
    /// Tokens that have both.
    pub mask: Vec<bool>,
    sequences: Sequences,
}

impl Pairs {
    /// Pairs of the tokens where `read` is true.
    pub(crate) fn of(batch: &Batch, old: &LogProbs, read: &[Vec<bool>]) -> Self {
        let lengths: Vec<usize> = batch.samples.iter().map(|s| s.response.len()).collect();
        let mut pairs = Self {
            old: Vec::new(),
            rollout: Vec::new(),
            mask: Vec::new(),
            sequences: Sequences::from_lengths(&lengths),
        };
        for ((sample, old), read) in batch.samples.iter().zip(old).zip(read) {
            for (t, read) in read.iter().enumerate() {
                let rollout = sample.rollout_log_probs.get(t).map(|lp| f64::from(*lp));
                let both = old.get(t).copied().zip(rollout).filter(|_| *read);
                let (old, rollout) = both.unwrap_or_default();
                pairs.old.push(old);
                pairs.rollout.push(rollout);
                pairs.mask.push(both.is_some());
            }
        }
        pairs
    }

    /// For the kernels.
    pub(crate) fn drift(&self) -> Result<Drift<'_>> {
        let log_probs = (&self.old[..], &self.rollout[..]);
        Ok(Drift::new(log_probs, &self.mask, &self.sequences)?)
    }
}

/// Distances over all tokens of a batch that have rollout log-probs, also those that are not
/// trained on; nothing if there are none.
pub(crate) fn metrics(batch: &Batch, old: &LogProbs) -> Result<Metrics> {
    let all: Vec<Vec<bool>> = batch
        .samples
        .iter()
        .map(|sample| vec![true; sample.response.len()])
        .collect();
    let pairs = Pairs::of(batch, old, &all);
    let drift = pairs.drift()?;
    let numbers = drift.metrics();
    if numbers.tokens == 0 {
        return Ok(Metrics::new());
    }
    let ratios = drift.weights(&WeightRule::default());
    Ok(Metrics::from([
        ("rollout_kl_k1", numbers.kl_k1),
        ("rollout_kl_k3", numbers.kl_k3),
        ("rollout_ess", drift.effective_sample_size(&ratios)),
        ("rollout_chi2_token", numbers.chi_squared_token),
        ("rollout_chi2_sequence", numbers.chi_squared_sequence),
        ("rollout_perplexity", numbers.rollout_perplexity),
        ("old_perplexity", numbers.old_perplexity),
        ("perplexity_ratio", numbers.perplexity_ratio),
        ("log_perplexity_distance", numbers.log_perplexity_distance),
    ]))
}
