//! How token losses become one number: a weight for each token, from *global* counts.
//!
//! With weights made before a batch is split, micro-batches and parallel workers cannot change the
//! loss: it is a plain sum over tokens wherever they are.

use crate::{Error, Result, Sequences};

/// How token losses become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// Mean over all tokens (DAPO).
    TokenMean,
    /// Mean over sequences of the sum over tokens.
    SequenceMeanTokenSum,
    /// Mean over sequences of the mean over tokens (GRPO, GSPO, arXiv 2509.23866).
    SequenceMeanTokenMean,
    /// Mean over sequences of the sum over tokens divided by a constant (Dr. GRPO).
    SequenceMeanTokenSumNorm {
        /// The constant: the largest number of tokens that a sequence may have.
        max_length: usize,
    },
}

/// What is counted over the *whole* batch, on all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens that take part.
    pub tokens: usize,
    /// Sequences with at least one such token.
    pub sequences: usize,
}

impl Counts {
    /// Counts of one part, to be added up over all parts.
    ///
    /// # Errors
    /// [`Error::Sequences`] if `mask` has not one entry for each token of `sequences`.
    pub fn of(mask: &[bool], sequences: &Sequences) -> Result<Self> {
        sequences.check(mask.len())?;
        let lengths = sequences.ranges().map(|range| count(&mask[range]));
        Ok(lengths.fold(Self::default(), |all, tokens| Self {
            tokens: all.tokens + tokens,
            sequences: all.sequences + usize::from(tokens > 0),
        }))
    }
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            tokens: self.tokens + other.tokens,
            sequences: self.sequences + other.sequences,
        }
    }
}

impl Aggregation {
    /// The weight of each token: 0 where `mask` is false. `sequences` must be whole; they may be a
    /// part of the batch that `counts` counts.
    ///
    /// # Errors
    /// [`Error::Sequences`] if `mask` has not one entry for each token of `sequences`, or if
    /// `counts` are less than what is here.
    ///
    /// ```
    /// use dart_kernels::{Aggregation, Counts, Sequences};
    ///
    /// let sequences = Sequences::from_lengths(&[2, 1, 1]);
    /// let mask = [true, true, false, true];
    /// let counts = Counts::of(&mask, &sequences)?;
    /// let weights = Aggregation::SequenceMeanTokenMean.weights(&mask, &sequences, counts)?;
    /// assert_eq!(weights, [0.25, 0.25, 0.0, 0.5]);
    /// # Ok::<(), dart_kernels::Error>(())
    /// ```
    pub fn weights(self, mask: &[bool], sequences: &Sequences, counts: Counts) -> Result<Vec<f64>> {
        let here = Counts::of(mask, sequences)?;
        if here.tokens > counts.tokens || here.sequences > counts.sequences {
            return Err(Error::Sequences(format!(
                "{here:?} are here, more than the {counts:?} of the whole batch"
            )));
        }
        let mut weights = Vec::with_capacity(mask.len());
        for range in sequences.ranges() {
            let mask = &mask[range];
            let weight = self.weight(count(mask), counts);
            weights.extend(mask.iter().map(|read| if *read { weight } else { 0.0 }));
        }
        Ok(weights)
    }

    fn weight(self, tokens: usize, counts: Counts) -> f64 {
        let sequences = counts.sequences as f64;
        match self {
            Self::TokenMean => 1.0 / counts.tokens as f64,
            Self::SequenceMeanTokenSum => 1.0 / sequences,
            Self::SequenceMeanTokenMean => 1.0 / (sequences * tokens as f64),
            Self::SequenceMeanTokenSumNorm { max_length } => 1.0 / (sequences * max_length as f64),
        }
    }
}

fn count(mask: &[bool]) -> usize {
    mask.iter().filter(|read| **read).count()
}
