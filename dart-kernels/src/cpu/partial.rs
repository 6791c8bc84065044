//! [`Partial`]: what a scan knows of a row, merged in f64.

use std::f64::consts::{LN_2, LOG2_E};

use crate::{RowGradient, RowStats};

/// A row, or the part of it that was scanned so far. With d = (x − `top`) · log2(e) / T:
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Partial {
    /// The largest logit, −inf before the first number.
    pub top: f64,
    /// Σ 2^d.
    pub sum: f64,
    /// Σ d 2^d: *centred* at the top, so a shift of all logits costs no digits.
    pub weighted: f64,
}

/// A row whose target was merged in, with what its gradient needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// What is said of the row.
    pub stats: RowStats,
    /// The whole row, target included.
    whole: Partial,
}

/// The gradient of a row as a function of each logit: 2^d · (`constant` + `slope` · d).
#[derive(Clone, Copy, Debug)]
pub struct Coefficients {
    /// The row's largest logit.
    pub top: f64,
    /// log2(e) / T.
    pub scale: f64,
    /// For every logit alike.
    pub constant: f64,
    /// Times d.
    pub slope: f64,
}

impl Partial {
    /// Nothing yet.
    pub(crate) const EMPTY: Self = Self {
        top: f64::NEG_INFINITY,
        sum: 0.0,
        weighted: 0.0,
    };

    /// Moves the top up to `top`, under `scale` = log2(e) / T.
    pub(crate) fn raise(&mut self, top: f64, scale: f64) {
        // The first number finds nothing to move; with −inf there would be 0 · inf.
        if self.sum != 0.0 {
            let fall = (self.top - top) * scale;
            let factor = fall.exp2();
            self.weighted = if factor > 0.0 {
                factor * (self.weighted + fall * self.sum)
            } else {
                0.0
            };
            self.sum *= factor;
        }
        self.top = top;
    }

    /// Merges the target, which the scan left out, under `scale` = log2(e) / T.
    ///
    /// This *complement form* keeps the digits of 1 − p, and with them those of log p and of the
    /// entropy, when p is close to 1.
    pub(crate) fn finish(self, target: f64, scale: f64) -> Finished {
        if self.is_broken(target) {
            let masked = self.sum == 0.0 && target == f64::NEG_INFINITY;
            let log_sum_exp = if masked { target } else { f64::NAN };
            return Finished {
                stats: RowStats {
                    log_sum_exp,
                    ..RowStats::NAN
                },
                whole: self,
            };
        }
        let mut whole = self;
        if target > self.top || self.sum == 0.0 {
            whole.raise(target, scale);
        }
        let others = whole;
        let below = (target - whole.top) * scale;
        let share = below.exp2();
        whole.sum += share;
        if share > 0.0 {
            whole.weighted += share * below;
        }
        // ln Σ 2^d as ln(1 + odds) when the target is the top: the odds may be below 2^-53.
        let (log_sum, log_prob) = if below == 0.0 {
            (others.sum.ln_1p(), -others.sum.ln_1p())
        } else {
            (whole.sum.ln(), below * LN_2 - whole.sum.ln())
        };
        let stats = RowStats {
            log_prob,
            entropy: log_sum - LN_2 * whole.weighted / whole.sum,
            complement: others.sum / whole.sum,
            log_sum_exp: whole.top * scale * LN_2 + log_sum,
        };
        Finished { stats, whole }
    }

    /// Whether there is no distribution, or none that a target of this logit belongs to.
    fn is_broken(&self, target: f64) -> bool {
        self.sum.is_nan()
            || self.top == f64::INFINITY
            || target.is_nan()
            || target == f64::INFINITY
            || (self.sum == 0.0 && target == f64::NEG_INFINITY)
    }
}

impl Finished {
    /// A row without a distribution.
    pub(crate) const NAN: Self = Self {
        stats: RowStats::NAN,
        whole: Partial::EMPTY,
    };

    /// The gradient with respect to every logit but the target's.
    ///
    /// With p the softmax of x/T: ∂/∂x_j = (1/T) p_j (a + b ln p_j), a = −g − h H, b = −h.
    /// 1/T and 1/Σ 2^d are folded into the two coefficients.
    pub(crate) fn coefficients(&self, by: RowGradient, scale: f64) -> Coefficients {
        let inverse_temperature = scale / LOG2_E;
        let whole = &self.whole;
        let factor = inverse_temperature / whole.sum;
        let constant = -by.log_prob - by.entropy * self.stats.entropy;
        Coefficients {
            top: whole.top,
            scale,
            constant: factor * (constant + by.entropy * whole.sum.ln()),
            slope: -factor * by.entropy * LN_2,
        }
    }

    /// The gradient with respect to the target's logit, from the complement, in full precision.
    pub(crate) fn at_target(&self, by: RowGradient, scale: f64) -> f64 {
        let stats = &self.stats;
        let p = stats.log_prob.exp();
        let of_entropy = if p > 0.0 {
            by.entropy * p * (stats.entropy + stats.log_prob)
        } else {
            0.0
        };
        (by.log_prob * stats.complement - of_entropy) * scale / LOG2_E
    }
}
