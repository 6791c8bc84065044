//! One pass of the network over packed samples, forward and backward.
//!
//! The forward pass runs prompts and responses and masks what the grammar forbids; the backward
//! pass gives every gradient at once, so nothing can be cut off between layers.

use std::sync::Arc;

use crate::{
    grammar::{ActionGrammar, State},
    nn::{
        Net,
        prefix::{Prefix, PrefixInput},
        response::{Fresh, Response, ResponseInput},
    },
};

/// The logit of a token that the grammar forbids: its probability is exactly 0 in f32.
pub const MASKED: f32 = -1.0e9;

/// What the network is to score at one response token.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The grammar allows only this token.
    Forced(u32),
    /// Response row `row`, under the allowed tokens of a grammar state.
    Row(usize, State),
}

/// The network, and what it is to run on.
#[derive(Debug)]
pub(crate) struct NetworkPass {
    net: Arc<Net>,
    grammar: Arc<ActionGrammar>,
    prefix_input: PrefixInput,
    response_input: ResponseInput,
    targets: Vec<Target>,
}

/// What a forward pass keeps for its backward pass.
#[derive(Debug)]
pub struct Tape {
    pass: NetworkPass,
    params: Vec<f32>,
    prefix: Prefix,
    response: Response,
}

/// What a pass runs on.
pub(crate) struct Packed {
    pub(crate) prefix_input: PrefixInput,
    pub(crate) response_input: ResponseInput,
    /// One for each response token, sample by sample.
    pub(crate) targets: Vec<Target>,
}

impl NetworkPass {
    /// The pass of `packed`; it has not run yet.
    pub(crate) fn new(net: Arc<Net>, grammar: Arc<ActionGrammar>, packed: Packed) -> Self {
        Self {
            net,
            grammar,
            prefix_input: packed.prefix_input,
            response_input: packed.response_input,
            targets: packed.targets,
        }
    }

    /// Response tokens to score.
    pub(crate) fn tokens(&self) -> usize {
        self.targets.len()
    }

    /// Runs forward under `params`, all parameters one after another: logits `[tokens · vocabulary]`
    /// and the reading loss, if there is anything to read.
    pub(crate) fn run(self, params: Vec<f32>) -> (Vec<f32>, Option<f64>, Tape) {
        let prefix = self.net.prefix_forward(&params, &self.prefix_input);
        let fresh = Fresh {
            net: &self.net,
            input: &self.prefix_input,
            prefix: &prefix,
        };
        let response = self
            .net
            .response_forward(&params, &self.response_input, &fresh, None);
        let logits = self.masked(&response);
        let reading = prefix.reading.as_ref().map(|read| f64::from(read.loss));
        let reading = reading.filter(|_| self.prefix_input.reading.is_some());
        let tape = Tape {
            pass: self,
            params,
            prefix,
            response,
        };
        (logits, reading, tape)
    }

    /// Logits of every token, what the grammar forbids masked.
    fn masked(&self, response: &Response) -> Vec<f32> {
        let vocabulary = self.net.vocabulary;
        let mut out = vec![MASKED; self.targets.len() * vocabulary];
        for (target, row) in self.targets.iter().zip(out.chunks_exact_mut(vocabulary)) {
            match target {
                Target::Forced(token) => row[*token as usize] = 0.0,
                Target::Row(index, state) => {
                    let logits = &response.logits[index * vocabulary..(index + 1) * vocabulary];
                    for &token in self.grammar.allowed(*state) {
                        row[token as usize] = logits[token as usize];
                    }
                }
            }
        }
        out
    }
}

impl Tape {
    /// How many logits the forward pass gave.
    pub(crate) fn logits(&self) -> usize {
        self.pass.tokens() * self.pass.net.vocabulary
    }

    /// Gradients of all parameters, one after another, of a loss whose derivatives with respect to
    /// the logits and the reading loss are given.
    pub(crate) fn gradient(self, by_logits: &[f32], by_reading: f64) -> Vec<f32> {
        let Self {
            pass,
            params,
            prefix,
            response,
        } = self;
        let mut dlogits = vec![0.0; response.logits.len()];
        let vocabulary = pass.net.vocabulary;
        for (target, row) in pass.targets.iter().zip(by_logits.chunks_exact(vocabulary)) {
            if let Target::Row(index, state) = target {
                let into = &mut dlogits[index * vocabulary..(index + 1) * vocabulary];
                for &token in pass.grammar.allowed(*state) {
                    into[token as usize] += row[token as usize];
                }
            }
        }
        let mut grads = vec![0.0; params.len()];
        let mut back = pass.net.prefix_gradient(&pass.prefix_input, &prefix);
        let fresh = Fresh {
            net: &pass.net,
            input: &pass.prefix_input,
            prefix: &prefix,
        };
        let kept = (&pass.response_input, fresh, &response);
        pass.net
            .response_backward(&params, kept, &dlogits, (&mut back, &mut grads));
        let kept = (&pass.prefix_input, &prefix);
        pass.net
            .prefix_backward(&params, kept, (back, by_reading as f32), &mut grads);
        grads
    }
}
