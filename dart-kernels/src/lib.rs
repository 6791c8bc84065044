//! Fused log-probability, entropy and policy-loss kernels, and matrix products.
//!
//! The loss works on rows of logits `[tokens, vocab]`, one row per trained token. Logits may be
//! f32 or f64; all arithmetic is f64, so that results are right near certainty, where the tokens
//! of interface actions live, and do not depend on the order of a sum within a row.
//!
//! | module | what |
//! |---|---|
//! | [`row`] | log-probability and entropy of one row in one pass, and their gradient |
//! | [`mod@loss`] | loss of a token or of the tokens of sequences and its derivative, as closed forms |
//! | [`metrics`] | sums and means of what tokens gave |
//! | [`segments`] | means over steps, which steps and tokens are trained on |
//! | [`sequences`] | which tokens belong together |
//! | [`mod@rl_loss`] | loss of many tokens with the gradient with respect to their logits |
//! | [`candle_op`] | the same for candle tensors, as an operation with a gradient |
//! | [`gemm`] | matrix products on slices, for models that run without a tensor library |
//!
//! # Source
//! arXiv 2509.23866 §3.4 for the loss. The gradients are closed forms, tested against finite
//! differences and against numbers made by automatic differentiation.
//!
//! # Unsafe code
//! This is the one crate that may hold any. Only [`gemm`] does: one block, the call of the `gemm`
//! crate, behind bounds checks.

#![deny(unsafe_code)]

pub mod candle_op;
pub mod element;
pub mod error;
pub mod gemm;
pub mod importance;
pub mod loss;
pub mod metrics;
pub mod rl_loss;
pub mod row;
pub mod segments;
pub mod sequences;

pub use candle_op::{LossOutput, log_prob_entropy, rl_loss};
pub use element::Element;
pub use error::{Error, Result};
pub use importance::{
    Drift, DriftMetrics, Kept, Rejection, RejectionLevel, RejectionTest, WeightRule,
    effective_sample_size,
};
pub use loss::{
    Aggregation, Clip, ClipSide, Counts, Importance, Kl, KlEstimate, KlGradient, RatioLevel,
    SequenceTerm, Surrogate, Token, TokenLoss, TokenOutcome, WeightLevel, sequence_terms,
    token_loss, token_losses, token_losses_with,
};
pub use metrics::{LossMetrics, LossSums};
pub use rl_loss::{RlLoss, rl_loss_rows};
pub use row::{RowGradient, RowStats, row_gradient, row_stats};
pub use segments::{
    Segment, Selected, Selection, segment_means, select_steps, select_tokens, token_mask,
};
pub use sequences::Sequences;
