//! Log-probability of a label and entropy of the distribution, for each row of logits.

use crate::{Cpu, Element, Labels, Logits, Result, RowStats, cpu::rows::row_stats};

/// [`Cpu::log_prob_entropy`] with the fastest instruction set and all threads.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length), [`Error::Temperature`](crate::Error::Temperature).
///
/// ```
/// use dart_kernels::{Labels, Logits, log_prob_entropy};
///
/// # fn main() -> dart_kernels::Result<()> {
/// let logits = Logits::new(&[0f32, 0.0, f32::NEG_INFINITY], 1, 3)?;
/// let rows = log_prob_entropy(logits, &Labels::new(&[1]))?;
/// assert!((rows[0].log_prob + 2f64.ln()).abs() < 1e-6);
/// assert!((rows[0].entropy - 2f64.ln()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
pub fn log_prob_entropy<T: Element>(
    logits: Logits<'_, T>,
    labels: &Labels<'_>,
) -> Result<Vec<RowStats>> {
    Cpu::new().log_prob_entropy(logits, labels)
}

impl Cpu {
    /// Log-probability of each row's target and entropy of the row under
    /// softmax(logits / temperature). Each logit is read once.
    ///
    /// Errors against exact arithmetic on the same logits are below 4e-6 · max(1, |log p|) and
    /// 5e-6 · max(1, H); log p, H and 1 − p keep six digits when p is close to 1.
    ///
    /// Logits may be −inf. The numbers of a row are NaN if no logit is finite, one is NaN or +inf,
    /// or the target lies outside the row; the log-probability of a target of −inf is −inf.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length), [`Error::Temperature`](crate::Error::Temperature).
    pub fn log_prob_entropy<T: Element>(
        self,
        logits: Logits<'_, T>,
        labels: &Labels<'_>,
    ) -> Result<Vec<RowStats>> {
        labels.check(logits.shape())?;
        Ok(self.map(logits, |index, row| {
            let target = labels.targets[index];
            if labels.ignore == Some(target) {
                return RowStats::IGNORED;
            }
            row_stats(self.isa, row, target, labels.temperature(index))
        }))
    }
}
