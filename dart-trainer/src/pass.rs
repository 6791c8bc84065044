//! Forward and backward passes of the model, spread over the worker threads.

use std::sync::Arc;

use dart_core::Batch;
use dart_kernels::{
    Labels, RowStats, Sequences, Temperature, Token, TokenLoss, TokenOutcome,
    candle_op::{rl_loss_in_place, row_stats},
};
use dart_policy::{Forward, TrainableModel, Upstream};

use crate::{
    error::{Result, TrainerError},
    gradients::Gradients,
    plan::Plan,
    validate::temperature,
    workers::{Task, Workers},
};

/// Statistics of each response token, for each sample of the batch; empty for samples left out.
pub(crate) type Statistics = Vec<Vec<RowStats>>;

/// One forward pass with its loss.
pub(crate) struct Work<T> {
    /// Samples, as indices into the batch.
    pub samples: Vec<usize>,
    /// Their response tokens, one after another.
    pub tokens: Vec<Token>,
    /// The forward pass, if it was made already.
    pub held: Option<Forward<T>>,
}

/// What is minimised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    /// Loss of each token.
    pub token: TokenLoss,
    /// Factor of the reading loss; with 0 it is not computed.
    pub reading_weight: f64,
    /// Samples of the whole optimizer step: a micro-batch's reading loss counts by its share.
    pub samples: usize,
}

/// Loss and gradients of an optimizer step.
#[derive(Debug, Default)]
pub(crate) struct Computed {
    pub gradients: Gradients,
    /// The whole loss, reading included.
    pub loss: f64,
    /// Mean reading loss, if there was any.
    pub reading: Option<f64>,
    /// Each token with what it gave.
    pub tokens: Vec<(Token, TokenOutcome)>,
    /// Rows without a finite log-probability.
    pub bad_rows: usize,
}

impl Computed {
    fn add(&mut self, other: Self) {
        self.gradients.add(other.gradients);
        self.loss += other.loss;
        self.reading = match (self.reading, other.reading) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.tokens.extend(other.tokens);
        self.bad_rows += other.bad_rows;
    }
}

/// A model, a batch, and threads to bring them together.
pub(crate) struct Passes<'a, M> {
    pub model: &'a Arc<M>,
    pub batch: &'a Arc<Batch>,
    pub workers: &'a Workers,
}

impl<M: TrainableModel> Passes<'_, M> {
    /// Log-probs and entropies of the planned samples.
    pub(crate) fn statistics(&self, plan: Plan) -> Result<Statistics> {
        let passed = self.each(plan, |model, batch, samples| {
            let forward = forward(model, batch, &samples, false)?;
            let rows = rows(batch, &samples, &forward)?;
            Ok((samples, rows))
        })?;
        Ok(self.by_sample(passed))
    }

    /// Forward passes that are kept, with the statistics of their samples.
    pub(crate) fn hold(
        &self,
        plan: Plan,
        reading: bool,
    ) -> Result<(Shares<Held<M::Tape>>, Statistics)> {
        let held = self.each(plan, move |model, batch, samples| {
            let forward = forward(model, batch, &samples, reading)?;
            let rows = rows(batch, &samples, &forward)?;
            Ok((samples, (forward, rows)))
        })?;
        let mut rows = Vec::new();
        let mut shares = Vec::new();
        for share in held {
            let mut kept = Vec::new();
            let mut found = Vec::new();
            for (samples, (forward, rows)) in share {
                found.push((samples.clone(), rows));
                kept.push((samples, forward));
            }
            rows.push(found);
            shares.push(kept);
        }
        Ok((shares, self.by_sample(rows)))
    }

    /// Loss and gradients of `work` (for each thread its micro-batches), summed in order.
    pub(crate) fn gradients(&self, work: Shares<Work<M::Tape>>, loss: Loss) -> Result<Computed> {
        let tasks = work.into_iter().map(|share| {
            let (model, batch) = (Arc::clone(self.model), Arc::clone(self.batch));
            Box::new(move || {
                let mut sum = Computed::default();
                for work in share {
                    sum.add(backward(&*model, &batch, work, &loss)?);
                }
                Ok(sum)
            }) as Task<Computed>
        });
        let mut sum = Computed::default();
        for share in self.workers.run(tasks.collect())? {
            sum.add(share);
        }
        Ok(sum)
    }

    /// Runs `pass` on every micro-batch of `plan`, each on its thread.
    fn each<T: Send + 'static>(
        &self,
        plan: Plan,
        pass: impl Fn(&M, &Batch, Vec<usize>) -> Result<T> + Clone + Send + 'static,
    ) -> Result<Vec<Vec<T>>> {
        let tasks = plan.into_iter().map(|share| {
            let (model, batch) = (Arc::clone(self.model), Arc::clone(self.batch));
            let pass = pass.clone();
            Box::new(move || {
                share
                    .into_iter()
                    .map(|samples| pass(&model, &batch, samples))
                    .collect()
            }) as Task<Vec<T>>
        });
        self.workers.run(tasks.collect())
    }

    /// Cuts rows of whole micro-batches into rows of samples.
    fn by_sample(&self, passed: Vec<Vec<(Vec<usize>, Vec<RowStats>)>>) -> Statistics {
        let mut statistics = vec![Vec::new(); self.batch.samples.len()];
        for (samples, rows) in passed.into_iter().flatten() {
            let mut rows = rows.into_iter();
            for index in samples {
                let tokens = self.batch.samples[index].response.len();
                statistics[index] = rows.by_ref().take(tokens).collect();
            }
        }
        statistics
    }
}

