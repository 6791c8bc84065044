//! The structs that host and kernels share, field by field as in `cuda/abi.cuh`, and their
//! conversions. A change there is a change here; a test reads that file and compares.

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

use crate::{
    ClipSide, Importance, KlEstimate, KlGradient, RatioLevel, Surrogate, TokenOutcome, WeightLevel,
};

/// [`RowStats::status`]: a logit is NaN or +inf.
pub const ROW_NOT_FINITE: u32 = 1;
/// [`RowStats::status`]: no logit is finite.
pub const ROW_ALL_MASKED: u32 = 2;
/// [`RowStats::status`]: the label is outside the vocabulary.
pub const ROW_BAD_LABEL: u32 = 4;
/// [`RowStats::status`]: the target's logit is −inf.
pub const ROW_TARGET_MASKED: u32 = 8;
/// [`RowStats::status`]: the row was not asked for.
pub const ROW_NOT_READ: u32 = 16;

/// [`Token::present`]: the old log-probability is there.
pub const HAS_OLD: u32 = 1;
/// [`Token::present`]: the rollout log-probability is there.
pub const HAS_ROLLOUT: u32 = 2;
/// [`Token::present`]: the reference log-probability is there.
pub const HAS_REFERENCE: u32 = 4;

/// Largest number of threads of a CTA.
pub const MAX_THREADS: u32 = 512;
/// CTAs that share a row in the two-pass form.
pub const CLUSTER_SIZE: u32 = 8;
/// CTAs of the first stage of the metrics.
pub const METRIC_BLOCKS: u32 = 64;
/// Threads of their CTAs.
pub const METRIC_THREADS: u32 = 256;

/// Statistics of one row, as the kernels write them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowStats {
    /// Log-probability of the target, in nats.
    pub log_prob: f32,
    /// Entropy of the row, in nats.
    pub entropy: f32,
    /// Logarithm of the sum of exponentials of logits / temperature.
    pub log_sum_exp: f32,
    /// 1 − probability of the target.
    pub complement: f32,
    /// Maximum of the logits.
    pub max: f32,
    /// Sum of the exponentials of (logit − maximum) / temperature.
    pub sum: f32,
    /// Bits `ROW_*`; 0 for a sound row.
    pub status: u32,
    /// Fills the struct up to 32 bytes.
    pub unused: f32,
}

/// One token, as the kernels read it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Token {
    /// Index into the vocabulary.
    pub target: u32,
    /// 1 / temperature.
    pub inverse_temperature: f32,
    /// Share of the loss; with 0 the row is not read.
    pub weight: f32,
    /// Advantage.
    pub advantage: f32,
    /// Log-probability before the update, if `HAS_OLD`.
    pub old_log_prob: f32,
    /// Log-probability under the rollout policy, if `HAS_ROLLOUT`.
    pub rollout_log_prob: f32,
    /// Log-probability under the reference, if `HAS_REFERENCE`.
    pub reference_log_prob: f32,
    /// Bits `HAS_*`.
    pub present: u32,
}

/// What a token's loss takes from its sequence.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SequenceTerm {
    /// Logarithm of the ratio of the surrogate, not clamped.
    pub log_ratio: f32,
    /// The importance weight.
    pub importance: f32,
}

/// The loss of a token.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "each field is described in cuda/abi.cuh")]
pub struct Loss {
    pub surrogate: i32,
    pub ratio_level: i32,
    pub clip_low: f32,
    pub clip_high: f32,
    pub dual_clip: f32,
    pub ratio_cap: f32,
    pub tau_positive: f32,
    pub tau_negative: f32,
    pub prime_high: f32,
    pub prime_low: f32,
    pub prime_penalty: f32,
    pub importance: i32,
    pub importance_level: i32,
    pub importance_low: f32,
    pub importance_high: f32,
    pub kl_beta: f32,
    pub kl_estimate: i32,
    pub kl_gradient: i32,
    pub kl_times_ratio: i32,
    pub entropy_bonus: f32,
}

