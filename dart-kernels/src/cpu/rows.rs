//! [`Cpu`]: how the kernels run, and rows spread over threads.

use rayon::prelude::*;

use super::{isa::Isa, partial::Finished};
use crate::{Element, Logits, LogitsMut, Result, RowStats, cpu::partial::Partial};

/// Logits below which threads cost more than they bring.
const WORTH_A_THREAD: usize = 1 << 16;

/// How the kernels run on the CPU. The operations are its methods.
///
/// The default takes the fastest instruction set of this machine and all threads of the rayon pool
/// that the caller runs in. Results do not depend on the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    pub(crate) isa: Isa,
    parallel: bool,
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

impl Cpu {
    /// The fastest instruction set, all threads.
    pub fn new() -> Self {
        Self {
            isa: Isa::detect(),
            parallel: true,
        }
    }

    /// Another instruction set, to compare it.
    ///
    /// # Errors
    /// [`Error::InstructionSet`](crate::Error::InstructionSet) if this machine lacks it.
    pub fn with_isa(self, isa: Isa) -> Result<Self> {
        let isa = isa.require()?;
        Ok(Self { isa, ..self })
    }

    /// Only the calling thread, for callers that spread work themselves.
    pub fn single_threaded(self) -> Self {
        Self {
            parallel: false,
            ..self
        }
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Whether the threads of the pool may be used. A pool of one thread would only make callers
    /// on several threads wait for each other.
    pub(crate) fn is_parallel(self) -> bool {
        self.parallel && rayon::current_num_threads() > 1
    }

    /// Rows that one thread should take at least; `None` if one thread should take all.
    fn rows_per_thread(self, rows: usize, vocab: usize) -> Option<usize> {
        let enough = WORTH_A_THREAD.div_ceil(vocab.max(1));
        (self.is_parallel() && rows > enough).then_some(enough)
    }

    /// `each` of every row, in order.
    pub(crate) fn map<T: Element, R: Send>(
        self,
        logits: Logits<'_, T>,
        each: impl Fn(usize, &[T]) -> R + Sync,
    ) -> Vec<R> {
        let shape = logits.shape();
        let row = |index| each(index, logits.row(index));
        match self.rows_per_thread(shape.rows, shape.vocab) {
            None => (0..shape.rows).map(row).collect(),
            Some(least) => (0..shape.rows)
                .into_par_iter()
                .with_min_len(least)
                .map(row)
                .collect(),
        }
    }

    /// `each` of every row, in order; rows may be overwritten.
    pub(crate) fn map_mut<T: Element, R: Send>(
        self,
        logits: LogitsMut<'_, T>,
        each: impl Fn(usize, &mut [T]) -> R + Sync,
    ) -> Vec<R> {
        let shape = logits.shape();
        let stride = shape.row_stride.max(1);
        let row = |(index, chunk): (usize, &mut [T])| each(index, &mut chunk[..shape.vocab]);
        match self.rows_per_thread(shape.rows, shape.vocab) {
            None => {
                let rows = logits.into_data().chunks_mut(stride);
                rows.enumerate().map(row).collect()
            }
            Some(least) => {
                let rows = logits.into_data().par_chunks_mut(stride);
                rows.enumerate().with_min_len(least).map(row).collect()
            }
        }
    }
}

/// Reads one row: all logits but the target's, which is merged last.
pub(crate) fn finish_row<T: Element>(
    isa: Isa,
    row: &[T],
    target: u32,
    temperature: f64,
) -> Finished {
    let target = target as usize;
    let Some(logit) = row.get(target) else {
        return Finished::NAN;
    };
    let scale = T::scale(temperature);
    let mut partial = Partial::EMPTY;
    T::scan(isa, &row[..target], scale, &mut partial);
    T::scan(isa, &row[target + 1..], scale, &mut partial);
    partial.finish((*logit).into(), scale)
}

/// What is said of one row.
pub(crate) fn row_stats<T: Element>(
    isa: Isa,
    row: &[T],
    target: u32,
    temperature: f64,
) -> RowStats {
    finish_row(isa, row, target, temperature).stats
}
