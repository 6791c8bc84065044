//! [`Lanes`]: what a vector of f32 must be able to do.

use half::{bf16, f16};

/// A vector of f32.
///
/// # Safety
/// Every function may only run on a processor that has the instruction set of the implementation,
/// inside a function compiled for it. Pointers must be valid for [`Lanes::WIDTH`] elements; they
/// need no alignment.
pub(crate) trait Lanes: Copy {
    /// Numbers in a vector.
    const WIDTH: usize;
    /// Where 2^x is 0 (the smallest normal number of f32 is 2^-126). As the lower bound of d it
    /// keeps 0 · −inf out of d · 2^d.
    const FLOOR: f32;

    /// The same number in all lanes.
    unsafe fn splat(x: f32) -> Self;
    /// `self + other`.
    unsafe fn add(self, other: Self) -> Self;
    /// `self - other`.
    unsafe fn sub(self, other: Self) -> Self;
    /// `self * other`.
    unsafe fn mul(self, other: Self) -> Self;
    /// `self * factor + term`.
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self;
    /// The larger; a NaN of `other` is kept (of `self`, it may be).
    unsafe fn max(self, other: Self) -> Self;
    /// Whether a lane of `self` is above that of `other`.
    unsafe fn any_above(self, other: Self) -> bool;
    /// 2^self for [`Self::FLOOR`] ≤ self ≤ 127: 0 at `FLOOR`, NaN of NaN; normal numbers have a
    /// relative error below 1.5 · 2^-24.
    unsafe fn exp2(self) -> Self;

    /// Asks for the cache line of `at`, an address that need not be valid; nothing where there is
    /// no stable way to ask.
    #[inline(always)]
    unsafe fn prefetch(_at: *const u8) {}

    /// Reads numbers.
    unsafe fn load_f32(from: *const f32) -> Self;
    /// Reads numbers.
    unsafe fn load_bf16(from: *const bf16) -> Self;
    /// Reads numbers.
    unsafe fn load_f16(from: *const f16) -> Self;
    /// Writes numbers.
    unsafe fn store_f32(self, to: *mut f32);
    /// Writes numbers, rounded to nearest, ties to even.
    unsafe fn store_bf16(self, to: *mut bf16);
    /// Writes numbers, rounded to nearest, ties to even.
    unsafe fn store_f16(self, to: *mut f16);

    /// All numbers, in order.
    #[inline(always)]
    unsafe fn to_array(self) -> [f32; MAX_WIDTH] {
        let mut numbers = [0.0; MAX_WIDTH];
        // SAFETY: an array of the largest width holds any vector.
        unsafe { self.store_f32(numbers.as_mut_ptr()) };
        numbers
    }

    /// Sum of all lanes in f64.
    #[inline(always)]
    unsafe fn sum(self) -> f64 {
        // SAFETY: the caller's.
        let numbers = unsafe { self.to_array() };
        numbers[..Self::WIDTH].iter().map(|x| f64::from(*x)).sum()
    }

    /// The largest lane that is a number; −inf if none is.
    #[inline(always)]
    unsafe fn highest(self) -> f32 {
        // SAFETY: the caller's.
        let numbers = unsafe { self.to_array() };
        numbers[..Self::WIDTH]
            .iter()
            .fold(f32::NEG_INFINITY, |a, b| a.max(*b))
    }

    /// 2^self for −1/2 ≤ self ≤ 1/2.
    #[inline(always)]
    unsafe fn exp2_fraction(self) -> Self {
        // SAFETY: the caller's.
        unsafe {
            let mut p = Self::splat(EXP2[5]);
            for coefficient in EXP2[..5].iter().rev() {
                p = p.mul_add(self, Self::splat(*coefficient));
            }
            p.mul_add(self, Self::splat(1.0))
        }
    }
}

/// Lanes of the widest vector.
pub(crate) const MAX_WIDTH: usize = 16;

/// 2^f = 1 + f (c1 + f (c2 + …)) on ±1/2: the polynomial of sixth degree with the least relative
/// error, 1.9e-8, among those that are exact at 0 (found by Remez exchange).
const EXP2: [f32; 6] = [
    0.693_147_3,
    0.240_226_97,
    0.055_502_04,
    0.009_612_611_5,
    0.001_343_564_7,
    0.000_169_553_1,
];

/// [`Lanes::FLOOR`] where 2^n is made from exponent bits: they are 0 there.
pub(crate) const EXPONENT_FLOOR: f32 = -127.0;

/// 1.5 · 2^23: added to a small number it rounds it, and its low bits hold the rounded number.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// A number type that vectors read and write.
///
/// # Safety
/// As [`Lanes`].
pub(crate) trait Stored: Copy + Send + Sync + Into<f64> + 'static {
    /// What fills a vector beyond the end of a row.
    const MASKED: Self;

    /// Reads a vector.
    unsafe fn load<L: Lanes>(from: *const Self) -> L;
    /// Writes a vector.
    unsafe fn store<L: Lanes>(vector: L, to: *mut Self);
}

macro_rules! stored {
    ($type:ty, $load:ident, $store:ident) => {
        impl Stored for $type {
            const MASKED: Self = <$type>::NEG_INFINITY;

            #[inline(always)]
            unsafe fn load<L: Lanes>(from: *const Self) -> L {
                // SAFETY: the caller's.
                unsafe { L::$load(from) }
            }

            #[inline(always)]
            unsafe fn store<L: Lanes>(vector: L, to: *mut Self) {
                // SAFETY: the caller's.
                unsafe { vector.$store(to) }
            }
        }
    };
}

stored!(f32, load_f32, store_f32);
stored!(bf16, load_bf16, store_bf16);
stored!(f16, load_f16, store_f16);
