//! The choice of high-entropy steps. Pure functions.
//!
//! `dart_kernels` has a quantile of its own, over segments of a tensor and within a tolerance: it
//! depends on no crate of this workspace, and this one on no tensors.

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
        fn most_steps_stay(entropies in prop::collection::vec(0.0f64..10.0, 1..100)) {
            let kept = high_entropy_steps(&entropies, 0.2).into_iter().filter(|k| *k).count();
            prop_assert!(kept * 10 + 10 >= entropies.len() * 8);
            prop_assert!(kept >= 1);
        }

        /// Ties stand or fall together, whatever the order, and nothing kept lies below what fell.
        #[test]
        fn equal_steps_share_their_fate(
            levels in prop::collection::vec(0u8..6, 1..60), dropped in 0.0f64..1.0,
        ) {
            let entropies: Vec<f64> = levels.iter().map(|level| f64::from(*level) / 7.0).collect();
            let kept = high_entropy_steps(&entropies, dropped);
            for (a, kept_a) in entropies.iter().zip(&kept) {
                for (b, kept_b) in entropies.iter().zip(&kept) {
                    prop_assert!(a > b || kept_b >= kept_a, "{} {} but {} {}", a, kept_a, b, kept_b);
                }
            }
            let backwards: Vec<f64> = entropies.iter().rev().copied().collect();
            let mut again = high_entropy_steps(&backwards, dropped);
            again.reverse();
            prop_assert_eq!(kept, again);
        }

        /// A quantile lies between order statistics and never falls as q rises.
        #[test]
        fn quantiles_are_ordered(
            values in prop::collection::vec(-5.0f64..5.0, 1..40), a in 0.0f64..=1.0, b in 0.0f64..=1.0,
        ) {
            let (low, high) = (a.min(b), a.max(b));
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(quantile(&values, low) <= quantile(&values, high) + 1e-12);
            prop_assert_eq!(quantile(&values, 0.0), least);
            prop_assert_eq!(quantile(&values, 1.0), most);
        }
    }
}
