//! Vision-language policies.

#![deny(unsafe_code)]

mod action_parse;
mod action_text;
mod assemble;
pub mod config;
mod error;
pub mod grammar;
mod images;
pub mod model;
mod nn;
pub mod prompt;
pub mod tokenizer;
pub mod trainable;

pub use action_text::Verb;
pub use config::ModelConfig;
pub use grammar::{ActionGrammar, Charset, DeviceKind, GrammarConfig};
pub use model::VlmModel;
pub use prompt::PromptBuilder;
pub use tokenizer::Tokenizer;
pub use trainable::{Forward, Parameters, TrainableModel};
