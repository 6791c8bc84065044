//! Vision-language policies: what maps a screenshot and an instruction to an action.
//!
//! The embedded model is tiny and has the anatomy of a big one: windows of pixels become visual
//! tokens, which stand in one sequence with the tokens of the instruction and of the last
//! actions; a transformer reads that prompt once, without causal mask, and then speaks the action
//! in the UI-TARS grammar, token by token, over the kept keys and values. Cells of the image are
//! tokens of their own, scored by a pointer head: the query of the token being produced against
//! keys of the image tokens. They share one softmax with the ordinary vocabulary, so log-probs
//! and entropies mean what they mean in any language model.
//!
//! # Map
//!
//! | item | what |
//! |---|---|
//! | [`ModelConfig`] | shape of the model, its prompts and its actions |
//! | [`Tokenizer`], [`ActionGrammar`], [`PromptBuilder`] | text, actions and observations as tokens |
//! | [`VlmModel`] | the network; trained through [`TrainableModel`] |
//! | [`Decoder`] | decisions for many observations at once |
//! | [`VlmPolicy`] | the same behind [`dart_core::Policy`], on a thread of its own or inline |
//! | [`Encoder`] | an expert's actions in the policy's tokens |
//!
//! # Threads
//!
//! The network runs on the thread that calls it and starts none. candle does: its element-wise
//! operations spin on a pool of threads, which costs a third of a small learner's CPU time. Start
//! programs with `CANDLE_NUM_THREADS=1` and `RAYON_NUM_THREADS=1`, and use several workers.

#![forbid(unsafe_code)]

mod action_parse;
mod action_text;
mod assemble;
pub mod config;
pub mod decoder;
pub mod encoder;
mod error;
pub mod grammar;
mod images;
pub mod model;
mod network_pass;
mod nn;
mod packer;
pub mod policy;
pub mod prompt;
mod sampler;
pub mod tokenizer;
pub mod trainable;
mod weights_file;

pub use action_text::Verb;
pub use config::ModelConfig;
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use grammar::{ActionGrammar, Charset, DeviceKind, GrammarConfig};
pub use model::VlmModel;
pub use policy::{PolicyConfig, VlmPolicy};
pub use prompt::PromptBuilder;
pub use tokenizer::Tokenizer;
pub use trainable::{Forward, Parameters, TrainableModel, Upstream};
