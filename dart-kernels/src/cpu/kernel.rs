//! [`Kernel`]: which code serves which element type on which instruction set.

use std::f64::consts::LOG2_E;

use half::{bf16, f16};

use super::{
    double, gradient,
    isa::Isa,
    lanes::Stored,
    partial::{Coefficients, Partial},
    scalar::F32x4,
    scan,
};

#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

#[cfg(target_arch = "aarch64")]
use super::neon;

/// The row kernels of an element type.
///
/// `isa` is available on this machine: it comes from [`Isa::detect`] or [`Isa::require`].
pub trait Kernel: Sized {
    /// log2(e) / `temperature`, as the row kernels round it.
    #[doc(hidden)]
    fn scale(temperature: f64) -> f64;

    /// Adds `row` to `partial`.
    #[doc(hidden)]
    fn scan(isa: Isa, row: &[Self], scale: f64, partial: &mut Partial);

    /// Overwrites every logit of `row` by its gradient.
    #[doc(hidden)]
    fn gradient(isa: Isa, row: &mut [Self], coefficients: &Coefficients);
}

impl Kernel for f64 {
    fn scale(temperature: f64) -> f64 {
        LOG2_E / temperature
    }

    fn scan(_: Isa, row: &[Self], scale: f64, partial: &mut Partial) {
        double::scan(row, scale, partial);
    }

    fn gradient(_: Isa, row: &mut [Self], coefficients: &Coefficients) {
        double::gradient(row, coefficients);
    }
}

macro_rules! vectorised {
    ($($type:ty),*) => {$(
        impl Kernel for $type {
            fn scale(temperature: f64) -> f64 {
                f64::from((LOG2_E / temperature) as f32)
            }

            fn scan(isa: Isa, row: &[Self], scale: f64, partial: &mut Partial) {
                scan_stored(isa, row, scale as f32, partial);
            }

            fn gradient(isa: Isa, row: &mut [Self], coefficients: &Coefficients) {
                gradient_stored(isa, row, coefficients);
            }
        }
    )*};
}

vectorised!(f32, bf16, f16);

fn scan_stored<T: Stored>(isa: Isa, row: &[T], scale: f32, partial: &mut Partial) {
    debug_assert!(isa.is_available(), "{isa:?}");
    match isa {
        // SAFETY: `isa` is available.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512::scan(row, scale, partial) },
        // SAFETY: `isa` is available.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::scan(row, scale, partial) },
        // SAFETY: `isa` is available.
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => unsafe { neon::scan(row, scale, partial) },
        // SAFETY: needs no special instructions.
        _ => unsafe { scan::scan::<F32x4, T, 4>(row, scale, partial) },
    }
}

fn gradient_stored<T: Stored>(isa: Isa, row: &mut [T], coefficients: &Coefficients) {
    debug_assert!(isa.is_available(), "{isa:?}");
    match isa {
        // SAFETY: `isa` is available.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512::gradient(row, coefficients) },
        // SAFETY: `isa` is available.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::gradient(row, coefficients) },
        // SAFETY: `isa` is available.
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => unsafe { neon::gradient(row, coefficients) },
        // SAFETY: needs no special instructions.
        _ => unsafe { gradient::gradient::<F32x4, T>(row, coefficients) },
    }
}
