//! The pull towards a reference policy.
//!
//! With q = log(reference / current) of the token: k1 = −q, k2 = q²/2, k3 = e^q − q − 1
//! (Schulman, "Approximating KL divergence"). q is clamped to ±20 and k3 to ±10; k1 and k2 cannot
//! overflow and stay as they are.

use super::{LOG_RATIO_BOUND, Token, clamped_exp};

/// k3 is clamped to ± this.
pub const KL_BOUND: f64 = 10.0;

/// Which estimate of KL(current ‖ reference).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KlEstimate {
    /// −q: unbiased, of any sign.
    K1,
    /// q²/2: never negative, biased.
    K2,
    /// e^q − q − 1: unbiased and never negative.
    K3,
}

/// Whose derivative the KL term has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KlGradient {
    /// The estimate's own.
    #[default]
    Own,
    /// That of k2, whose mean is the gradient of the divergence; the value stays the estimate's.
    K2,
}

/// Pull towards a reference policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kl {
    /// Factor of the term; 0 turns it off.
    pub beta: f64,
    /// Its value.
    pub estimate: KlEstimate,
    /// Its derivative.
    pub gradient: KlGradient,
    /// Whether the term is multiplied with the surrogate's ratio, through which its gradient then
    /// also flows: the term is right for tokens that an older policy drew.
    pub times_ratio: bool,
}

impl Kl {
    /// None.
    pub const OFF: Self = Self::k3(0.0);

    /// `beta` · k3.
    pub const fn k3(beta: f64) -> Self {
        Self {
            beta,
            estimate: KlEstimate::K3,
            gradient: KlGradient::Own,
            times_ratio: false,
        }
    }

    /// Value and derivative with respect to the current log-probability; 0 without a reference.
    pub(super) fn term(&self, token: &Token, log_prob: f64, log_ratio: f64) -> (f64, f64) {
        let Some(reference) = token.reference else {
            return (0.0, 0.0);
        };
        let (value, own) = self.estimate.value_and_slope(reference - log_prob);
        let slope = match self.gradient {
            KlGradient::Own => own,
            KlGradient::K2 => log_prob - reference,
        };
        if !self.times_ratio {
            return (value, slope);
        }
        let (ratio, inside) = clamped_exp(log_ratio);
        let through = if inside { value } else { 0.0 * value };
        (value * ratio, (slope + through) * ratio)
    }
}

impl KlEstimate {
    /// The estimate at q = log(reference / current) and its derivative with respect to the current
    /// log-probability.
    ///
    /// ```
    /// use dart_kernels::KlEstimate;
    ///
    /// assert_eq!(KlEstimate::K2.value_and_slope(-0.5), (0.125, 0.5));
    /// ```
    pub fn value_and_slope(self, q: f64) -> (f64, f64) {
        match self {
            Self::K1 => (-q, 1.0),
            Self::K2 => (0.5 * q * q, -q),
            Self::K3 => {
                let clamped = q.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
                let value = clamped.exp_m1() - clamped;
                let inside = q.abs() <= LOG_RATIO_BOUND && value <= KL_BOUND;
                let slope = if inside {
                    -clamped.exp_m1()
                } else {
                    0.0 * value
                };
                (value.clamp(-KL_BOUND, KL_BOUND), slope)
            }
        }
    }
}
