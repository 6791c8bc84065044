//! Numbers of a learner step.

use std::collections::BTreeMap;

use dart_core::{Batch, Sample};
use dart_kernels::{LossMetrics, LossSums};

use crate::{drift::LogProbs, pass::Computed, update::Update};

/// Metrics by name.
pub(crate) type Metrics = BTreeMap<&'static str, f64>;

/// Sums over the optimizer steps of one batch.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    updates: Vec<Update>,
    loss: f64,
    reading: Vec<f64>,
    missing: usize,
    sums: LossSums,
    weighted: f64,
    lowest_weight: Option<f64>,
    /// Of the first optimizer step.
    log_probs: Vec<(usize, Vec<f64>)>,
}

impl Tally {
    /// Takes in one optimizer step.
    pub(crate) fn add(&mut self, computed: Computed, update: Update) {
        self.loss += computed.loss;
        self.reading.extend(computed.reading);
        self.missing = computed.gradients.missing();
        self.sums = self.sums.merge(&computed.sums);
        self.weighted += computed.weighted;
        let lowest = self.lowest_weight.into_iter();
        self.lowest_weight = lowest.chain(computed.lowest_weight).reduce(f64::min);
        if self.updates.is_empty() {
            self.log_probs = computed.log_probs;
        }
        self.updates.push(update);
    }

    /// The learner's log-probs in the first optimizer step, for each of `samples` samples.
    pub(crate) fn first_log_probs(&self, samples: usize) -> LogProbs {
        let mut all = vec![Vec::new(); samples];
        for (index, log_probs) in &self.log_probs {
            all[*index].clone_from(log_probs);
        }
        all
    }

    /// Whether the batch came to nothing: no step was taken, and none is to come that it has a part
    /// in.
    pub(crate) fn skipped(&self) -> bool {
        let idle = |update: &Update| !update.applied && !update.pending;
        self.updates.iter().all(idle)
    }

    /// Optimizer steps that were left out because a number was not finite.
    pub(crate) fn not_finite(&self) -> u64 {
        self.updates.iter().filter(|u| u.not_finite).count() as u64
    }

    /// Numbers that every objective has.
    pub(crate) fn common(&self, batch: &Batch) -> Metrics {
        let steps = self.updates.len().max(1) as f64;
        let images: usize = batch.samples.iter().map(|s| s.prompt.images.len()).sum();
        let norms: f64 = self.updates.iter().map(|u| u.grad_norm).sum();
        let applied = self.updates.iter().filter(|u| u.applied).count();
        let tokens = self.sums.tokens as f64;
        let mut metrics = Metrics::from([
            ("loss", self.loss / steps),
            ("grad_norm", norms / steps),
            ("entropy", self.mean(self.sums.entropy)),
            ("tokens", tokens),
            ("samples", batch.samples.len() as f64),
            (
                "images_per_sample",
                images as f64 / batch.samples.len().max(1) as f64,
            ),
            ("updates", applied as f64),
            ("updates_not_finite", self.not_finite() as f64),
            ("bad_rows", self.sums.bad_rows as f64),
            ("parameters_without_gradient", self.missing as f64),
            ("skipped", f64::from(u8::from(self.skipped()))),
        ]);
        if !self.reading.is_empty() {
            let sum: f64 = self.reading.iter().sum();
            metrics.insert("reading_loss", sum / self.reading.len() as f64);
        }
        metrics
    }

    /// Numbers of imitation.
    pub(crate) fn imitation(&self, batch: &Batch) -> Metrics {
        let mut metrics = self.common(batch);
        metrics.insert("nll", -self.mean(self.sums.log_prob));
        metrics
    }

    /// Numbers of the policy gradient.
    pub(crate) fn policy_gradient(&self, batch: &Batch) -> Metrics {
        let mut metrics = self.common(batch);
        metrics.insert("policy_loss", self.mean(self.weighted));
        if self.sums.tokens > 0 {
            metrics.extend(self.of_tokens(&self.sums.metrics()));
        }
        let of_sample = |sample: &Sample| mean(sample.advantages.iter().copied());
        let advantages = || batch.samples.iter().map(of_sample);
        let centre = mean(advantages());
        let spread = mean(advantages().map(|a| (a - centre).powi(2))).sqrt();
        metrics.insert("advantage_mean", centre);
        metrics.insert("advantage_std", spread);
        metrics
    }

    /// Means over tokens; there are some.
    fn of_tokens(&self, means: &LossMetrics) -> Metrics {
        let mut metrics = Metrics::from([
            ("surrogate", means.surrogate),
            ("kl_reference", means.kl),
            ("ratio_kl_k1", means.ratio_k1),
            ("ratio_kl_k3", means.ratio_k3),
            ("clip_low", means.clip_low),
            ("clip_high", means.clip_high),
            ("clip_dual", means.clip_dual),
            ("is_mean", means.importance_mean),
            ("is_max", means.importance_max),
            ("is_bound", means.importance_bound),
        ]);
        metrics.extend(self.lowest_weight.map(|lowest| ("is_min", lowest)));
        // Of weights that are all 0 there is none.
        if self.sums.importance_squared > 0.0 {
            metrics.insert("is_ess", means.importance_ess);
        }
        metrics
    }

    /// Mean over tokens; 0 of nothing.
    fn mean(&self, sum: f64) -> f64 {
        sum / self.sums.tokens.max(1) as f64
    }
}

/// Mean; 0 of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0usize, 0.0), |(n, sum), value| (n + 1, sum + value));
    sum / count.max(1) as f64
}
