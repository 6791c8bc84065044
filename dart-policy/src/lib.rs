//! Vision-language policies.

#![deny(unsafe_code)]

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
mod nn;
pub mod policy;
pub mod prompt;
mod sampler;
pub mod tokenizer;
pub mod trainable;

pub use action_text::Verb;
pub use config::ModelConfig;
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use grammar::{ActionGrammar, Charset, DeviceKind, GrammarConfig};
pub use model::VlmModel;
pub use policy::{PolicyConfig, VlmPolicy};
pub use prompt::PromptBuilder;
pub use tokenizer::Tokenizer;
pub use trainable::{Forward, Parameters, TrainableModel};