/// For each thread its micro-batches.
pub(crate) type Shares<T> = Vec<Vec<T>>;

/// Samples with their forward pass.
pub(crate) type Held<T> = (Vec<usize>, Forward<T>);

fn forward<M: TrainableModel>(
    model: &M,
    batch: &Batch,
    samples: &[usize],
    reading: bool,
) -> Result<Forward<M::Tape>> {
    let forward = model.forward(batch, samples, reading)?;
    let rows = samples
        .iter()
        .map(|i| batch.samples[*i].response.len())
        .sum();
    match forward.logits.dims() {
        [got, _] if *got == rows => Ok(forward),
        got => Err(TrainerError::Logits {
            got: got.to_vec(),
            rows,
        }),
    }
}

fn rows<T>(batch: &Batch, samples: &[usize], forward: &Forward<T>) -> Result<Vec<RowStats>> {
    let mut targets = Vec::new();
    let mut temperatures = Vec::new();
    for sample in samples.iter().map(|index| &batch.samples[*index]) {
        targets.extend_from_slice(&sample.response);
        temperatures.resize(targets.len(), temperature(batch.objective, sample));
    }
    let labels = Labels {
        temperature: Temperature::PerRow(&temperatures),
        ..Labels::new(&targets)
    };
    Ok(row_stats(&forward.logits, &labels)?)
}

fn backward<M: TrainableModel>(
    model: &M,
    batch: &Batch,
    work: Work<M::Tape>,
    loss: &Loss,
) -> Result<Computed> {
    let reads = loss.reading_weight > 0.0;
    let forward = match work.held {
        Some(forward) => forward,
        None => forward(model, batch, &work.samples, reads)?,
    };
    let lengths: Vec<usize> = work
        .samples
        .iter()
        .map(|index| batch.samples[*index].response.len())
        .collect();
    let sequences = Sequences::from_lengths(&lengths);
    // From here on the logits are their gradient.
    let output = rl_loss_in_place(&forward.logits, &work.tokens, &sequences, &loss.token)?;
    let share = work.samples.len() as f64 / loss.samples.max(1) as f64;
    let factor = loss.reading_weight * share;
    let reading = forward.reading_loss.filter(|_| reads);
    let by = Upstream {
        logits: &forward.logits,
        reading: reading.map_or(0.0, |_| factor),
    };
    let gradients = model.backward(forward.tape, by)?;
    Ok(Computed {
        gradients: Gradients::of(gradients)?,
        loss: output.loss + reading.map_or(0.0, |mean| factor * mean),
        reading: reading.map(|mean| share * mean),
        tokens: work.tokens.into_iter().zip(output.outcomes).collect(),
        bad_rows: output.bad_rows,
    })
}