/// What one token gave, as the kernels write it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Its share of the loss.
    pub loss: f32,
    /// The surrogate, without weights.
    pub surrogate: f32,
    /// The importance weight.
    pub importance: f32,
    /// The KL term, without its factor.
    pub kl: f32,
    /// Derivative of `loss` by the log-probability.
    pub by_log_prob: f32,
    /// Derivative of `loss` by the entropy.
    pub by_entropy: f32,
    /// Which bound cut the surrogate.
    pub clip: u32,
    /// Logarithm of the ratio of the surrogate.
    pub log_ratio: f32,
}

/// Sums over the sound tokens; `loss` is over all that were read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "each field is described in cuda/abi.cuh")]
pub struct LossSums {
    pub loss: f64,
    pub surrogate: f64,
    pub log_prob: f64,
    pub entropy: f64,
    pub kl: f64,
    pub importance: f64,
    pub importance_squared: f64,
    pub importance_max: f64,
    pub ratio_k1: f64,
    pub ratio_k3: f64,
    pub tokens: u64,
    pub clip_low: u64,
    pub clip_high: u64,
    pub clip_dual: u64,
    pub importance_bound: u64,
    pub not_finite: u64,
    pub all_masked: u64,
    pub bad_label: u64,
    pub target_masked: u64,
}

macro_rules! device_struct {
    ($($name:ident $bytes:literal),*) => {$(
        const _: () = assert!(size_of::<$name>() == $bytes && align_of::<$name>() <= 8);
        // SAFETY: #[repr(C)] with fields that CUDA C has under the same layout.
        unsafe impl DeviceRepr for $name {}
        // SAFETY: integers and floats, for which zero bits are a value.
        unsafe impl ValidAsZeroBits for $name {}
    )*};
}
device_struct!(RowStats 32, Token 32, SequenceTerm 8, Loss 80, Outcome 32, LossSums 152);

impl From<&RowStats> for crate::RowStats {
    fn from(stats: &RowStats) -> Self {
        Self {
            log_prob: stats.log_prob.into(),
            entropy: stats.entropy.into(),
            complement: stats.complement.into(),
            log_sum_exp: stats.log_sum_exp.into(),
        }
    }
}

impl RowStats {
    /// Statistics of which only log-probability and entropy are known: enough for the token loss,
    /// not for a gradient.
    pub(super) fn known((log_prob, entropy): (f64, f64)) -> Self {
        let status = if log_prob == f64::NEG_INFINITY {
            ROW_TARGET_MASKED
        } else if log_prob.is_finite() && entropy.is_finite() {
            0
        } else {
            ROW_NOT_FINITE
        };
        Self {
            log_prob: log_prob as f32,
            entropy: entropy as f32,
            complement: -log_prob.exp_m1() as f32,
            status,
            ..Self::default()
        }
    }
}

impl From<&crate::Token> for Token {
    fn from(token: &crate::Token) -> Self {
        let bit = |value: Option<f64>, bit| if value.is_some() { bit } else { 0 };
        let number = |value: Option<f64>| value.unwrap_or(0.0) as f32;
        Self {
            target: token.target,
            inverse_temperature: (1.0 / token.temperature) as f32,
            weight: weight(token.weight),
            advantage: token.advantage as f32,
            old_log_prob: number(token.old),
            rollout_log_prob: number(token.rollout),
            reference_log_prob: number(token.reference),
            present: bit(token.old, HAS_OLD)
                | bit(token.rollout, HAS_ROLLOUT)
                | bit(token.reference, HAS_REFERENCE),
        }
    }
}

/// A weight that is not 0 stays so: 0 means that the row is not read.
fn weight(weight: f64) -> f32 {
    let rounded = weight as f32;
    if rounded == 0.0 && weight != 0.0 {
        return f32::MIN_POSITIVE.copysign(rounded);
    }
    rounded
}

