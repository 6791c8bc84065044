//! Pure functions of the method: step-wise advantages and the choice of high-entropy steps.

/// Which standard deviation an advantage is divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deviation {
    /// Divided by n: the paper.
    #[default]
    Population,
    /// Divided by n − 1: the released code.
    Sample,
}

/// Added to the standard deviation (arXiv 2509.23866 §3.4, its released code).
pub const ADVANTAGE_EPSILON: f64 = 1e-6;

/// Step-wise GRPO advantages of one group: one number for each trajectory, shared by its steps.
///
/// Every *step* counts once in mean and deviation, so a long trajectory weighs more:
/// A_i = (R_i − μ)/(σ + 1e-6) over the multiset that holds R_i once for each of its `lengths[i]`
/// steps. Over all steps of the group the advantages sum to zero.
///
/// # Panics
/// If the slices differ in length: a bug of the caller.
///
/// # Source
/// arXiv 2509.23866 §3.4.
///
/// ```
/// use dart_core::selection::{Deviation, step_wise_advantages};
///
/// let advantages = step_wise_advantages(&[1.0, 0.0], &[3, 9], Deviation::Population);
/// assert!((advantages[0] - 1.7320).abs() < 1e-4);
/// assert!((advantages[1] + 0.5773).abs() < 1e-4);
/// ```
pub fn step_wise_advantages(rewards: &[f64], lengths: &[usize], deviation: Deviation) -> Vec<f64> {
    assert_eq!(rewards.len(), lengths.len(), "one length for each reward");
    let steps: usize = lengths.iter().sum();
    let over_steps = |value: &dyn Fn(f64) -> f64| -> f64 {
        rewards
            .iter()
            .zip(lengths)
            .map(|(r, l)| value(*r) * *l as f64)
            .sum()
    };
    let mean = over_steps(&|r| r) / steps.max(1) as f64;
    let divisor = match deviation {
        Deviation::Population => steps.max(1),
        Deviation::Sample => steps.saturating_sub(1).max(1),
    };
    let sd = (over_steps(&|r| (r - mean).powi(2)) / divisor as f64).sqrt();
    rewards
        .iter()
        .map(|r| (r - mean) / (sd + ADVANTAGE_EPSILON))
        .collect()
}

/// The `q`-quantile with linear interpolation between order statistics; NaN of nothing.
///
/// # Panics
/// If `q` is outside `0.0..=1.0` or a value is NaN.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    assert!((0.0..=1.0).contains(&q), "a quantile lies in 0 to 1");
    assert!(
        values.iter().all(|v| !v.is_nan()),
        "a quantile of NaN has no meaning"
    );
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = q * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// Which steps of one group are trained on: those whose mean token entropy reaches the
/// `dropped` quantile (0.2 keeps the top 80 %), ties kept.
///
/// # Source
/// arXiv 2509.23866 §3.4 (high-entropy steps).
pub fn high_entropy_steps(mean_entropies: &[f64], dropped: f64) -> Vec<bool> {
    let threshold = quantile(mean_entropies, dropped);
    mean_entropies.iter().map(|h| *h >= threshold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_advantages_of_both_presets() {
        let rewards = [1.0, 0.0, 0.5, 0.0];
        let lengths = [3, 5, 2, 4];
        let near = |deviation, expected: [f64; 4]| {
            let got = step_wise_advantages(&rewards, &lengths, deviation);
            for (got, expected) in got.iter().zip(expected) {
                assert!((got - expected).abs() < 1e-9, "{got} is not {expected}");
            }
        };
        near(
            Deviation::Population,
            [
                1.740_772_317_143,
                -0.696_308_926_857,
                0.522_231_695_143,
                -0.696_308_926_857,
            ],
        );
        near(
            Deviation::Sample,
            [
                1.677_450_326_416,
                -0.670_980_130_566,
                0.503_235_097_925,
                -0.670_980_130_566,
            ],
        );
    }

    #[test]
    fn ties_are_kept() {
        assert_eq!(high_entropy_steps(&[1.0; 5], 0.2), [true; 5]);
        assert_eq!(
            high_entropy_steps(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 0.2),
            [false, true, true, true, true, true]
        );
        assert_eq!(high_entropy_steps(&[], 0.2), Vec::<bool>::new());
    }

    proptest! {
        #[test]
        fn advantages_sum_to_zero_over_steps(
            group in prop::collection::vec((0.0f64..=1.0, 1usize..30), 1..12),
        ) {
            let (rewards, lengths): (Vec<_>, Vec<_>) = group.into_iter().unzip();
            let advantages = step_wise_advantages(&rewards, &lengths, Deviation::Population);
            let sum: f64 = advantages.iter().zip(&lengths).map(|(a, l)| a * *l as f64).sum();
            prop_assert!(sum.abs() < 1e-6, "sum {}", sum);
        }

        #[test]
        fn most_steps_stay(entropies in prop::collection::vec(0.0f64..10.0, 1..100)) {
            let kept = high_entropy_steps(&entropies, 0.2).into_iter().filter(|k| *k).count();
            prop_assert!(kept * 10 + 10 >= entropies.len() * 8);
            prop_assert!(kept >= 1);
        }
    }
}
