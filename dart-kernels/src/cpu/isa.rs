//! [`Isa`]: which instruction set the kernels use.

use std::sync::OnceLock;

use crate::{Error, Result};

/// An instruction set that the kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Isa {
    /// What every processor has.
    Scalar,
    /// 128-bit vectors of 64-bit ARM.
    Neon,
    /// 256-bit vectors of x86-64, with FMA and F16C.
    Avx2,
    /// 512-bit vectors of x86-64 (AVX-512F).
    Avx512,
}

impl Isa {
    /// All, from the slowest to the fastest.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Neon, Self::Avx2, Self::Avx512];

    /// The fastest that this machine has.
    pub fn detect() -> Self {
        static FOUND: OnceLock<Isa> = OnceLock::new();
        let fastest = || Self::available().next_back().unwrap_or(Self::Scalar);
        *FOUND.get_or_init(fastest)
    }

    /// Those that this machine has, from the slowest to the fastest.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
            _ => false,
        }
    }

    /// Itself, if this machine has it.
    ///
    /// # Errors
    /// [`Error::InstructionSet`].
    pub fn require(self) -> Result<Self> {
        let missing = Error::InstructionSet(self);
        self.is_available().then_some(self).ok_or(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_available_is_chosen() {
        assert!(Isa::detect().is_available());
        assert!(Isa::available().all(|isa| isa <= Isa::detect()));
        for isa in Isa::ALL {
            assert_eq!(isa.require().is_ok(), isa.is_available());
        }
    }
}