impl From<&crate::TokenLoss> for Loss {
    fn from(loss: &crate::TokenLoss) -> Self {
        let mut flat = Self {
            ratio_level: match loss.ratio {
                RatioLevel::Token => 0,
                RatioLevel::Sequence => 2,
            },
            kl_beta: loss.kl.beta as f32,
            kl_estimate: match loss.kl.estimate {
                KlEstimate::K1 => 1,
                KlEstimate::K2 => 2,
                KlEstimate::K3 => 3,
            },
            kl_gradient: match loss.kl.gradient {
                KlGradient::Own => 0,
                KlGradient::K2 => 1,
            },
            kl_times_ratio: loss.kl.times_ratio.into(),
            entropy_bonus: loss.entropy_bonus as f32,
            ..Self::default()
        };
        flat.set_surrogate(&loss.surrogate);
        flat.set_importance(&loss.importance);
        flat
    }
}

impl Loss {
    fn set_surrogate(&mut self, surrogate: &Surrogate) {
        match *surrogate {
            Surrogate::Clipped(clip) => {
                self.surrogate = 0;
                self.clip_low = clip.low as f32;
                self.clip_high = clip.high as f32;
                self.dual_clip = clip.dual.unwrap_or(0.0) as f32;
                self.ratio_cap = clip.ratio_cap.unwrap_or(0.0) as f32;
            }
            Surrogate::LogLikelihood => self.surrogate = 1,
            Surrogate::Cispo { low, high } => {
                self.surrogate = 2;
                self.clip_low = low.unwrap_or(-1.0) as f32;
                self.clip_high = high as f32;
            }
            Surrogate::Sapo { positive, negative } => {
                self.surrogate = 3;
                self.tau_positive = positive as f32;
                self.tau_negative = negative as f32;
            }
            Surrogate::Prime { low, high, penalty } => {
                self.surrogate = 4;
                self.prime_low = low as f32;
                self.prime_high = high as f32;
                self.prime_penalty = penalty as f32;
            }
        }
    }

    fn set_importance(&mut self, importance: &Importance) {
        let number = |level| match level {
            WeightLevel::Token => 0,
            WeightLevel::SequenceSum => 1,
            WeightLevel::SequenceMean => 2,
        };
        match *importance {
            Importance::Off => {}
            Importance::Truncated { level, cap } => {
                self.importance = 1;
                self.importance_level = number(level);
                self.importance_high = cap as f32;
            }
            Importance::Masked { level, low, high } => {
                self.importance = 2;
                self.importance_level = number(level);
                self.importance_low = low as f32;
                self.importance_high = high as f32;
            }
        }
    }
}

impl From<&LossSums> for crate::LossSums {
    fn from(sums: &LossSums) -> Self {
        let bad_rows = sums.not_finite + sums.all_masked + sums.bad_label + sums.target_masked;
        Self {
            // Clamps may have made the loss of a broken row finite.
            loss: if bad_rows > 0 { f64::NAN } else { sums.loss },
            surrogate: sums.surrogate,
            log_prob: sums.log_prob,
            entropy: sums.entropy,
            kl: sums.kl,
            importance: sums.importance,
            importance_squared: sums.importance_squared,
            importance_max: if sums.tokens == 0 {
                f64::NEG_INFINITY
            } else {
                sums.importance_max
            },
            ratio_k1: sums.ratio_k1,
            ratio_k3: sums.ratio_k3,
            tokens: sums.tokens as usize,
            clip_low: sums.clip_low as usize,
            clip_high: sums.clip_high as usize,
            clip_dual: sums.clip_dual as usize,
            importance_bound: sums.importance_bound as usize,
            bad_rows: bad_rows as usize,
        }
    }
}

/// What one token gave, in the form of the CPU operations.
pub(super) fn token_outcome(stats: &RowStats, outcome: &Outcome) -> TokenOutcome {
    if stats.status == ROW_NOT_READ {
        return TokenOutcome::default();
    }
    TokenOutcome {
        log_prob: stats.log_prob.into(),
        entropy: stats.entropy.into(),
        loss: outcome.loss.into(),
        surrogate: outcome.surrogate.into(),
        importance: outcome.importance.into(),
        kl: outcome.kl.into(),
        clip: match outcome.clip {
            1 => ClipSide::Low,
            2 => ClipSide::High,
            3 => ClipSide::Dual,
            _ => ClipSide::None,
        },
        by_log_prob: outcome.by_log_prob.into(),
        by_entropy: outcome.by_entropy.into(),
        log_ratio: outcome.log_ratio.into(),
    }
}
