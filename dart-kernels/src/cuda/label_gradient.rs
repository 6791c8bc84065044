//! The gradient of log-probabilities and entropies, for losses that are composed elsewhere.

use super::{
    abi,
    buffers::DeviceLogitsMut,
    error::Result,
    gpu::{Gpu, GpuElement},
};
use crate::{Labels, Sequences, Token, TokenLoss};

impl Gpu {
    /// Overwrites logits by the gradient of a loss that depends on the log-probability and the
    /// entropy of each row as `by` says: pairs, row by row. Rows that are ignored or have no
    /// distribution get 0.
    ///
    /// # Errors
    /// [`Error::Refused`](super::Error::Refused) if the labels or `by` do not fit the rows,
    /// [`Error::Driver`](super::Error::Driver).
    pub fn label_gradient<T: GpuElement>(
        &self,
        mut logits: DeviceLogitsMut<'_, T>,
        labels: &Labels<'_>,
        by: &[f64],
    ) -> Result<()> {
        let rows = logits.shape().rows;
        labels.check(logits.shape())?;
        if by.len() != 2 * rows {
            let (what, got) = ("derivatives", by.len());
            return Err(crate::Error::Length { what, got, rows }.into());
        }
        let tokens: Vec<_> = (0..rows).map(|index| token(labels, index)).collect();
        let sequences = Sequences::single_tokens(rows);
        let mut batch = self.batch(&tokens, &sequences, &TokenLoss::LIKELIHOOD)?;
        self.stats(&logits, &mut batch, 0)?;
        let outcomes: Vec<_> = by.chunks_exact(2).map(|by| outcome(by[0], by[1])).collect();
        batch.outcomes = self.upload(&outcomes)?;
        self.backward(&mut logits, &batch, 0)
    }
}

/// The token that a row's label asks for; an ignored row is not read.
fn token(labels: &Labels<'_>, index: usize) -> Token {
    let target = labels.targets[index];
    Token {
        target,
        temperature: labels.temperature(index),
        weight: if labels.ignore == Some(target) {
            0.0
        } else {
            1.0
        },
        advantage: 0.0,
        old: None,
        rollout: None,
        reference: None,
    }
}

fn outcome(by_log_prob: f64, by_entropy: f64) -> abi::Outcome {
    abi::Outcome {
        by_log_prob: by_log_prob as f32,
        by_entropy: by_entropy as f32,
        ..abi::Outcome::default()
    }
}
