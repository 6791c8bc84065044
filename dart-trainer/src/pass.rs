//! Forward and backward passes of the model, spread over the worker threads.

use std::sync::Arc;

use dart_core::Batch;
use dart_kernels::{
    Labels, LossSums, RowStats, Sequences, Temperature, Token, TokenLoss, TokenOutcome,
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
    /// Sums over tokens.
    pub sums: LossSums,
    /// Sum of surrogates under their importance weights.
    pub weighted: f64,
    /// Smallest importance weight, if there is a token.
    pub lowest_weight: Option<f64>,
    /// Log-probs of each sample's tokens; 0 where a token was not read.
    pub log_probs: Vec<(usize, Vec<f64>)>,
}

impl Computed {
    fn add(&mut self, other: Self) {
        self.gradients.add(other.gradients);
        self.loss += other.loss;
        self.reading = match (self.reading, other.reading) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.sums = self.sums.merge(&other.sums);
        self.weighted += other.weighted;
        self.lowest_weight = [self.lowest_weight, other.lowest_weight]
            .into_iter()
            .flatten()
            .reduce(f64::min);
        self.log_probs.extend(other.log_probs);
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
    ) -> Result<(ByThread<Held<M::Tape>>, Statistics)> {
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
    pub(crate) fn gradients(&self, work: ByThread<Work<M::Tape>>, loss: Loss) -> Result<Computed> {
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
pub(crate) type ByThread<T> = Vec<Vec<T>>;

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
    let read = || {
        let pairs = work.tokens.iter().zip(&output.outcomes);
        let read = pairs.filter(|(token, _)| token.weight != 0.0);
        read.map(|(_, outcome)| outcome)
    };
    Ok(Computed {
        gradients: Gradients::of(gradients)?,
        loss: output.loss + reading.map_or(0.0, |mean| factor * mean),
        reading: reading.map(|mean| share * mean),
        sums: LossSums::of(&loss.token, &work.tokens, &output.outcomes),
        weighted: read().map(|o| o.importance * o.surrogate).sum(),
        lowest_weight: read().map(|o| o.importance).reduce(f64::min),
        log_probs: log_probs(&work.samples, &sequences, &output.outcomes),
    })
}

fn log_probs(
    samples: &[usize],
    sequences: &Sequences,
    outcomes: &[TokenOutcome],
) -> Vec<(usize, Vec<f64>)> {
    let of_sample =
        |range: std::ops::Range<usize>| outcomes[range].iter().map(|o| o.log_prob).collect();
    let rows = sequences.ranges().map(of_sample);
    samples.iter().copied().zip(rows).collect()
}
