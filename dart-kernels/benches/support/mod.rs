//! What benchmarks share: inputs and the composition of candle operations that the kernels replace.

#![allow(
    dead_code,
    reason = "each program that includes this uses a part of it"
)]

pub(crate) mod composition;
pub(crate) mod inputs;
