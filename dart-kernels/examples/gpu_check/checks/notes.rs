//! What is allowed of outcomes, gradients and sums.

use dart_kernels::{LossSums, TokenOutcome, cuda::GpuElement};

use super::Check;

pub(super) fn note_outcome(check: &mut Check, got: &TokenOutcome, want: &TokenOutcome, at: &str) {
    let pairs = [
        ("log-probability", got.log_prob, want.log_prob),
        ("loss", got.loss, want.loss),
        ("surrogate", got.surrogate, want.surrogate),
        ("weight", got.importance, want.importance),
        ("KL", got.kl, want.kl),
        (
            "slope by log-probability",
            got.by_log_prob,
            want.by_log_prob,
        ),
        ("slope by entropy", got.by_entropy, want.by_entropy),
        ("log-ratio", got.log_ratio, want.log_ratio),
        (
            "clip",
            f64::from(got.clip as u8),
            f64::from(want.clip as u8),
        ),
    ];
    for (what, got, want) in pairs {
        check.note(got, want, 2e-5 * want.abs().max(1.0), || {
            format!("{at}, {what}")
        });
    }
}

/// Errors of the slopes of a token, relative to them. They have a bar of their own, and the gradient
/// of the row follows them: a slope that is a small difference has few digits.
pub(super) fn relative_errors(got: &TokenOutcome, want: &TokenOutcome) -> f64 {
    let pairs = [
        (got.by_log_prob, want.by_log_prob),
        (got.by_entropy, want.by_entropy),
    ];
    let off = |(got, want): (f64, f64)| {
        if got == want {
            0.0
        } else {
            (got / want - 1.0).abs()
        }
    };
    pairs.into_iter().map(off).sum()
}

/// A row of the gradient may be off by its rounding, the error of the slopes, and 2e-6 of its norm.
pub(super) fn note_gradient<T: GpuElement>(
    check: &mut Check,
    got: &[T],
    want: &[f64],
    slopes: f64,
    at: &str,
) {
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    let rounding = norm(&mut want.iter().map(|x| Into::<f64>::into(T::from_f64(*x)) - x));
    let size = norm(&mut want.iter().copied());
    let error = norm(
        &mut got
            .iter()
            .zip(want)
            .map(|(got, want)| Into::<f64>::into(*got) - want),
    );
    // Numbers below f16 are lost in it: they are in the rounding already.
    let allowed = 1.02 * rounding + (slopes + 2e-6) * size + f64::MIN_POSITIVE;
    check.note(error, 0.0, allowed, || at.to_owned());
}

pub(super) fn note_sums(check: &mut Check, got: &LossSums, want: &LossSums, at: &str) {
    let counts = |sums: &LossSums| {
        let counts = [
            sums.tokens,
            sums.clip_low,
            sums.clip_high,
            sums.clip_dual,
            sums.importance_bound,
            sums.bad_rows,
        ];
        counts.map(|count| count as f64)
    };
    let numbers = |sums: &LossSums| {
        [
            sums.loss,
            sums.surrogate,
            sums.log_prob,
            sums.entropy,
            sums.kl,
            sums.importance,
            sums.importance_squared,
            sums.importance_max,
            sums.ratio_k1,
            sums.ratio_k3,
        ]
    };
    for (i, (got, want)) in counts(got).into_iter().zip(counts(want)).enumerate() {
        check.note(got, want, 0.0, || format!("{at}, count {i}"));
    }
    let tokens = want.tokens.max(1) as f64;
    for (i, (got, want)) in numbers(got).into_iter().zip(numbers(want)).enumerate() {
        check.note(got, want, 2e-5 * want.abs().max(tokens), || {
            format!("{at}, sum {i}")
        });
    }
}
