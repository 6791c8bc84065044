//! The operations on NVIDIA GPUs.
//!
//! [`Gpu`] has the operations of the CPU under the same names and with the same results; logits are
//! rows in the memory of the device ([`DeviceLogits`]) in f32, bf16 or f16.
//!
//! | module | what |
//! |---|---|
//! | [`gpu`] | [`Gpu`]: opens a device and loads the kernels |
//! | [`rows`] | log-probability and entropy of rows |
//! | [`rl_loss`] | the token loss, its gradient over the logits |
//! | [`tokens`] | operations over tokens: losses, weights, segment means, metrics |
//! | [`fused_linear`] | loss of hidden states without ever holding all logits |
//! | [`abi`], [`plan`] | what host and kernels share; what is decided before a launch |
//!
//! The kernels are CUDA C in `cuda/`. Their PTX is checked in and loaded through cudarc, which finds
//! the driver at run time: building takes no CUDA toolkit, and a machine without a GPU gets
//! [`Error::Library`] or [`Error::NoDevice`]. The feature `jit` compiles the sources for the present
//! device instead. With the feature `cuda` the operations
//! of [`crate::candle_op`] also take tensors on a GPU.
//!
//! Statistics, losses and gradients are f32 on the device, with an error of a few units in the last
//! place; results repeat bit for bit on the same device.

pub mod abi;
pub mod buffers;
#[cfg(feature = "cuda")]
pub mod candle;
pub mod error;
pub mod fused_linear;
pub mod gpu;
#[cfg(feature = "jit")]
pub mod jit;
mod label_gradient;
pub mod plan;
mod probe;
pub mod rl_loss;
pub mod rows;
mod source;
pub mod tokens;

pub use buffers::{DeviceLogits, DeviceLogitsMut};
pub use error::{Error, Result};
pub use fused_linear::{DeviceFusedLoss, DeviceHead, FusedLinear};
pub use gpu::{ElementKind, Gpu, GpuElement};
pub use plan::Form;
pub use rl_loss::Batch;
pub use rows::DeviceLabels;
