//! Vectors for any processor: four numbers side by side, without explicit vector instructions.

use half::{bf16, f16};

use super::lanes::{EXPONENT_FLOOR, Lanes, ROUND};

/// Four numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct F32x4([f32; 4]);

impl F32x4 {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }

    #[inline(always)]
    unsafe fn read<T: Copy + Into<f32>>(from: *const T) -> Self {
        // SAFETY: the caller's: four elements can be read.
        Self(std::array::from_fn(|i| unsafe {
            from.add(i).read_unaligned().into()
        }))
    }

    #[inline(always)]
    unsafe fn write<T>(self, to: *mut T, round: impl Fn(f32) -> T) {
        for (i, x) in self.0.into_iter().enumerate() {
            // SAFETY: the caller's: four elements can be written.
            unsafe { to.add(i).write_unaligned(round(x)) };
        }
    }
}

// Nothing but reading and writing through pointers is unsafe here.
impl Lanes for F32x4 {
    const WIDTH: usize = 4;
    const FLOOR: f32 = EXPONENT_FLOOR;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; 4])
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        // `f32::mul_add` is a slow function call where the processor has no such instruction.
        self.zip(factor, |a, b| a * b).zip(term, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn any_above(self, other: Self) -> bool {
        (0..4).any(|i| self.0[i] > other.0[i])
    }

    #[inline(always)]
    unsafe fn exp2(self) -> Self {
        let mut power = self.0;
        let mut fraction = self.0;
        for (power, x) in power.iter_mut().zip(&mut fraction) {
            let rounded = *x + ROUND;
            *x -= rounded - ROUND;
            // The exponent bits of 2^n; at FLOOR they are 0, and so is the number.
            let exponent = (rounded.to_bits() << 23).wrapping_add(127 << 23);
            *power = f32::from_bits(exponent);
        }
        // SAFETY: no special instructions.
        unsafe { Self(fraction).exp2_fraction().mul(Self(power)) }
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::read(from) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::read(from) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::read(from) }
    }

    #[inline(always)]
    unsafe fn store_f32(self, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe { self.write(to, |x| x) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16) {
        // SAFETY: the caller's.
        unsafe { self.write(to, bf16::from_f32) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: the caller's.
        unsafe { self.write(to, f16::from_f32) }
    }
}
