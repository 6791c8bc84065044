//! A row of logits overwritten by its gradient, in vectors.

use super::{
    lanes::{Lanes, MAX_WIDTH, Stored},
    partial::Coefficients,
};

/// [`Coefficients`] in vectors.
struct Vectors<L> {
    top: L,
    scale: L,
    floor: L,
    constant: L,
    slope: L,
}

impl<L: Lanes> Vectors<L> {
    /// # Safety
    /// As [`Lanes`].
    #[inline(always)]
    unsafe fn new(coefficients: &Coefficients) -> Self {
        // SAFETY: the caller's.
        unsafe {
            Self {
                top: L::splat(coefficients.top as f32),
                scale: L::splat(coefficients.scale as f32),
                floor: L::splat(L::FLOOR),
                constant: L::splat(coefficients.constant as f32),
                slope: L::splat(coefficients.slope as f32),
            }
        }
    }

    /// 2^d · (constant + slope · d).
    ///
    /// # Safety
    /// As [`Lanes`].
    #[inline(always)]
    unsafe fn gradient(&self, x: L) -> L {
        // SAFETY: the caller's.
        unsafe {
            let d = self.floor.max(x.sub(self.top).mul(self.scale));
            d.exp2().mul(self.slope.mul_add(d, self.constant))
        }
    }
}

/// Overwrites every logit of `row` by its gradient. The target's is to be set afterwards.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn gradient<L: Lanes, T: Stored>(row: &mut [T], coefficients: &Coefficients) {
    // SAFETY: the caller's; each chunk and the padded tail hold WIDTH elements.
    unsafe {
        let by = Vectors::<L>::new(coefficients);
        let mut vectors = row.chunks_exact_mut(L::WIDTH);
        for vector in &mut vectors {
            let at = vector.as_mut_ptr();
            T::store(by.gradient(T::load(at)), at);
        }
        let tail = vectors.into_remainder();
        if !tail.is_empty() {
            let mut padded = [T::MASKED; MAX_WIDTH];
            padded[..tail.len()].copy_from_slice(tail);
            let at = padded.as_mut_ptr();
            T::store(by.gradient(T::load::<L>(at)), at);
            tail.copy_from_slice(&padded[..tail.len()]);
        }
    }
}
