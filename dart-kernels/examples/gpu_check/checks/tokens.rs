//! Operations over tokens and segments.

use dart_kernels::{Sequences, cuda::Gpu, token_losses};

use super::{Check, Extent, Result, inputs, notes::note_outcome, published, rows::sequences};

pub(super) fn token_operations(gpu: &Gpu, extent: Extent) -> Result<Check> {
    let mut check = Check::new("token_losses, importance_weights");
    for count in extent.tokens.iter().copied() {
        let log_probs: Vec<f64> = (0..count)
            .map(|row| -3.0 * inputs::uniform(60, row as u64))
            .collect();
        let tokens = inputs::tokens(60, 1000, &log_probs);
        let current: Vec<(f64, f64)> = log_probs.iter().map(|log_prob| (*log_prob, 1.5)).collect();
        let sequences = sequences(count);
        for (name, loss) in published() {
            let got = gpu.token_losses(&loss, &tokens, &sequences, &current)?;
            let want = token_losses(&loss, &tokens, &sequences, &current);
            for (row, (got, want)) in got.iter().zip(&want).enumerate() {
                note_outcome(
                    &mut check,
                    got,
                    want,
                    &format!("{name}, token {row} of {count}"),
                );
            }
            let weights = gpu.importance_weights(&loss, &tokens, &sequences, &current)?;
            for (row, (got, want)) in weights.iter().zip(&want).enumerate() {
                let at = || format!("{name}, weight {row} of {count}");
                check.note(*got, want.importance, 2e-5 * want.importance.max(1.0), at);
            }
        }
    }
    Ok(check)
}

pub(super) fn segments(gpu: &Gpu) -> Result<Check> {
    let mut check = Check::new("segment_means");
    for lengths in [vec![], vec![0], vec![1, 0, 33, 5000, 2, 64], vec![3; 700]] {
        let segments = Sequences::from_lengths(&lengths);
        let values: Vec<f32> = (0..segments.tokens() as u64)
            .map(|i| inputs::normal(70, i))
            .collect();
        let got = gpu.segment_means(&values, &segments)?;
        for (segment, (got, range)) in got.iter().zip(segments.ranges()).enumerate() {
            let part = &values[range];
            let sum: f64 = part.iter().map(|x| f64::from(*x)).sum();
            let want = sum / part.len() as f64;
            check.note((*got).into(), want, 1e-6 * want.abs().max(1.0), || {
                format!("segment {segment}")
            });
        }
        check.compared += 1;
    }
    Ok(check)
}
