//! Off-policy correction: importance weights, rejection of what drifted too far, and metrics.

/// Effective share of samples under importance weights: 1 / mean((w / mean w)²), in 0 to 1.
/// NaN of nothing.
pub fn effective_sample_size(weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let squares: f64 = weights.iter().map(|w| w * w).sum();
    sum * sum / (squares * weights.len() as f64)
}
