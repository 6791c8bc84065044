//! Rows of f64, one number after another.

use super::partial::{Coefficients, Partial};

/// Adds `row` to `partial`, under `scale` = log2(e) / T.
pub(crate) fn scan(row: &[f64], scale: f64, partial: &mut Partial) {
    for x in row {
        if *x == f64::NEG_INFINITY {
            continue;
        }
        if *x > partial.top {
            partial.raise(*x, scale);
        }
        let d = (x - partial.top) * scale;
        let power = d.exp2();
        partial.sum += power;
        if power > 0.0 {
            partial.weighted += power * d;
        }
    }
}

/// Overwrites every logit of `row` by its gradient. The target's is to be set afterwards.
pub(crate) fn gradient(row: &mut [f64], by: &Coefficients) {
    for x in row {
        let d = (*x - by.top) * by.scale;
        let power = d.exp2();
        // 0 · −inf is NaN, its limit is 0.
        *x = if power > 0.0 {
            power * (by.constant + by.slope * d)
        } else {
            0.0
        };
    }
}
