//! The kernels on the CPU: one row at a time in vectors of f32, rows spread over threads.
//!
//! | module | what |
//! |---|---|
//! | [`isa`] | which instruction set runs, chosen once at run time |
//! | `lanes` | what a vector of f32 must be able to do; 2^x by a polynomial |
//! | `scalar`, `avx2`, `avx512`, `neon` | the vectors |
//! | `partial` | what a scan knows of a row, and what follows from it, in f64 |
//! | `scan` | the online softmax over a row |
//! | `gradient` | a row of logits overwritten by its gradient |
//! | `double` | the same two for rows of f64, without vectors |
//! | `kernel` | which of these serves which element type |
//! | `rows` | rows spread over the threads of the current rayon pool |
//!
//! Results do not depend on the number of threads and repeat bit for bit on one instruction set.

#![expect(
    clippy::inline_always,
    reason = "a vector instruction is one instruction only inside a function compiled for it"
)]

pub(crate) mod double;
pub(crate) mod gradient;
pub mod isa;
pub(crate) mod kernel;
pub(crate) mod lanes;
pub(crate) mod partial;
pub mod rows;
pub(crate) mod scalar;
pub(crate) mod scan;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
