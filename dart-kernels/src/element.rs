//! [`Element`]: the number types of logits.

/// A number type of logits. Arithmetic is f64; this is only how numbers are stored.
pub trait Element: Copy + Send + Sync + Into<f64> + 'static {
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
