//! Numbers of a learner step.

use std::collections::BTreeMap;

use dart_core::Batch;
use dart_kernels::{ClipSide, effective_sample_size};

use crate::{pass::Computed, update::Update};

/// Metrics by name.
pub(crate) type Metrics = BTreeMap<&'static str, f64>;

/// Log-probs of one token under the policy that drew it and under the learner, before the step.
pub(crate) type Drift = (f64, f64);

/// Sums over the optimizer steps of one batch.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    updates: Vec<Update>,
    loss: f64,
    reading: Vec<f64>,
    missing: usize,
    bad_rows: usize,
    tokens: usize,
    /// Sums over tokens: surrogate, KL to the reference, entropy, log-prob.
    sums: [f64; 4],
    clips: [usize; 3],
    importance: Vec<f64>,
    /// Pairs of tokens that have a rollout log-prob.
    pub drift: Vec<Drift>,
}

impl Tally {
    /// Takes in one optimizer step.
    pub(crate) fn add(&mut self, computed: &Computed, update: Update) {
        self.loss += computed.loss;
        self.reading.extend(computed.reading);
        self.missing = computed.gradients.missing();
        self.bad_rows += computed.bad_rows;
        self.updates.push(update);
        for (_, outcome) in computed.tokens.iter().filter(|(t, _)| t.weight > 0.0) {
            self.tokens += 1;
            let terms = [
                outcome.importance * outcome.surrogate,
                outcome.kl,
                outcome.entropy,
                outcome.log_prob,
            ];
            for (sum, term) in self.sums.iter_mut().zip(terms) {
                *sum += term;
            }
            match outcome.clip {
                ClipSide::None => {}
                ClipSide::Low => self.clips[0] += 1,
                ClipSide::High => self.clips[1] += 1,
                ClipSide::Dual => self.clips[2] += 1,
            }
            self.importance.push(outcome.importance);
        }
    }

    /// Whether the weights were left as they were.
    pub(crate) fn skipped(&self) -> bool {
        self.updates.iter().all(|update| !update.applied)
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
        let mut metrics = Metrics::from([
            ("loss", self.loss / steps),
            ("grad_norm", norms / steps),
            ("entropy", self.mean(2)),
            ("tokens", self.tokens as f64),
            ("samples", batch.samples.len() as f64),
            (
                "images_per_sample",
                images as f64 / batch.samples.len().max(1) as f64,
            ),
            ("updates", applied as f64),
            ("updates_not_finite", self.not_finite() as f64),
            ("bad_rows", self.bad_rows as f64),
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
        metrics.insert("nll", -self.mean(3));
        metrics
    }

    /// Numbers of the policy gradient.
    pub(crate) fn policy_gradient(&self, batch: &Batch) -> Metrics {
        let mut metrics = self.common(batch);
        let tokens = self.tokens.max(1) as f64;
        let lowest = self
            .importance
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min);
        metrics.extend([
            ("policy_loss", self.mean(0)),
            ("kl_reference", self.mean(1)),
            ("clip_low", self.clips[0] as f64 / tokens),
            ("clip_high", self.clips[1] as f64 / tokens),
            ("clip_dual", self.clips[2] as f64 / tokens),
        ]);
        if !self.importance.is_empty() {
            metrics.extend([
                ("is_mean", mean(self.importance.iter().copied())),
                ("is_min", lowest),
                ("is_ess", effective_sample_size(&self.importance)),
            ]);
        }
        if !self.drift.is_empty() {
            let ratios = || self.drift.iter().map(|(rollout, old)| old - rollout);
            // exp of a wild ratio would hide all others.
            let k3 = ratios().map(|q| (q.clamp(-20.0, 20.0).exp_m1() - q).min(10.0));
            metrics.insert("rollout_kl_k1", mean(ratios().map(|q| -q)));
            metrics.insert("rollout_kl_k3", mean(k3));
        }
        let advantages = || batch.samples.iter().map(|sample| sample.advantage);
        let centre = mean(advantages());
        let spread = mean(advantages().map(|a| (a - centre).powi(2))).sqrt();
        metrics.insert("advantage_mean", centre);
        metrics.insert("advantage_std", spread);
        metrics
    }

    fn mean(&self, index: usize) -> f64 {
        self.sums[index] / self.tokens.max(1) as f64
    }
}

/// Mean; 0 of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0usize, 0.0), |(n, sum), value| (n + 1, sum + value));
    sum / count.max(1) as f64
}
