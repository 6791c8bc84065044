//! The policy-gradient step (arXiv 2509.23866 §3.4).
//!
//! Old log-probs are the learner's before the step. With one optimizer step per batch they are the
//! current ones, so no pass of their own is needed: the first pass keeps its graph until it is known
//! which tokens are trained on. Otherwise a pass without gradients goes ahead.

use std::sync::Arc;

use dart_core::Batch;
use dart_policy::TrainableModel;

use crate::{
    GrpoLearner,
    choice::choose,
    drift,
    error::Result,
    metrics::{Metrics, Tally},
    optimizer::Rates,
    pass::{ByThread, Held, Loss, Statistics, Work},
    plan::{Cluster, Plan, clusters, minibatches, plan},
    tokens::{Known, Shares},
};

impl<M: TrainableModel> GrpoLearner<M> {
    /// All optimizer steps of one batch.
    pub(crate) fn improve(&mut self, batch: &Arc<Batch>) -> Result<(Metrics, Tally)> {
        self.begin_average()?;
        let all: Vec<usize> = (0..batch.samples.len()).collect();
        let parts =
            (all.len() / self.config.minibatch_min_samples).clamp(1, self.config.minibatches);
        let whole = self.plan(batch, &clusters(batch, &all));
        let single = parts == 1 && self.config.epochs == 1;
        let in_one_pass = whole.iter().all(|share| share.len() <= 1);
        let (held, statistics) = if single && self.chooses() && in_one_pass {
            let reading = self.config.reading_weight > 0.0;
            let (held, statistics) = self.passes(batch).hold(whole, reading)?;
            (Some(held), Some(statistics))
        } else if self.chooses() || !single {
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
        Ok((self.report(batch, &known, &tally)?, tally))
    }

    /// Whether log-probs or entropies say which tokens are trained on.
    fn chooses(&self) -> bool {
        let config = &self.config;
        let entropy = config.entropy_drop > 0.0 || config.token_entropy_drop > 0.0;
        entropy || !config.rejection.is_empty()
    }

    /// Chooses the tokens and asks the reference about them.
    fn know(&mut self, batch: &Arc<Batch>, statistics: Option<Statistics>) -> Result<Known> {
        let chosen = choose(batch, statistics.as_ref(), &self.config)?;
        let mut reference = None;
        if self.config.kl_beta > 0.0 {
            let model = Arc::clone(self.reference()?);
            let plan = self.plan(batch, &clusters(batch, &chosen.samples()));
            let mut passes = self.passes(batch);
            passes.model = &model;
            reference = Some(passes.statistics(plan)?);
        }
        Ok(Known {
            statistics,
            reference,
            chosen,
        })
    }

    /// The one optimizer step whose forward passes were made already.
    fn optimize_held(
        &mut self,
        batch: &Arc<Batch>,
        known: &Known,
        held: ByThread<Held<M::Tape>>,
        tally: &mut Tally,
    ) -> Result<()> {
        let all: Vec<usize> = (0..batch.samples.len()).collect();
        let shares = Shares::of((batch, known), &self.config, &all)?;
        let work = |(samples, forward): Held<M::Tape>| {
            Ok(Work {
                tokens: shares.tokens(&samples)?,
                samples,
                held: Some(forward),
            })
        };
        let work = each(held, work)?;
        // The reading loss covers dropped samples too: reading has no advantage to weigh.
        let counts = (batch.samples.len(), shares.denominator());
        self.optimize(batch, work, counts, tally)
    }

    /// Epochs and minibatches over the kept samples.
    fn optimize_parts(
        &mut self,
        batch: &Arc<Batch>,
        known: &Known,
        parts: usize,
        tally: &mut Tally,
    ) -> Result<()> {
        let kept = known.chosen.samples();
        for epoch in 0..self.config.epochs {
            let stream = self.progress.version.0 << 8 | epoch as u64 & 0xff;
            let groups = clusters(batch, &kept);
            for part in minibatches(groups, parts, (self.config.seed, stream)) {
                let samples = part.concat();
                let shares = Shares::of((batch, known), &self.config, &samples)?;
                let work = |samples: Vec<usize>| {
                    Ok(Work {
                        tokens: shares.tokens(&samples)?,
                        samples,
                        held: None,
                    })
                };
                let work = each(self.plan(batch, &part), work)?;
                let counts = (samples.len(), shares.denominator());
                self.optimize(batch, work, counts, tally)?;
            }
        }
        Ok(())
    }

    /// One optimizer step, or a batch's part in it: its samples and what its loss is divided by.
    fn optimize(
        &mut self,
        batch: &Arc<Batch>,
        work: ByThread<Work<M::Tape>>,
        (samples, denominator): (usize, u64),
        tally: &mut Tally,
    ) -> Result<()> {
        let loss = Loss {
            token: self.config.token_loss(),
            reading_weight: self.config.reading_weight,
            samples,
        };
        let computed = self.passes(batch).gradients(work, loss)?;
        let rates = Rates {
            optimizer: self.config.optimizer,
            learning_rate: self.config.rate(self.progress.stage_steps + 1),
            weight_decay: self.config.weight_decay,
            grad_clip: self.config.grad_clip,
            gradient_scale: 1.0,
        };
        let update = if self.accumulates() {
            self.accumulate(&computed, denominator, rates)?
        } else {
            self.apply(&computed, rates)?
        };
        tally.add(computed, update);
        Ok(())
    }

    fn plan(&self, batch: &Batch, groups: &[Cluster]) -> Plan {
        let config = &self.config;
        plan(batch, groups, config.threads, config.micro_batch_samples)
    }

    fn report(&self, batch: &Batch, known: &Known, tally: &Tally) -> Result<Metrics> {
        let old = match &known.statistics {
            Some(statistics) => drift::log_probs(statistics),
            // Then the first optimizer step was the only one, on all samples.
            None => tally.first_log_probs(batch.samples.len()),
        };
        let mut metrics = tally.policy_gradient(batch);
        metrics.extend(drift::metrics(batch, &old)?);
        metrics.insert("kept_share", known.chosen.kept_share);
        metrics.insert("share_rejected", known.chosen.share_rejected);
        metrics.insert("learning_rate", self.config.rate(self.progress.stage_steps));
        Ok(metrics)
    }
}

/// Makes something of each micro-batch.
fn each<A, B>(items: ByThread<A>, make: impl Fn(A) -> Result<B>) -> Result<ByThread<B>> {
    let of_thread = |share: Vec<A>| share.into_iter().map(&make).collect();
    items.into_iter().map(of_thread).collect()
}
