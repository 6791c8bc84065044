//! Vectors of 4 numbers: NEON of 64-bit ARM.

use std::arch::aarch64::{
    float32x4_t, uint32x4_t, vaddq_f32, vaddq_u32, vandq_u32, vcgtq_f32, vdupq_n_f32, vdupq_n_u32,
    vfmaq_f32, vld1_u16, vld1q_f32, vmaxq_f32, vmaxvq_u32, vmovn_u32, vmulq_f32,
    vreinterpretq_f32_u32, vreinterpretq_u32_f32, vshll_n_u16, vshlq_n_u32, vshrq_n_u32, vst1_u16,
    vst1q_f32, vsubq_f32,
};

use half::{bf16, f16};

use super::{
    gradient,
    lanes::{EXPONENT_FLOOR, Lanes, ROUND, Stored},
    partial::{Coefficients, Partial},
    scan,
};

/// Four numbers.
#[derive(Clone, Copy)]
pub(crate) struct F32x4(float32x4_t);

/// The scan of a row, see [`scan::scan`].
///
/// # Safety
/// The processor has NEON.
#[target_feature(enable = "neon")]
pub(crate) unsafe fn scan<T: Stored>(row: &[T], scale: f32, partial: &mut Partial) {
    // SAFETY: compiled for NEON, which the processor has.
    unsafe { scan::scan::<F32x4, T, 8>(row, scale, partial) }
}

/// The gradient of a row in place, see [`gradient::gradient`].
///
/// # Safety
/// The processor has NEON.
#[target_feature(enable = "neon")]
pub(crate) unsafe fn gradient<T: Stored>(row: &mut [T], coefficients: &Coefficients) {
    // SAFETY: compiled for NEON, which the processor has.
    unsafe { gradient::gradient::<F32x4, T>(row, coefficients) }
}

// SAFETY (all blocks below): callers run this on a processor with NEON and give pointers to four
// elements, as `Lanes` demands; the instructions need no more alignment than the elements have.
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one invariant, stated above"
)]
impl Lanes for F32x4 {
    const WIDTH: usize = 4;
    const FLOOR: f32 = EXPONENT_FLOOR;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { Self(vdupq_n_f32(x)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { Self(vaddq_f32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { Self(vsubq_f32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { Self(vmulq_f32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        unsafe { Self(vfmaq_f32(term.0, self.0, factor.0)) }
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe { Self(vmaxq_f32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn any_above(self, other: Self) -> bool {
        unsafe { vmaxvq_u32(vcgtq_f32(self.0, other.0)) != 0 }
    }

    #[inline(always)]
    unsafe fn exp2(self) -> Self {
        unsafe {
            let rounded = vaddq_f32(self.0, vdupq_n_f32(ROUND));
            let whole = vsubq_f32(rounded, vdupq_n_f32(ROUND));
            let fraction = Self(vsubq_f32(self.0, whole));
            // The exponent bits of 2^n; at FLOOR they are 0, and so is the number.
            let shifted = vshlq_n_u32::<23>(vreinterpretq_u32_f32(rounded));
            let power = vreinterpretq_f32_u32(vaddq_u32(shifted, vdupq_n_u32(127 << 23)));
            Self(vmulq_f32(fraction.exp2_fraction().0, power))
        }
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> Self {
        unsafe { Self(vld1q_f32(from)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        unsafe {
            let bits = vshll_n_u16::<16>(vld1_u16(from.cast::<u16>()));
            Self(vreinterpretq_f32_u32(bits))
        }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // Vectors of half precision are no stable part of the standard library.
        unsafe {
            let mut numbers = [0.0; 4];
            for (i, number) in numbers.iter_mut().enumerate() {
                *number = (*from.add(i)).to_f32();
            }
            Self::load_f32(numbers.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store_f32(self, to: *mut f32) {
        unsafe { vst1q_f32(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16) {
        unsafe {
            let rounded = round_to_bf16(vreinterpretq_u32_f32(self.0));
            vst1_u16(to.cast::<u16>(), vmovn_u32(rounded));
        }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        unsafe {
            let mut numbers = [0.0; 4];
            self.store_f32(numbers.as_mut_ptr());
            for (i, number) in numbers.into_iter().enumerate() {
                *to.add(i) = f16::from_f32(number);
            }
        }
    }
}

/// The upper halves of `bits`, rounded to nearest, ties to even.
///
/// # Safety
/// As [`F32x4`].
#[inline(always)]
unsafe fn round_to_bf16(bits: uint32x4_t) -> uint32x4_t {
    // SAFETY: the caller's.
    unsafe {
        let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
        let half = vaddq_u32(odd, vdupq_n_u32(0x7fff));
        vshrq_n_u32::<16>(vaddq_u32(bits, half))
    }
}
