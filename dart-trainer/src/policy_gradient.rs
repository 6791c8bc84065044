//! The policy-gradient step (arXiv 2509.23866 §3.4).
//!
//! Old log-probs are the learner's before the step. With one optimizer step per batch they are the
//! current ones, so no pass of their own is needed: the first pass keeps its graph until the steps
//! of high entropy are known. Otherwise a pass without gradients goes ahead.

use std::{collections::BTreeMap, sync::Arc};

use dart_core::{Batch, Objective, selection::quantile};
use dart_kernels::Token;
use dart_policy::TrainableModel;

use crate::{
    GrpoLearner,
    adamw::Rates,
    error::Result,
    metrics::{Metrics, Tally},
    pass::{Computed, Held, Loss, Shares, Statistics, Work},
    plan::{Cluster, Plan, clusters, minibatches, plan},
    validate::temperature,
};

/// Steps that differ only by this much in mean entropy are ties. Two rollouts that saw the same and
/// did the same have equal entropies, which rounding makes unequal when they fall into different
/// micro-batches; which of them is kept must not depend on that.
const ENTROPY_ROUNDING: f64 = 1e-5;

/// What is known about each sample before the optimizer steps.
pub(crate) struct Known {
    /// Old log-probs and entropies, if they had to be known in advance.
    pub statistics: Option<Statistics>,
    /// Log-probs under the reference, if there is a KL term.
    pub reference: Option<Statistics>,
    /// Which samples are trained on.
    pub kept: Vec<bool>,
}

impl<M: TrainableModel> GrpoLearner<M> {
    /// All optimizer steps of one batch.
    pub(crate) fn improve(&mut self, batch: &Arc<Batch>) -> Result<(Metrics, Tally)> {
        let all: Vec<usize> = (0..batch.samples.len()).collect();
        let parts =
            (all.len() / self.config.minibatch_min_samples).clamp(1, self.config.minibatches);
        let whole = self.plan(batch, &clusters(batch, &all));
        let single = parts == 1 && self.config.epochs == 1;
        let in_one_pass = whole.iter().all(|share| share.len() <= 1);
        let needs_entropy = self.config.entropy_drop > 0.0;
        let (held, statistics) = if single && needs_entropy && in_one_pass {
            let reading = self.config.reading_weight > 0.0;
            let (held, statistics) = self.passes(batch).hold(whole, reading)?;
            (Some(held), Some(statistics))
        } else if needs_entropy || !single {
            (None, Some(self.passes(batch).statistics(whole)?))
        } else {
            (None, None)
        };
        let known = self.know(batch, statistics)?;
        let mut tally = Tally::default();
        if let Some(held) = held {
            self.optimize_held(batch, &known, held, &mut tally)?;
        } else {
            self.optimize_parts(batch, &known, parts, &mut tally)?;
        }
        Ok((self.report(batch, &known, &mut tally), tally))
    }

    /// Chooses the samples and asks the reference about them.
    fn know(&mut self, batch: &Arc<Batch>, statistics: Option<Statistics>) -> Result<Known> {
        let kept = match &statistics {
            Some(statistics) => select(batch, statistics, self.config.entropy_drop),
            None => vec![true; batch.samples.len()],
        };
        let mut reference = None;
        if self.config.kl_beta > 0.0 {
            let model = Arc::clone(self.reference()?);
            let plan = self.plan(batch, &clusters(batch, &indices(&kept)));
            let mut passes = self.passes(batch);
            passes.model = &model;
            reference = Some(passes.statistics(plan)?);
        }
        Ok(Known {
            statistics,
            reference,
            kept,
        })
    }

    /// The one optimizer step whose forward passes were made already.
    fn optimize_held(
        &mut self,
        batch: &Arc<Batch>,
        known: &Known,
        held: Shares<Held<M::Tape>>,
        tally: &mut Tally,
    ) -> Result<()> {
        let count = indices(&known.kept).len();
        let work = |(samples, forward): Held<M::Tape>| Work {
            tokens: tokens(batch, &samples, known, count),
            samples,
            held: Some(forward),
        };
        let shares = held
            .into_iter()
            .map(|share| share.into_iter().map(work).collect())
            .collect();
        // The reading loss covers dropped samples too: reading has no advantage to weigh.
        self.optimize(batch, shares, batch.samples.len(), tally)
    }

    /// Epochs and minibatches over the kept samples.
    fn optimize_parts(
        &mut self,
        batch: &Arc<Batch>,
        known: &Known,
        parts: usize,
        tally: &mut Tally,
    ) -> Result<()> {
        let kept = indices(&known.kept);
        for epoch in 0..self.config.epochs {
            let stream = self.progress.version.0 << 8 | epoch as u64 & 0xff;
            let groups = clusters(batch, &kept);
            for part in minibatches(groups, parts, (self.config.seed, stream)) {
                let count = part.iter().map(Vec::len).sum();
                let work = |samples: Vec<usize>| Work {
                    tokens: tokens(batch, &samples, known, count),
                    samples,
                    held: None,
                };
                let shares = self
                    .plan(batch, &part)
                    .into_iter()
                    .map(|share| share.into_iter().map(work).collect())
                    .collect();
                self.optimize(batch, shares, count, tally)?;
            }
        }
        Ok(())
    }

