//! The definition in plain f64, one logit after another: what every kernel is measured against.
//!
//! Online softmax with a *centred* weighted sum, the target left out of the scan and merged last
//! (complement form). Masked (−inf) logits are skipped, so they cannot make NaN, and 1 − p keeps
//! its relative precision when p is close to 1.

use crate::{Element, RowGradient, RowStats};

/// Running maximum m, Σ e^(z−m) and Σ (z−m) e^(z−m).
struct Scan {
    max: f64,
    sum: f64,
    weighted: f64,
}

impl Scan {
    fn push(&mut self, z: f64) {
        if z == f64::NEG_INFINITY {
            return;
        }
        if z > self.max {
            let fall = self.max - z;
            let scale = fall.exp();
            // Before the first number the maximum is −inf, and 0 · −inf would be NaN.
            self.weighted = if scale > 0.0 {
                scale * (self.weighted + fall * self.sum)
            } else {
                0.0
            };
            self.sum = if z < f64::INFINITY {
                scale * self.sum + 1.0
            } else {
                f64::NAN
            };
            self.max = z;
        } else {
            let below = z - self.max;
            let e = below.exp();
            self.sum += e;
            self.weighted += below * e;
        }
    }

    fn finish(&self, target: f64) -> RowStats {
        if self.sum == 0.0 && target.is_finite() {
            return RowStats {
                log_prob: 0.0,
                entropy: 0.0,
                complement: 0.0,
                log_sum_exp: target,
            };
        }
        let above = target - self.max;
        if above >= 0.0 {
            self.finish_above(target, above)
        } else {
            self.finish_below(above)
        }
    }

    /// The target is the maximum: R is the odds against it.
    fn finish_above(&self, target: f64, above: f64) -> RowStats {
        let scale = (-above).exp();
        let odds = self.sum * scale;
        let weighted = if scale > 0.0 {
            scale * (self.weighted - above * self.sum)
        } else {
            0.0
        };
        RowStats {
            log_prob: -odds.ln_1p(),
            entropy: odds.ln_1p() - weighted / (1.0 + odds),
            complement: odds / (1.0 + odds),
            log_sum_exp: target + odds.ln_1p(),
        }
    }

    fn finish_below(&self, above: f64) -> RowStats {
        let e = above.exp();
        let sum = self.sum + e;
        let weighted = self.weighted + if e > 0.0 { e * above } else { 0.0 };
        RowStats {
            log_prob: above - sum.ln(),
            entropy: sum.ln() - weighted / sum,
            complement: self.sum / sum,
            log_sum_exp: self.max + sum.ln(),
        }
    }
}

/// Log-probability of `target` and entropy under softmax(`logits` / `temperature`), in one pass.
///
/// Logits may be −inf. The numbers are NaN if no logit is finite, if one is NaN or +inf, or if
/// `target` lies outside the row; the log-probability of a target of −inf is −inf.
///
/// ```
/// let stats = dart_kernels::row_stats(&[0.0f32, 0.0, f32::NEG_INFINITY], 1, 1.0);
/// assert!((stats.log_prob + 2f64.ln()).abs() < 1e-12);
/// assert!((stats.entropy - 2f64.ln()).abs() < 1e-12);
/// ```
pub fn row_stats<T: Element>(logits: &[T], target: usize, temperature: f64) -> RowStats {
    let Some(target_logit) = logits.get(target) else {
        return RowStats::NAN;
    };
    let target_z = (*target_logit).into() / temperature;
    if target_z.is_nan() || target_z == f64::INFINITY {
        return RowStats::NAN;
    }
    let mut scan = Scan {
        max: f64::NEG_INFINITY,
        sum: 0.0,
        weighted: 0.0,
    };
    let (before, rest) = logits.split_at(target);
    for logit in before.iter().chain(&rest[1..]) {
        scan.push((*logit).into() / temperature);
    }
    if scan.sum.is_nan() || (scan.sum == 0.0 && target_z == f64::NEG_INFINITY) {
        return RowStats {
            // A row of −inf alone has a sum of exponentials: 0.
            log_sum_exp: if scan.sum == 0.0 {
                f64::NEG_INFINITY
            } else {
                f64::NAN
            },
            ..RowStats::NAN
        };
    }
    scan.finish(target_z)
}

