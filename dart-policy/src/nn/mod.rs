//! The network on plain slices, forward and backward.
//!
//! Written by hand rather than as a graph of tensor operations: on a CPU that is two to three
//! times as fast (no copies, no zero-filled gradients, products written where they are needed),
//! and nothing can cut a gradient silently. [`crate::network_pass`] presents it to candle as one custom
//! operation on the flat array of all parameters.

pub(crate) mod attention;
pub(crate) mod block;
pub(crate) mod layout;
pub(crate) mod prefix;
pub(crate) mod reading;
pub(crate) mod response;
pub(crate) mod simd;
pub(crate) mod stem;

use self::{block::Block, layout::Layout};
use crate::{config::ModelConfig, tokenizer::Tokenizer};

/// Shape of the network; its parameters are handed to each call.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    pub(crate) config: ModelConfig,
    pub(crate) layout: Layout,
    /// Ordinary tokens: those with an embedding. Cells come after them.
    pub(crate) ordinary: usize,
    /// All tokens.
    pub(crate) vocabulary: usize,
}

impl Net {
    /// A network of this shape.
    pub(crate) fn new(config: &ModelConfig, tokenizer: &Tokenizer) -> Self {
        Self {
            config: config.clone(),
            layout: Layout::new(config, tokenizer),
            ordinary: tokenizer.ordinary(),
            vocabulary: tokenizer.vocabulary(),
        }
    }

    fn block<'a>(&self, params: &'a [f32], layer: usize) -> Block<'a> {
        Block {
            params,
            spans: self.layout.blocks[layer],
            width: self.config.width,
            mlp: self.config.mlp_width,
        }
    }
}
