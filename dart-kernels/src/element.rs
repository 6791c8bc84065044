//! [`Element`]: the number types of logits.

use half::{bf16, f16};

use crate::cpu::kernel::Kernel;

/// A number type of logits: f32, bf16, f16 or f64.
///
/// It says how logits are stored. The first three are computed in f32 vectors with partial sums in
/// f64, f64 is computed in f64 throughout. Sealed.
pub trait Element: Kernel + Copy + Send + Sync + Into<f64> + 'static {
    /// Zero.
    const ZERO: Self;

    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
}

impl Element for f32 {
    const ZERO: Self = 0.0;

    fn from_f64(value: f64) -> Self {
        value as Self
    }
}

impl Element for f64 {
    const ZERO: Self = 0.0;

    fn from_f64(value: f64) -> Self {
        value
    }
}

impl Element for bf16 {
    const ZERO: Self = Self::ZERO;

    fn from_f64(value: f64) -> Self {
        Self::from_f64(value)
    }
}

impl Element for f16 {
    const ZERO: Self = Self::ZERO;

    fn from_f64(value: f64) -> Self {
        Self::from_f64(value)
    }
}
