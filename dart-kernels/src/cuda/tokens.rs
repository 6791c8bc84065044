//! Operations over tokens on the GPU: losses from statistics, sequence terms, importance weights,
//! segment means, metrics. Each has the name and the meaning of the CPU operation.

use std::ops::Range;

use cudarc::driver::{CudaView, LaunchConfig, PushKernelArg};

use super::{
    abi::{self, METRIC_BLOCKS, METRIC_THREADS, token_outcome},
    error::{Attempt, Result},
    gpu::Gpu,
    plan::{int, launches},
    rl_loss::{Batch, SequenceBuffers},
};
use crate::{LossSums, Sequences, Token, TokenLoss, TokenOutcome};

/// Threads of CTAs that work on tokens or segments.
const THREADS: u32 = 256;

impl Gpu {
    /// [`crate::token_losses`]: losses of all tokens, given the current log-probability and entropy
    /// of each.
    ///
    /// # Errors
    /// [`Error::Refused`](super::Error::Refused) as for a batch or if `current` has another length,
    /// [`Error::Driver`](super::Error::Driver).
    pub fn token_losses(
        &self,
        loss: &TokenLoss,
        tokens: &[Token],
        sequences: &Sequences,
        current: &[(f64, f64)],
    ) -> Result<Vec<TokenOutcome>> {
        let mut batch = self.known_batch(loss, tokens, sequences, current)?;
        self.sequence_terms(&mut batch)?;
        self.losses(&mut batch, 0..tokens.len())?;
        let stats = self.download(&batch.stats)?;
        let outcomes = self.download(&batch.outcomes)?;
        let rows = tokens.iter().zip(stats.iter().zip(&outcomes));
        Ok(rows
            .map(|(token, (stats, outcome))| match token.weight {
                0.0 => TokenOutcome::default(),
                _ => token_outcome(stats, outcome),
            })
            .collect())
    }

    /// The importance weight of each token under `loss`; 0 for tokens of weight 0.
    ///
    /// # Errors
    /// As [`Gpu::token_losses`].
    pub fn importance_weights(
        &self,
        loss: &TokenLoss,
        tokens: &[Token],
        sequences: &Sequences,
        current: &[(f64, f64)],
    ) -> Result<Vec<f64>> {
        let mut batch = self.known_batch(loss, tokens, sequences, current)?;
        self.sequence_terms(&mut batch)?;
        let count = int("the number of tokens", tokens.len())?;
        let mut weights = self.zeros::<f32>(tokens.len())?;
        if count > 0 {
            let terms = batch.sequences.as_ref().map(|s| s.terms.as_view());
            let mut launch = self
                .stream()
                .launch_builder(&self.kernels().importance_weights);
            launch.arg(&batch.stats).arg(&batch.tokens);
            optional(&mut launch, terms.as_ref());
            launch.arg(&batch.loss).arg(&count).arg(&mut weights);
            // SAFETY: arguments as in cuda/abi.cuh; every buffer has `count` elements.
            unsafe { launch.launch(grid(tokens.len(), 1)) }.to("start importance_weights")?;
        }
        let weights = self.download(&weights)?;
        Ok(weights[..tokens.len()]
            .iter()
            .copied()
            .map(f64::from)
            .collect())
    }

    /// The mean of `values` over each segment, in f64; NaN of an empty one.
    ///
    /// # Errors
    /// [`Error::Refused`](super::Error::Refused) if the segments do not fit the values,
    /// [`Error::TooLarge`](super::Error::TooLarge), [`Error::Driver`](super::Error::Driver).
    pub fn segment_means(&self, values: &[f32], segments: &Sequences) -> Result<Vec<f32>> {
        segments.check(values.len())?;
        let count = int("the number of segments", segments.len())?;
        if count == 0 {
            return Ok(vec![]);
        }
        let (values, offsets) = (self.upload(values)?, self.upload(&offsets(segments))?);
        let mut means = self.zeros::<f32>(segments.len())?;
        let mut launch = self.stream().launch_builder(&self.kernels().segment_means);
        launch
            .arg(&values)
            .arg(&offsets)
            .arg(&count)
            .arg(&mut means);
        // SAFETY: arguments as in cuda/abi.cuh; offsets are `count` + 1, never fall, and end within
        // `values`: that is what `Sequences` promises and `check` has compared.
        unsafe { launch.launch(grid(segments.len(), 32)) }.to("start segment_means")?;
        self.download(&means)
    }

    /// [`crate::LossSums`] of a batch that [`Gpu::run`] has worked on. Blocks are others than on the
    /// CPU, so sums may differ in their last digits.
    ///
    /// # Errors
    /// [`Error::TooLarge`](super::Error::TooLarge), [`Error::Driver`](super::Error::Driver).
    pub fn loss_sums(&self, batch: &Batch) -> Result<LossSums> {
        let count = int("the number of tokens", batch.rows)?;
        let mut partials = self.zeros::<abi::LossSums>(METRIC_BLOCKS as usize)?;
        let mut total = self.zeros::<abi::LossSums>(1)?;
        let mut launch = self
            .stream()
            .launch_builder(&self.kernels().metrics_partial);
        launch
            .arg(&batch.stats)
            .arg(&batch.tokens)
            .arg(&batch.outcomes);
        launch.arg(&batch.loss).arg(&count).arg(&mut partials);
        // SAFETY: arguments as in cuda/abi.cuh; the inputs have `count` elements, `partials` has
        // one for each CTA.
        unsafe { launch.launch(metric_grid(METRIC_BLOCKS)) }.to("start loss_metrics_partial")?;
        let mut launch = self.stream().launch_builder(&self.kernels().metrics_total);
        launch.arg(&partials).arg(&mut total);
        // SAFETY: arguments as in cuda/abi.cuh; one CTA reads METRIC_BLOCKS partial sums.
        unsafe { launch.launch(metric_grid(1)) }.to("start loss_metrics_total")?;
        Ok(LossSums::from(&self.download(&total)?[0]))
    }

