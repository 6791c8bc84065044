//! Operation (b) on the GPU: the token loss and its gradient over the logits.

use cudarc::driver::{CudaSlice, PushKernelArg};

use super::{
    abi::{self, token_outcome},
    buffers::{DeviceLogitsMut, Rows, elements},
    error::{Attempt, Error, Result},
    gpu::{FUSED_CTAS, Gpu, GpuElement},
    plan::{Form, fused_shared_bytes, launches, row_threads, slice_length},
    rows::row_grid,
};
use crate::{RlLoss, Sequences, Token, TokenLoss, rl_loss::check};

/// Tokens of a batch on the device, their loss, and room for what the kernels say about them.
#[derive(Debug)]
pub struct Batch {
    pub(super) tokens: CudaSlice<abi::Token>,
    pub(super) stats: CudaSlice<abi::RowStats>,
    pub(super) outcomes: CudaSlice<abi::Outcome>,
    /// Under a loss with a sequence-level part.
    pub(super) sequences: Option<SequenceBuffers>,
    pub(super) loss: abi::Loss,
    pub(super) rows: usize,
    host: Vec<Token>,
}

/// Which tokens belong together, and what they take from their sequence.
#[derive(Debug)]
pub(super) struct SequenceBuffers {
    pub(super) offsets: CudaSlice<i64>,
    pub(super) count: usize,
    pub(super) terms: CudaSlice<abi::SequenceTerm>,
}

impl Gpu {
    /// [`crate::rl_loss_in_place()`] for logits on the device.
    ///
    /// Takes the two-pass form where device, row length and loss allow it.
    ///
    /// # Errors
    /// [`Error::Refused`] as on the CPU (nothing is written then), [`Error::Driver`].
    pub fn rl_loss_in_place<T: GpuElement>(
        &self,
        mut logits: DeviceLogitsMut<'_, T>,
        tokens: &[Token],
        sequences: &Sequences,
        loss: &TokenLoss,
    ) -> Result<RlLoss> {
        check(logits.shape().rows, tokens)?;
        let mut batch = self.batch(tokens, sequences, loss)?;
        self.run(&mut logits, &mut batch, None)?;
        self.results(&batch)
    }

    /// Copies tokens to the device, after checking them.
    ///
    /// # Errors
    /// [`Error::Refused`] as on the CPU, [`Error::Driver`].
    pub fn batch(
        &self,
        tokens: &[Token],
        sequences: &Sequences,
        loss: &TokenLoss,
    ) -> Result<Batch> {
        check(tokens.len(), tokens)?;
        sequences.check(tokens.len())?;
        let flat: Vec<abi::Token> = tokens.iter().map(abi::Token::from).collect();
        Ok(Batch {
            tokens: self.upload(&flat)?,
            stats: self.zeros(tokens.len())?,
            outcomes: self.zeros(tokens.len())?,
            sequences: if loss.is_token_level() {
                None
            } else {
                Some(self.sequence_buffers(sequences)?)
            },
            loss: abi::Loss::from(loss),
            rows: tokens.len(),
            host: tokens.to_vec(),
        })
    }

    /// Queues the loss of a batch and overwrites its logits by the gradient. Does not wait.
    /// `form` is for measurements; `None` takes the better one.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is not one row for each token, [`Error::NoFusedForm`],
    /// [`Error::Driver`].
    pub fn run<T: GpuElement>(
        &self,
        logits: &mut DeviceLogitsMut<'_, T>,
        batch: &mut Batch,
        form: Option<Form>,
    ) -> Result<()> {
        let shape = logits.shape();
        if shape.rows != batch.rows {
            return Err(crate::Error::Length {
                what: "tokens",
                got: batch.rows,
                rows: shape.rows,
            }
            .into());
        }
        let best = self.form::<T>(shape.vocab, batch.sequences.is_none());
        match form.unwrap_or(best) {
            Form::ThreePass => {
                self.stats(logits, batch, 0)?;
                self.sequence_terms(batch)?;
                self.losses(batch, 0..batch.rows)?;
                self.backward(logits, batch, 0)
            }
            Form::Fused if best == Form::Fused => self.fused(logits, batch, 0),
            Form::Fused => Err(Error::NoFusedForm),
        }
    }

    /// Queues a token-level loss for the tokens of a batch from `first` on, whose rows `logits` are.
    pub(super) fn run_part<T: GpuElement>(
        &self,
        logits: &mut DeviceLogitsMut<'_, T>,
        batch: &mut Batch,
        first: usize,
    ) -> Result<()> {
        let shape = logits.shape();
        if self.form::<T>(shape.vocab, true) == Form::Fused {
            return self.fused(logits, batch, first);
        }
        self.stats(logits, batch, first)?;
        self.losses(batch, first..first + shape.rows)?;
        self.backward(logits, batch, first)
    }