    fn optimize(
        &mut self,
        batch: &Arc<Batch>,
        work: Shares<Work<M::Tape>>,
        samples: usize,
        tally: &mut Tally,
    ) -> Result<()> {
        let loss = Loss {
            token: self.config.token_loss(),
            reading_weight: self.config.reading_weight,
            samples,
        };
        let computed = self.passes(batch).gradients(work, loss)?;
        if tally.drift.is_empty() {
            tally.drift = drift(&computed);
        }
        let rates = Rates {
            learning_rate: self.config.rate(self.progress.stage_steps + 1),
            betas: self.config.betas,
            epsilon: self.config.adam_epsilon,
            weight_decay: self.config.weight_decay,
            gradient_scale: 1.0,
        };
        let update = self.apply(&computed, (rates, self.config.grad_clip))?;
        tally.add(&computed, update);
        Ok(())
    }

    fn plan(&self, batch: &Batch, groups: &[Cluster]) -> Plan {
        let config = &self.config;
        plan(batch, groups, config.threads, config.micro_batch_samples)
    }

    fn report(&self, batch: &Batch, known: &Known, tally: &mut Tally) -> Metrics {
        if let Some(statistics) = &known.statistics {
            // All samples, also those dropped for their low entropy.
            tally.drift = batch
                .samples
                .iter()
                .zip(statistics)
                .flat_map(|(sample, rows)| {
                    let rollout = sample.rollout_log_probs.iter();
                    rollout
                        .zip(rows)
                        .map(|(rho, row)| (f64::from(*rho), row.log_prob))
                })
                .collect();
        }
        let mut metrics = tally.policy_gradient(batch);
        let kept = indices(&known.kept).len() as f64;
        metrics.insert("kept_share", kept / known.kept.len().max(1) as f64);
        metrics.insert("learning_rate", self.config.rate(self.progress.stage_steps));
        metrics
    }
}

/// Log-probs under the sampler and, before the update, under the learner.
fn drift(computed: &Computed) -> Vec<(f64, f64)> {
    computed
        .tokens
        .iter()
        .filter(|(token, _)| token.weight > 0.0)
        .filter_map(|(token, outcome)| {
            let old = token.old.unwrap_or(outcome.log_prob);
            token.rollout.map(|rollout| (rollout, old))
        })
        .collect()
}

fn indices(kept: &[bool]) -> Vec<usize> {
    (0..kept.len()).filter(|index| kept[*index]).collect()
}

/// Which samples reach the entropy quantile of their group. A sample whose numbers are not finite
/// stays, so that the step is skipped and counted instead of hiding it.
pub(crate) fn select(batch: &Batch, statistics: &Statistics, dropped: f64) -> Vec<bool> {
    let mut kept = vec![true; batch.samples.len()];
    if dropped <= 0.0 {
        return kept;
    }
    let entropy = |index: usize| {
        let rows = &statistics[index];
        rows.iter().map(|row| row.entropy).sum::<f64>() / rows.len().max(1) as f64
    };
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, sample) in batch.samples.iter().enumerate() {
        if entropy(index).is_finite() {
            groups.entry(sample.group).or_default().push(index);
        }
    }
    for members in groups.values() {
        let entropies: Vec<f64> = members.iter().map(|index| entropy(*index)).collect();
        let threshold = quantile(&entropies, dropped) - ENTROPY_ROUNDING;
        for (index, entropy) in members.iter().zip(entropies) {
            kept[*index] = entropy >= threshold;
        }
    }
    kept
}

