//! [`RowStats`], [`RowGradient`]: what is said about one row of logits, and how a loss depends on it.

/// What one row says about its target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowStats {
    /// Log-probability of the target, in nats.
    pub log_prob: f64,
    /// Entropy of the whole row, in nats.
    pub entropy: f64,
    /// 1 − probability of the target.
    pub complement: f64,
    /// Logarithm of the sum of exponentials of the logits divided by the temperature.
    pub log_sum_exp: f64,
}

impl RowStats {
    /// A row without a distribution.
    pub(crate) const NAN: Self = Self {
        log_prob: f64::NAN,
        entropy: f64::NAN,
        complement: f64::NAN,
        log_sum_exp: f64::NAN,
    };

    /// A row that was not asked for.
    pub(crate) const IGNORED: Self = Self {
        log_prob: 0.0,
        entropy: 0.0,
        complement: 0.0,
        log_sum_exp: 0.0,
    };

    /// Whether the row has a distribution that gives its target a probability above 0.
    pub fn is_finite(&self) -> bool {
        self.log_prob.is_finite() && self.entropy.is_finite()
    }
}

/// How a loss depends on one row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowGradient {
    /// Derivative with respect to the log-probability of the target.
    pub log_prob: f64,
    /// Derivative with respect to the entropy.
    pub entropy: f64,
}
