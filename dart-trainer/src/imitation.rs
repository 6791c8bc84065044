//! Imitation: the mean over samples of the mean negative log-likelihood of the response tokens.

use std::sync::Arc;

use dart_core::Batch;
use dart_kernels::{Token, TokenLoss};
use dart_policy::TrainableModel;

use crate::{
    GrpoLearner,
    error::Result,
    metrics::{Metrics, Tally},
    optimizer::Rates,
    pass::{Loss, Work},
    plan::{clusters, plan},
};

impl<M: TrainableModel> GrpoLearner<M> {
    /// One optimizer step of imitation.
    pub(crate) fn imitate(&mut self, batch: &Arc<Batch>) -> Result<(Metrics, Tally)> {
        let settings = self.config.imitation.clone();
        let samples: Vec<usize> = (0..batch.samples.len()).collect();
        let groups = clusters(batch, &samples);
        let plan = plan(
            batch,
            &groups,
            settings.threads,
            settings.micro_batch_samples,
        );
        let work = plan
            .into_iter()
            .map(|share| share.into_iter().map(|micro| work(batch, micro)).collect())
            .collect();
        let loss = Loss {
            token: TokenLoss::LIKELIHOOD,
            reading_weight: settings.reading_weight,
            samples: samples.len(),
        };
        let computed = self.passes(batch).gradients(work, loss)?;
        let rates = Rates {
            optimizer: self.config.optimizer,
            learning_rate: settings.rate(self.progress.stage_steps + 1),
            weight_decay: settings.weight_decay,
            grad_clip: settings.grad_clip,
            gradient_scale: 1.0,
        };
        let mut tally = Tally::default();
        let update = self.apply(&computed, rates)?;
        tally.add(computed, update);
        let mut metrics = tally.imitation(batch);
        metrics.insert("learning_rate", rates.learning_rate);
        Ok((metrics, tally))
    }
}

fn work<T>(batch: &Batch, samples: Vec<usize>) -> Work<T> {
    let count = batch.samples.len() as f64;
    let tokens = samples
        .iter()
        .flat_map(|index| {
            let response = &batch.samples[*index].response;
            let weight = 1.0 / (count * response.len() as f64);
            response.iter().map(move |target| Token {
                target: *target,
                temperature: 1.0,
                weight,
                advantage: 1.0,
                old: None,
                rollout: None,
                reference: None,
            })
        })
        .collect();
    Work {
        samples,
        tokens,
        held: None,
    }
}
