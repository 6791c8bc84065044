//! Fused log-probability, entropy and policy-loss kernels, and matrix products.
//!
//! The operations work on rows of logits `[tokens, vocab]`, one row per trained token, in f32,
//! bf16, f16 or f64. One pass reads a row; partial sums and everything that happens once per row
//! are f64, so that results are right near certainty, where the tokens of interface actions live.
//!
//! | module | what |
//! |---|---|
//! | [`mod@log_prob_entropy`] | log-probability of a label and entropy of the row, in one pass |
//! | [`rl_loss`] | loss of many tokens; their logits are overwritten by the gradient |
//! | [`mod@fused_linear`] | the last layer and its loss, a chunk of logits at a time |
//! | [`mod@loss`] | loss of a token or of the tokens of sequences and its derivative, as closed forms |
//! | [`metrics`] | sums and means of what tokens gave |
//! | [`segments`] | means over steps, which steps and tokens are trained on |
//! | [`sequences`] | which tokens belong together |
//! | [`importance`] | importance weights, rejection, effective sample size |
//! | [`logits`], [`row`], [`element`] | what goes in and what comes out |
//! | [`cpu`] | vectors of AVX-512, AVX2, NEON or none; rows on threads |
//! | [`cuda`] | the same for logits on an NVIDIA GPU |
//! | [`candle_op`] | the same for candle tensors |
//! | [`reference`](mod@reference) | the definition, slow: what all others are measured against |
//! | [`gemm`] | matrix products on slices, for models that run without a tensor library |
//!
//! # Source
//! arXiv 2509.23866 §3.4 for the loss. The gradients are closed forms, tested against finite
//! differences and against numbers made by automatic differentiation.
//!
//! # Unsafe code
//! This is the one crate that may hold any: vector instructions and pointers in [`cpu`], the call of
//! the `gemm` crate in [`gemm`], launches and library calls in [`cuda`]. Each block states its
//! invariant.

pub mod candle_op;
pub mod cpu;
pub mod cuda;
pub mod element;
pub mod error;
pub mod fused_linear;
pub mod gemm;
pub mod importance;
mod label_gradient;
pub mod log_prob_entropy;
pub mod logits;
pub mod loss;
pub mod metrics;
pub mod reference;
pub mod rl_loss;
pub mod row;
pub mod segments;
pub mod sequences;

pub use cpu::{isa::Isa, rows::Cpu};
pub use element::Element;
pub use error::{Error, Result};
pub use fused_linear::{
    FusedLinear, FusedLoss, Head, Objective, fused_linear, fused_linear_log_prob_entropy,
};
pub use importance::{
    Drift, DriftMetrics, Kept, Rejection, RejectionLevel, RejectionTest, WeightRule,
    effective_sample_size,
};
pub use log_prob_entropy::log_prob_entropy;
pub use logits::{Labels, Logits, LogitsMut, Shape, Temperature};
pub use loss::{
    Aggregation, Clip, ClipSide, Counts, Importance, Kl, KlEstimate, KlGradient, RatioLevel,
    SequenceTerm, Surrogate, Token, TokenLoss, TokenOutcome, WeightLevel, sequence_terms,
    token_loss, token_losses, token_losses_with,
};
pub use metrics::{LossMetrics, LossSums};
pub use reference::{row_gradient, row_stats};
pub use rl_loss::{RlLoss, rl_loss_in_place};
pub use row::{RowGradient, RowStats};
pub use segments::{
    Segment, Selected, Selection, segment_means, select_steps, select_tokens, token_mask,
};
pub use sequences::Sequences;