/// Writes the gradient with respect to the logits of a loss that depends on the row as `by` says.
///
/// `stats` are those of the same row, target and temperature; `out` has the length of the row.
/// With p the softmax of x/T: ∂/∂x_j = (1/T) [p_j (a + b ln p_j) + δ_jy g], a = −g − h H, b = −h.
/// The numbers of a row sum to 0.
pub fn row_gradient<T: Element>(
    logits: &[T],
    (target, temperature): (usize, f64),
    stats: &RowStats,
    by: RowGradient,
    out: &mut [T],
) {
    let offset = -by.log_prob - by.entropy * stats.entropy;
    for (logit, out) in logits.iter().zip(&mut *out) {
        let log_p = (*logit).into() / temperature - stats.log_sum_exp;
        let p = log_p.exp();
        // e^−inf · −inf is NaN, its limit is 0.
        let gradient = if p > 0.0 {
            p * (offset - by.entropy * log_p)
        } else {
            0.0
        };
        *out = T::from_f64(gradient / temperature);
    }
    let p = stats.log_prob.exp();
    let at_target = by.log_prob * stats.complement
        - if p > 0.0 {
            by.entropy * p * (stats.entropy + stats.log_prob)
        } else {
            0.0
        };
    out[target] = T::from_f64(at_target / temperature);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(logits: &[f64], target: usize, temperature: f64) -> (f64, f64) {
        let z: Vec<f64> = logits.iter().map(|x| x / temperature).collect();
        let max = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let lse = max + z.iter().map(|z| (z - max).exp()).sum::<f64>().ln();
        let entropy = z
            .iter()
            .filter(|z| z.is_finite())
            .map(|z| -(z - lse) * (z - lse).exp())
            .sum();
        (z[target] - lse, entropy)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * a.abs().max(b.abs()).max(1.0)
    }

    #[test]
    fn masked_rows_are_numbers() {
        let inf = f64::NEG_INFINITY;
        for (row, target) in [
            (vec![inf, inf, 1.0, 2.0], 3),
            (vec![inf, 1.0, inf, 2.0], 1),
            (vec![1.0, inf, inf], 0),
        ] {
            let stats = row_stats(&row, target, 1.0);
            let (log_prob, entropy) = naive(&row, target, 1.0);
            assert!(close(stats.log_prob, log_prob) && close(stats.entropy, entropy));
            let mut gradient = vec![9.0; row.len()];
            let by = RowGradient {
                log_prob: 1.0,
                entropy: 0.5,
            };
            row_gradient(&row, (target, 1.0), &stats, by, &mut gradient);
            assert!(gradient.iter().all(|g| g.is_finite()), "{gradient:?}");
            assert!(gradient.iter().sum::<f64>().abs() < 1e-14);
        }
    }

    #[test]
    fn broken_rows_show() {
        let inf = f64::INFINITY;
        assert!(row_stats(&[-inf, -inf], 0, 1.0).log_prob.is_nan());
        assert!(row_stats(&[0.0, f64::NAN, 1.0], 0, 1.0).log_prob.is_nan());
        assert!(row_stats(&[0.0, inf, 1.0], 0, 1.0).log_prob.is_nan());
        assert!(row_stats(&[inf, 0.0, 1.0], 0, 1.0).log_prob.is_nan());
        assert!(row_stats(&[0.0, 1.0], 2, 1.0).log_prob.is_nan());
        let masked_target = row_stats(&[-inf, 1.0, 1.0], 0, 1.0);
        assert_eq!(masked_target.log_prob, -inf);
        assert!(close(masked_target.entropy, 2f64.ln()));
        assert!(!masked_target.is_finite());
    }

    #[test]
    fn certainty_keeps_its_digits() {
        // p = 1/(1 + 2 e^-d): the complement is known to full precision.
        for d in [5.0f64, 20.0, 30.0, 200.0] {
            let stats = row_stats(&[d, 0.0, 0.0], 0, 1.0);
            let odds = 2.0 * (-d).exp();
            assert!((stats.complement / (odds / (1.0 + odds)) - 1.0).abs() < 1e-14);
            let entropy = odds.ln_1p() + d * odds / (1.0 + odds);
            assert!((stats.entropy / entropy - 1.0).abs() < 1e-14, "{d}");
            assert!((stats.log_prob / -odds.ln_1p() - 1.0).abs() < 1e-14);
        }
        assert_eq!(row_stats(&[3.0], 0, 1.0).log_prob, 0.0);
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            row in prop::collection::vec(-30.0f64..30.0, 1..40), pick in 0usize..1000,
            temperature in 0.3f64..3.0, shift in -300.0f64..300.0,
        ) {
            let row: Vec<f64> = row.iter().map(|x| x + shift).collect();
            let target = pick % row.len();
            let stats = row_stats(&row, target, temperature);
            let (log_prob, entropy) = naive(&row, target, temperature);
            prop_assert!((stats.log_prob - log_prob).abs() < 1e-10);
            prop_assert!((stats.entropy - entropy).abs() < 1e-10);
            prop_assert!(stats.entropy >= 0.0 && stats.log_prob <= 0.0);
        }

        #[test]
        fn gradient_is_the_finite_difference(
            row in prop::collection::vec(-4.0f64..4.0, 2..12), pick in 0usize..1000,
            g in -2.0f64..2.0, h in -2.0f64..2.0, temperature in 0.5f64..2.0,
        ) {
            let target = pick % row.len();
            let stats = row_stats(&row, target, temperature);
            let by = RowGradient { log_prob: g, entropy: h };
            let mut gradient = vec![0.0; row.len()];
            row_gradient(&row, (target, temperature), &stats, by, &mut gradient);
            prop_assert!(gradient.iter().sum::<f64>().abs() < 1e-12);
            for j in 0..row.len() {
                let at = |step: f64| {
                    let mut moved = row.clone();
                    moved[j] += step;
                    let stats = row_stats(&moved, target, temperature);
                    g * stats.log_prob + h * stats.entropy
                };
                let numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
                prop_assert!((numeric - gradient[j]).abs() < 1e-8, "{} {}", numeric, gradient[j]);
            }
        }
    }
}
