//! The gradient of log-probabilities and entropies, for losses that are composed elsewhere.

use crate::{Cpu, Element, Labels, LogitsMut, Result, RowGradient, cpu::rows::finish_row};

/// Overwrites logits by the gradient of a loss that depends on the log-probability and the entropy
/// of each row as `by` says: pairs, row by row. Rows without a distribution get 0.
pub(crate) fn label_gradient<T: Element>(
    cpu: Cpu,
    logits: LogitsMut<'_, T>,
    labels: &Labels<'_>,
    by: &[f64],
) -> Result<()> {
    labels.check(logits.shape())?;
    cpu.map_mut(logits, |index, row| {
        let (target, temperature) = (labels.targets[index], labels.temperature(index));
        let finished = finish_row(cpu.isa, row, target, temperature);
        if labels.ignore == Some(target) || !finished.stats.is_finite() {
            row.fill(T::ZERO);
            return;
        }
        let by = RowGradient {
            log_prob: by[2 * index],
            entropy: by[2 * index + 1],
        };
        let scale = T::scale(temperature);
        T::gradient(cpu.isa, row, &finished.coefficients(by, scale));
        row[target as usize] = T::from_f64(finished.at_target(by, scale));
    });
    Ok(())
}
