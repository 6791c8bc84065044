//! What can go wrong on a GPU.

use cudarc::{cublas::result::CublasError, driver::DriverError};

/// Result of the GPU operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong on a GPU. A machine without one gives an error, never a panic.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A library of NVIDIA is not on this machine.
    #[error("{what} is not on this machine (looked for {tried}); {remedy}")]
    Library {
        /// Which library, in words.
        what: &'static str,
        /// The names that were tried.
        tried: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The driver is there, the device is not.
    #[error(
        "there is no GPU {ordinal}, the driver sees {count}; check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
    )]
    NoDevice {
        /// Which device was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The device is too old for the kernels.
    #[error("GPU `{name}` has compute capability {}.{}; 8.0 or later is needed", capability.0, capability.1)]
    Capability {
        /// Its name.
        name: String,
        /// Its compute capability.
        capability: (u32, u32),
    },
    /// The driver refused something.
    #[error("the GPU could not {what}")]
    Driver {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: DriverError,
    },
    /// cuBLAS refused something.
    #[error("cuBLAS could not {what}")]
    Blas {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: CublasError,
    },
    /// The run-time compiler rejected a source.
    #[error("the run-time compiler refuses `{family}` for sm_{architecture}: {log}")]
    Compile {
        /// Family of kernels.
        family: &'static str,
        /// Architecture, such as 90.
        architecture: u32,
        /// The compiler's words.
        log: String,
    },
    /// Something is larger than a kernel can count.
    #[error("{what} is {size}; at most {most} are possible")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The largest possible.
        most: usize,
    },
    /// A buffer on the device is too short.
    #[error("{what} has {got} elements, {needed} are needed")]
    Buffer {
        /// Which buffer.
        what: &'static str,
        /// Its elements.
        got: usize,
        /// Elements needed.
        needed: usize,
    },
    /// A form of the loss was asked for that this device, row length or loss does not allow.
    #[error(
        "the two-pass form needs sm_90, a row that fits the shared memory and a token-level loss"
    )]
    NoFusedForm,
    /// What the kernels refuse on every machine.
    #[error(transparent)]
    Refused(#[from] crate::Error),
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refused) => refused,
            other => Self::Gpu(Box::new(other)),
        }
    }
}

/// Says what was attempted when it fails.
pub(super) trait Attempt<T> {
    fn to(self, what: &'static str) -> Result<T>;
}

impl<T> Attempt<T> for std::result::Result<T, DriverError> {
    fn to(self, what: &'static str) -> Result<T> {
        self.map_err(|source| Error::Driver { what, source })
    }
}

impl<T> Attempt<T> for std::result::Result<T, CublasError> {
    fn to(self, what: &'static str) -> Result<T> {
        self.map_err(|source| Error::Blas { what, source })
    }
}