    /// Second stage of the three-pass form: losses of the tokens `part` from their statistics.
    pub(super) fn losses(&self, batch: &mut Batch, part: Range<usize>) -> Result<()> {
        for rows in launches(part.len(), 1) {
            let rows = part.start + rows.start..part.start + rows.end;
            let count = int("the number of tokens", rows.len())?;
            let stats = batch.stats.slice(rows.clone());
            let tokens = batch.tokens.slice(rows.clone());
            let terms = batch
                .sequences
                .as_ref()
                .map(|s| s.terms.slice(rows.clone()));
            let mut outcomes = batch.outcomes.slice_mut(rows.clone());
            let mut launch = self.stream().launch_builder(&self.kernels().token_loss);
            launch.arg(&stats).arg(&tokens);
            optional(&mut launch, terms.as_ref());
            launch.arg(&batch.loss).arg(&count).arg(&mut outcomes);
            // SAFETY: arguments as in cuda/abi.cuh; every buffer has `count` elements.
            unsafe { launch.launch(grid(rows.len(), 1)) }.to("start token_loss")?;
        }
        Ok(())
    }

    pub(super) fn sequence_buffers(&self, sequences: &Sequences) -> Result<SequenceBuffers> {
        int("the number of sequences", sequences.len())?;
        Ok(SequenceBuffers {
            offsets: self.upload(&offsets(sequences))?,
            count: sequences.len(),
            terms: self.zeros(sequences.tokens())?,
        })
    }

    /// What tokens take from their sequences, under a loss that needs it.
    pub(super) fn sequence_terms(&self, batch: &mut Batch) -> Result<()> {
        let Some(sequences) = batch.sequences.as_mut().filter(|s| s.count > 0) else {
            return Ok(());
        };
        let count = int("the number of sequences", sequences.count)?;
        let mut launch = self.stream().launch_builder(&self.kernels().sequence_terms);
        launch
            .arg(&batch.stats)
            .arg(&batch.tokens)
            .arg(&sequences.offsets);
        launch
            .arg(&count)
            .arg(&batch.loss)
            .arg(&mut sequences.terms);
        // SAFETY: arguments as in cuda/abi.cuh; offsets are `count` + 1, never fall, and end at the
        // number of tokens, which every other buffer has elements for.
        unsafe { launch.launch(grid(sequences.count, 32)) }.to("start sequence_terms")?;
        Ok(())
    }

    /// A batch whose log-probabilities and entropies are given.
    fn known_batch(
        &self,
        loss: &TokenLoss,
        tokens: &[Token],
        sequences: &Sequences,
        current: &[(f64, f64)],
    ) -> Result<Batch> {
        if current.len() != tokens.len() {
            return Err(crate::Error::Length {
                what: "log-probabilities",
                got: current.len(),
                rows: tokens.len(),
            }
            .into());
        }
        let mut batch = self.batch(tokens, sequences, loss)?;
        let stats: Vec<_> = current
            .iter()
            .map(|known| abi::RowStats::known(*known))
            .collect();
        batch.stats = self.upload(&stats)?;
        Ok(batch)
    }
}

type Launch<'a> = cudarc::driver::LaunchArgs<'a>;

/// The null pointer, as an argument of a kernel.
static NULL: u64 = 0;

/// A buffer or the null pointer.
fn optional<'a, 'b: 'a, T>(launch: &mut Launch<'a>, buffer: Option<&'b CudaView<'b, T>>) {
    match buffer {
        Some(buffer) => launch.arg(buffer),
        None => launch.arg(&NULL),
    };
}

fn offsets(sequences: &Sequences) -> Vec<i64> {
    sequences
        .offsets()
        .iter()
        .map(|offset| *offset as i64)
        .collect()
}

/// Grid of `count` pieces of work with `threads_each` threads. `count` is below 2³¹.
fn grid(count: usize, threads_each: usize) -> LaunchConfig {
    let ctas = (count * threads_each).div_ceil(THREADS as usize);
    LaunchConfig {
        grid_dim: (ctas as u32, 1, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: 0,
    }
}

fn metric_grid(ctas: u32) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (ctas, 1, 1),
        block_dim: (METRIC_THREADS, 1, 1),
        shared_mem_bytes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_cover_the_work() {
        assert_eq!(grid(1, 1).grid_dim.0, 1);
        assert_eq!(grid(257, 1).grid_dim.0, 2);
        assert_eq!(grid(9, 32).grid_dim.0, 2);
        let most = grid(i32::MAX as usize, 32).grid_dim.0 as usize;
        assert!(most * THREADS as usize >= i32::MAX as usize * 32);
    }
}
