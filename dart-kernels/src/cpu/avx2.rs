//! Vectors of 8 numbers: AVX2 with FMA and F16C.

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _CMP_GT_OQ, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_loadu_si128,
    _mm_packus_epi32, _mm_prefetch, _mm_storeu_si128, _mm256_add_epi32, _mm256_add_ps,
    _mm256_and_si256, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_castsi256_si128,
    _mm256_cmp_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_extracti128_si256, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_movemask_ps,
    _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_storeu_ps, _mm256_sub_ps,
};

use half::{bf16, f16};

use super::{
    gradient,
    lanes::{EXPONENT_FLOOR, Lanes, ROUND, Stored},
    partial::{Coefficients, Partial},
    scan,
};

/// Eight numbers.
#[derive(Clone, Copy)]
pub(crate) struct F32x8(__m256);

/// The scan of a row, see [`scan::scan`].
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn scan<T: Stored>(row: &[T], scale: f32, partial: &mut Partial) {
    // SAFETY: compiled for these instructions, which the processor has.
    unsafe { scan::scan::<F32x8, T, 4>(row, scale, partial) }
}

/// The gradient of a row in place, see [`gradient::gradient`].
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn gradient<T: Stored>(row: &mut [T], coefficients: &Coefficients) {
    // SAFETY: compiled for these instructions, which the processor has.
    unsafe { gradient::gradient::<F32x8, T>(row, coefficients) }
}

// SAFETY (all blocks below): callers run this on a processor with AVX2, FMA and F16C and give
// pointers to eight elements, as `Lanes` demands; the instructions need no alignment.
#[allow(
    clippy::undocumented_unsafe_blocks,
    clippy::cast_ptr_alignment,
    reason = "one invariant, stated above; the loads and stores are the unaligned ones"
)]
impl Lanes for F32x8 {
    const WIDTH: usize = 8;
    const FLOOR: f32 = EXPONENT_FLOOR;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { Self(_mm256_set1_ps(x)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { Self(_mm256_add_ps(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm256_sub_ps(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { Self(_mm256_mul_ps(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        unsafe { Self(_mm256_fmadd_ps(self.0, factor.0, term.0)) }
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe { Self(_mm256_max_ps(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn any_above(self, other: Self) -> bool {
        unsafe { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(self.0, other.0)) != 0 }
    }

    #[inline(always)]
    unsafe fn exp2(self) -> Self {
        unsafe {
            let rounded = _mm256_add_ps(self.0, _mm256_set1_ps(ROUND));
            let whole = _mm256_sub_ps(rounded, _mm256_set1_ps(ROUND));
            let fraction = Self(_mm256_sub_ps(self.0, whole));
            // The exponent bits of 2^n; at FLOOR they are 0, and so is the number.
            let shifted = _mm256_slli_epi32::<23>(_mm256_castps_si256(rounded));
            let power = _mm256_add_epi32(shifted, _mm256_set1_epi32(127 << 23));
            Self(_mm256_mul_ps(
                fraction.exp2_fraction().0,
                _mm256_castsi256_ps(power),
            ))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> Self {
        unsafe { Self(_mm256_loadu_ps(from)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast::<__m128i>()));
            Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits)))
        }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        unsafe { Self(_mm256_cvtph_ps(_mm_loadu_si128(from.cast::<__m128i>()))) }
    }

    #[inline(always)]
    unsafe fn store_f32(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16) {
        unsafe {
            let rounded = round_to_bf16(_mm256_castps_si256(self.0));
            let (low, high) = (
                _mm256_castsi256_si128(rounded),
                _mm256_extracti128_si256::<1>(rounded),
            );
            _mm_storeu_si128(to.cast::<__m128i>(), _mm_packus_epi32(low, high));
        }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        unsafe {
            let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
            _mm_storeu_si128(to.cast::<__m128i>(), rounded);
        }
    }
}

/// The upper halves of `bits`, rounded to nearest, ties to even.
///
/// # Safety
/// As [`F32x8`].
#[inline(always)]
unsafe fn round_to_bf16(bits: __m256i) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
        _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half))
    }
}
