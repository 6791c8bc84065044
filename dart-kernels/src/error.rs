//! What the kernels refuse.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the kernels refuse. Numbers that are not finite are no error: they show in the results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The logits are not `[tokens, vocab]` with one row for each token.
    #[error("logits have {elements} elements, {rows} rows of {vocab} are needed")]
    Shape {
        /// Elements given.
        elements: usize,
        /// Rows needed.
        rows: usize,
        /// Vocabulary.
        vocab: usize,
    },
    /// Something that is given for each row is not there for each row.
    #[error("{got} {what} for {rows} rows of logits")]
    Length {
        /// What is given.
        what: &'static str,
        /// How many.
        got: usize,
        /// Rows.
        rows: usize,
    },
    /// A matrix has not the elements of its shape, or the layer has no size.
    #[error("the {what} of {elements} elements is not {rows} x {cols}")]
    Matrix {
        /// Which one.
        what: &'static str,
        /// Elements given.
        elements: usize,
        /// Rows needed.
        rows: usize,
        /// Columns needed.
        cols: usize,
    },
    /// A temperature is not a positive number.
    #[error("temperature {0} of a token is not a positive number (1e-30 to 1e30)")]
    Temperature(f64),
    /// This machine lacks the instruction set.
    #[error("this processor does not have {0:?}")]
    InstructionSet(crate::Isa),
    /// The tensor is of a type that has no kernel.
    #[error("logits are {0}; f32, bf16, f16 and f64 on the CPU are supported")]
    Unsupported(String),
    /// Sequences do not fit the tokens.
    #[error("{0}")]
    Sequences(String),
    /// A share of steps or tokens to select is not in 0 to 1.
    #[error("a share of {0} cannot be selected, it must lie in 0 to 1")]
    Selection(f64),
    /// A GPU failed, or is not there.
    #[error(transparent)]
    Gpu(Box<crate::cuda::Error>),
    /// The tensor library failed.
    #[error("tensor operation failed")]
    Tensor(#[from] candle_core::Error),
}