    /// What [`Gpu::run`] said about a batch. Waits for it.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn results(&self, batch: &Batch) -> Result<RlLoss> {
        let stats = self.download(&batch.stats)?;
        let outcomes = self.download(&batch.outcomes)?;
        let pairs = stats[..batch.rows].iter().zip(&outcomes);
        let outcomes = pairs.map(|(stats, outcome)| token_outcome(stats, outcome));
        Ok(RlLoss::sum(&batch.host, outcomes.collect()))
    }

    /// First pass: statistics of every row that is read, of the batch's tokens from `first` on.
    pub(super) fn stats<T: GpuElement>(
        &self,
        logits: &DeviceLogitsMut<'_, T>,
        batch: &mut Batch,
        first: usize,
    ) -> Result<()> {
        let shape = logits.shape();
        let Rows { stride, vocab } = Rows::of(shape);
        for rows in launches(shape.rows, 1) {
            let at = first + rows.start..first + rows.end;
            let data = logits.data.slice(elements(shape, &rows));
            let tokens = batch.tokens.slice(at.clone());
            let mut stats = batch.stats.slice_mut(at.clone());
            let mut launch = self
                .stream()
                .launch_builder(&self.kernels().rows(T::KIND).stats);
            launch
                .arg(&data)
                .arg(&stride)
                .arg(&vocab)
                .arg(&tokens)
                .arg(&mut stats);
            let config = row_grid(rows.len(), 1, row_threads(shape.vocab, size_of::<T>()));
            // SAFETY: arguments as in cuda/abi.cuh. `data` holds `rows` rows of `vocab` logits
            // `stride` apart; `tokens` and `stats` have one struct per row; targets outside the
            // vocabulary are not followed.
            unsafe { launch.launch(config) }.to("start rl_stats")?;
        }
        Ok(())
    }

    /// Third pass: logits become their gradient.
    pub(super) fn backward<T: GpuElement>(
        &self,
        logits: &mut DeviceLogitsMut<'_, T>,
        batch: &Batch,
        first: usize,
    ) -> Result<()> {
        let shape = logits.shape();
        let Rows { stride, vocab } = Rows::of(shape);
        for rows in launches(shape.rows, 1) {
            let at = first + rows.start..first + rows.end;
            let mut data = logits.data.slice_mut(elements(shape, &rows));
            let tokens = batch.tokens.slice(at.clone());
            let stats = batch.stats.slice(at.clone());
            let outcomes = batch.outcomes.slice(at.clone());
            let mut launch = self
                .stream()
                .launch_builder(&self.kernels().rows(T::KIND).backward);
            launch.arg(&mut data).arg(&stride).arg(&vocab);
            launch.arg(&tokens).arg(&stats).arg(&outcomes);
            let config = row_grid(rows.len(), 1, row_threads(shape.vocab, size_of::<T>()));
            // SAFETY: as for rl_stats; the rows are borrowed for writing.
            unsafe { launch.launch(config) }.to("start rl_backward")?;
        }
        Ok(())
    }

    fn fused<T: GpuElement>(
        &self,
        logits: &mut DeviceLogitsMut<'_, T>,
        batch: &mut Batch,
        first: usize,
    ) -> Result<()> {
        let kernels = self.kernels().rows(T::KIND);
        let fused = kernels.fused.as_ref().ok_or(Error::NoFusedForm)?;
        let shape = logits.shape();
        let Rows { stride, vocab } = Rows::of(shape);
        let threads = row_threads(slice_length(shape.vocab, size_of::<T>()), size_of::<T>());
        for rows in launches(shape.rows, FUSED_CTAS) {
            let at = first + rows.start..first + rows.end;
            let mut data = logits.data.slice_mut(elements(shape, &rows));
            let tokens = batch.tokens.slice(at.clone());
            let mut stats = batch.stats.slice_mut(at.clone());
            let mut outcomes = batch.outcomes.slice_mut(at.clone());
            let mut launch = self.stream().launch_builder(&fused.function);
            launch.arg(&mut data).arg(&stride).arg(&vocab).arg(&tokens);
            launch.arg(&batch.loss).arg(&mut stats).arg(&mut outcomes);
            let mut config = row_grid(rows.len(), FUSED_CTAS, threads);
            config.shared_mem_bytes = fused_shared_bytes(shape.vocab, size_of::<T>()) as u32;
            // SAFETY: as for rl_stats; the rows are borrowed for writing. The grid is whole
            // clusters, and each CTA has the shared memory that `abi.cuh` asks for: `run` comes
            // here only where `form` found that the device grants it.
            unsafe { launch.launch(config) }.to("start rl_fused")?;
        }
        Ok(())
    }
}
