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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;

    /// Few distinct numbers, a masked one among them.
    fn row<T: Element>(length: usize) -> Vec<T> {
        let number = |i: usize| match i % 7 {
            3 => f64::NEG_INFINITY,
            phase => 0.25 * phase as f64 - (i / 7) as f64 * 0.125,
        };
        (0..length).map(|i| T::from_f64(number(i))).collect()
    }

    /// Every length up to several vectors and a tail, from every alignment: vectors read and write
    /// the row and nothing else. Miri runs this on the scalar vectors.
    fn touches_the_row_alone<T: Element + std::fmt::Debug + PartialEq>() {
        let scale = T::scale(0.9);
        let guard = T::from_f64(7.0);
        for isa in Isa::available() {
            for (length, shift) in (0..70).flat_map(|length| [(length, 0), (length, length % 3)]) {
                let row = row::<T>(length);
                let mut buffer = vec![guard; shift];
                buffer.extend_from_slice(&row);
                buffer.push(guard);
                let inside = shift..shift + length;
                let mut partial = Partial::EMPTY;
                T::scan(isa, &buffer[inside.clone()], scale, &mut partial);
                let mut exact = Partial::EMPTY;
                let row64: Vec<f64> = row.iter().map(|x| (*x).into()).collect();
                double::scan(&row64, scale, &mut exact);
                let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs();
                assert_eq!(partial.top, exact.top);
                assert!(near(partial.sum, exact.sum), "{isa:?} {length}");
                assert!(near(partial.weighted, exact.weighted), "{isa:?} {length}");
                let by = Coefficients {
                    top: exact.top.max(0.0),
                    scale,
                    constant: 0.5,
                    slope: -0.25,
                };
                T::gradient(isa, &mut buffer[inside.clone()], &by);
                let mut gradient = row64;
                double::gradient(&mut gradient, &by);
                for (got, want) in buffer[inside].iter().zip(gradient) {
                    let (got, bar): (f64, f64) = ((*got).into(), 4e-3 * want.abs());
                    assert!((got - want).abs() <= bar, "{isa:?} {length}: {got} {want}");
                }
                assert!(
                    buffer[..shift]
                        .iter()
                        .chain(buffer.last())
                        .all(|x| *x == guard)
                );
            }
        }
    }

    #[test]
    fn vectors_touch_the_row_alone() {
        touches_the_row_alone::<f32>();
        touches_the_row_alone::<bf16>();
        touches_the_row_alone::<f16>();
    }
}
