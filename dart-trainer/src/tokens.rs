//! The tokens of an optimizer step, with their shares of its loss.

use dart_core::{Batch, Objective};
use dart_kernels::{Aggregation, Counts, Sequences, Token};

use crate::{
    RatioSource, TrainerConfig, choice::Chosen, error::Result, pass::Statistics,
    validate::temperature,
};

/// What is known about each sample before the optimizer steps.
pub(crate) struct Known {
    /// Old log-probs and entropies, if they had to be known in advance.
    pub statistics: Option<Statistics>,
    /// Log-probs under the reference, if there is a KL term.
    pub reference: Option<Statistics>,
    /// Which tokens are trained on.
    pub chosen: Chosen,
}

/// One optimizer step: counts over all its samples, from which every token has its weight, in
/// whatever micro-batch it is.
pub(crate) struct Shares<'a> {
    batch: &'a Batch,
    known: &'a Known,
    config: &'a TrainerConfig,
    counts: Counts,
}

impl<'a> Shares<'a> {
    /// Shares of a step on these samples of `batch`.
    pub(crate) fn of(
        (batch, known): (&'a Batch, &'a Known),
        config: &'a TrainerConfig,
        samples: &[usize],
    ) -> Result<Self> {
        let (mask, sequences) = layout(known, samples);
        Ok(Self {
            batch,
            known,
            config,
            counts: Counts::of(&mask, &sequences)?,
        })
    }

    /// What the aggregation divides by, which grows with the samples.
    pub(crate) fn denominator(&self) -> u64 {
        let count = match self.config.token_weights() {
            Aggregation::TokenMean => self.counts.tokens,
            Aggregation::SequenceMeanTokenSum
            | Aggregation::SequenceMeanTokenMean
            | Aggregation::SequenceMeanTokenSumNorm { .. } => self.counts.sequences,
        };
        count as u64
    }

    /// The response tokens of some of the step's samples.
    pub(crate) fn tokens(&self, samples: &[usize]) -> Result<Vec<Token>> {
        let (mask, sequences) = layout(self.known, samples);
        let aggregation = self.config.token_weights();
        let weights = aggregation.weights(&mask, &sequences, self.counts)?;
        let places = samples.iter().flat_map(|index| {
            let length = self.batch.samples[*index].response.len();
            (0..length).map(|t| (*index, t))
        });
        let token = |((index, t), weight): ((usize, usize), f64)| {
            let trained = self.known.chosen.trained[index][t];
            self.token(index, t, if trained { weight } else { 0.0 })
        };
        Ok(places.zip(weights).map(token).collect())
    }

    fn token(&self, index: usize, t: usize, weight: f64) -> Token {
        let sample = &self.batch.samples[index];
        let log_prob = |statistics: &Option<Statistics>| {
            let row = statistics.as_ref()?.get(index)?.get(t)?;
            Some(row.log_prob)
        };
        let rollout = sample.rollout_log_probs.get(t).map(|lp| f64::from(*lp));
        let old = log_prob(&self.known.statistics);
        Token {
            target: sample.response[t],
            temperature: temperature(Objective::PolicyGradient, sample),
            weight,
            advantage: sample.advantages[t],
            old: match self.config.ratio_source {
                RatioSource::Old => old,
                RatioSource::Rollout => rollout.or(old),
            },
            rollout,
            reference: log_prob(&self.known.reference),
        }
    }
}

/// Which tokens of `samples` are counted, and which belong together.
fn layout(known: &Known, samples: &[usize]) -> (Vec<bool>, Sequences) {
    let masks = || samples.iter().map(|index| &known.chosen.counted[*index]);
    let lengths: Vec<usize> = masks().map(Vec::len).collect();
    let mask = masks().flatten().copied().collect();
    (mask, Sequences::from_lengths(&lengths))
}
