//! Vectors of 16 numbers: AVX-512F.

use std::arch::x86_64::{
    __m256i, __m512, __m512i, _CMP_GT_OQ, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT,
    _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_add_epi32,
    _mm512_add_ps, _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask,
    _mm512_cvtepi32_epi16, _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_ph,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_max_ps, _mm512_mul_ps, _mm512_roundscale_ps,
    _mm512_scalef_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32, _mm512_srli_epi32,
    _mm512_storeu_ps, _mm512_sub_ps,
};

use half::{bf16, f16};

use super::{
    gradient,
    lanes::{Lanes, Stored},
    partial::{Coefficients, Partial},
    scan,
};

/// Sixteen numbers.
#[derive(Clone, Copy)]
pub(crate) struct F32x16(__m512);

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

/// The scan of a row, see [`scan::scan`].
///
/// # Safety
/// The processor has AVX-512F.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn scan<T: Stored>(row: &[T], scale: f32, partial: &mut Partial) {
    // SAFETY: compiled for AVX-512F, which the processor has.
    unsafe { scan::scan::<F32x16, T, 8>(row, scale, partial) }
}

/// The gradient of a row in place, see [`gradient::gradient`].
///
/// # Safety
/// The processor has AVX-512F.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn gradient<T: Stored>(row: &mut [T], coefficients: &Coefficients) {
    // SAFETY: compiled for AVX-512F, which the processor has.
    unsafe { gradient::gradient::<F32x16, T>(row, coefficients) }
}

// SAFETY (all blocks below): callers run this on a processor with AVX-512F and give pointers to
// sixteen elements, as `Lanes` demands; the instructions need no alignment.
#[allow(
    clippy::undocumented_unsafe_blocks,
    clippy::cast_ptr_alignment,
    reason = "one invariant, stated above; the loads and stores are the unaligned ones"
)]
impl Lanes for F32x16 {
    const WIDTH: usize = 16;
    // Below the smallest subnormal number, 2^-149.
    const FLOOR: f32 = -160.0;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { Self(_mm512_set1_ps(x)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { Self(_mm512_add_ps(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm512_sub_ps(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { Self(_mm512_mul_ps(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        unsafe { Self(_mm512_fmadd_ps(self.0, factor.0, term.0)) }
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe { Self(_mm512_max_ps(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn any_above(self, other: Self) -> bool {
        unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, other.0) != 0 }
    }

    #[inline(always)]
    unsafe fn exp2(self) -> Self {
        unsafe {
            let whole = _mm512_roundscale_ps::<NEAREST>(self.0);
            let fraction = Self(_mm512_sub_ps(self.0, whole));
            Self(_mm512_scalef_ps(fraction.exp2_fraction().0, whole))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> Self {
        unsafe { Self(_mm512_loadu_ps(from)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast::<__m256i>()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits)))
        }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        unsafe { Self(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast::<__m256i>()))) }
    }

    #[inline(always)]
    unsafe fn store_f32(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16) {
        unsafe {
            let rounded = _mm512_cvtepi32_epi16(round_to_bf16(_mm512_castps_si512(self.0)));
            _mm256_storeu_si256(to.cast::<__m256i>(), rounded);
        }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        unsafe {
            let rounded = _mm512_cvtps_ph::<NEAREST>(self.0);
            _mm256_storeu_si256(to.cast::<__m256i>(), rounded);
        }
    }
}

/// The upper halves of `bits`, rounded to nearest, ties to even.
///
/// # Safety
/// As [`F32x16`].
#[inline(always)]
unsafe fn round_to_bf16(bits: __m512i) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
        _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half))
    }
}