/// The response tokens of `samples`, weighted so that the loss is the mean over `count` samples of
/// the mean over their tokens.
pub(crate) fn tokens(batch: &Batch, samples: &[usize], known: &Known, count: usize) -> Vec<Token> {
    let log_prob = |statistics: &Option<Statistics>, index: usize, t: usize| {
        let row = statistics.as_ref()?.get(index)?.get(t)?;
        Some(row.log_prob)
    };
    let mut tokens = Vec::new();
    for &index in samples {
        let sample = &batch.samples[index];
        let share = 1.0 / (count * sample.response.len()) as f64;
        for (t, target) in sample.response.iter().enumerate() {
            tokens.push(Token {
                target: *target,
                temperature: temperature(Objective::PolicyGradient, sample),
                weight: if known.kept[index] { share } else { 0.0 },
                advantage: sample.advantage,
                old: log_prob(&known.statistics, index, t),
                rollout: sample.rollout_log_probs.get(t).map(|lp| f64::from(*lp)),
                reference: log_prob(&known.reference, index, t),
            });
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use dart_core::{
        BatchId, GroupId, LogProbKind, PolicyVersion, Prompt, Sample, SampleOrigin, TrajectoryId,
    };
    use dart_kernels::{RowStats, TokenLoss, row_stats, token_loss};
    use serde_json::Value;

    use super::*;

    fn numbers(value: &Value) -> Vec<f64> {
        let values = value.as_array().unwrap().iter();
        values.map(|v| v.as_f64().unwrap()).collect()
    }

    fn row(log_prob: f64, entropy: f64) -> RowStats {
        RowStats {
            log_prob,
            entropy,
            ..row_stats(&[0.0], 0, 1.0)
        }
    }

    fn sample(step: &Value, advantage: f64) -> Sample {
        let single = |name: &str| numbers(&step[name]).iter().map(|x| *x as f32).collect();
        Sample {
            trajectory: TrajectoryId(0),
            step: 0,
            group: GroupId(0),
            origin: SampleOrigin::Rollout,
            prompt: Prompt::default(),
            response: numbers(&step["targets"])
                .iter()
                .map(|x| *x as u32)
                .collect(),
            rollout_log_probs: single("rollout"),
            log_prob_kind: LogProbKind::AfterTemperature,
            temperature: 1.0,
            version: PolicyVersion(0),
            advantage,
        }
    }

    #[test]
    fn rounding_does_not_break_ties() {
        let step = serde_json::json!({"targets": [1], "rollout": [-0.5]});
        let batch = Batch {
            id: BatchId(0),
            objective: Objective::PolicyGradient,
            images: Vec::new(),
            samples: vec![sample(&step, 1.0); 4],
        };
        let kept = |entropies: [f64; 4]| {
            let statistics = entropies.map(|entropy| vec![row(-0.5, entropy)]);
            select(&batch, &statistics.to_vec(), 0.2)
        };
        assert_eq!(kept([0.5, 0.500_000_1, 0.7, 0.9]), [true; 4]);
        assert_eq!(kept([0.5, 0.51, 0.7, 0.9]), [false, true, true, true]);
        let broken = kept([f64::NAN, 0.51, 0.7, 0.9]);
        assert_eq!(broken, [true, false, true, true], "it stays, to be noticed");
    }

    /// The whole path of preset `paper` but for the model: entropies, selection, weights, loss.
    #[test]
    fn golden_selection_and_loss() {
        let golden: Value =
            serde_json::from_str(include_str!("../tests/data/dart_paper.json")).unwrap();
        let steps = golden["steps"].as_array().unwrap();
        let advantages = numbers(&golden["advantage_paper_per_step"]);
        let batch = Batch {
            id: BatchId(0),
            objective: Objective::PolicyGradient,
            images: Vec::new(),
            samples: steps
                .iter()
                .zip(&advantages)
                .map(|(s, a)| sample(s, *a))
                .collect(),
        };
        let statistics = |log_probs: &str, step: &Value| -> Vec<RowStats> {
            let logits = step["old_logits"].as_array().unwrap().iter();
            let given = numbers(&step[log_probs]);
            logits
                .zip(given)
                .map(|(x, lp)| row(lp, row_stats(&numbers(x), 0, 1.0).entropy))
                .collect()
        };
        let of_all =
            |name: &str| -> Statistics { steps.iter().map(|s| statistics(name, s)).collect() };
        let kept = select(&batch, &of_all("old"), 0.2);
        let expected: Vec<bool> = steps.iter().map(|s| s["kept"] == true).collect();
        assert_eq!(kept, expected);
        let known = Known {
            statistics: Some(of_all("old")),
            reference: Some(of_all("reference")),
            kept,
        };
        let all: Vec<usize> = (0..steps.len()).collect();
        let count = indices(&known.kept).len();
        let mut tokens = tokens(&batch, &all, &known, count).into_iter();
        let (mut loss, mut seen) = (0.0, 0);
        for (step, sample) in steps.iter().zip(&batch.samples) {
            let gradient = numbers(&step["grad_current"]);
            for (t, current) in numbers(&step["current"]).iter().enumerate() {
                let mut token = tokens.next().unwrap();
                // Batches hold f32 log-probs; the golden numbers are f64.
                assert!(
                    (token.rollout.unwrap() - f64::from(sample.rollout_log_probs[t])).abs() < 1e-12
                );
                token.rollout = Some(numbers(&step["rollout"])[t]);
                let outcome = token_loss(&TokenLoss::PAPER, &token, *current, 0.0);
                let (got, expected) = (outcome.by_log_prob, gradient[t]);
                assert!((got - expected).abs() <= 1e-9 * expected.abs().max(1.0));
                loss += outcome.loss;
                seen += 1;
            }
        }
        let expected = golden["loss"].as_f64().unwrap();
        assert!((loss - expected).abs() < 1e-9, "{loss} is not {expected}");
        assert!(seen > steps.len() && tokens.next().is_none());
        assert_eq!(
            crate::TrainerConfig::default().token_loss(),
            TokenLoss::PAPER
        );
    }
}
