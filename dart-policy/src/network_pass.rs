//! The network as one custom operation of candle, on the flat array of all parameters.
//!
//! The forward pass runs prompts and responses and masks what the grammar forbids; the backward
//! pass gives every gradient at once, so nothing can be cut off between layers.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorage, CustomOp1, DType, Layout, Shape, Tensor};

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

/// The network as one operation: flat parameters to `[tokens · vocabulary + 1]`, the last number
/// being the reading loss.
pub(crate) struct NetworkPass {
    net: Arc<Net>,
    grammar: Arc<ActionGrammar>,
    prefix_input: PrefixInput,
    response_input: ResponseInput,
    targets: Vec<Target>,
    saved: Mutex<Option<(Prefix, Response)>>,
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
            saved: Mutex::new(None),
        }
    }

    /// Response tokens to score.
    pub(crate) fn tokens(&self) -> usize {
        self.targets.len()
    }

    /// Whether there is anything to read.
    pub(crate) fn has_reading(&self) -> bool {
        self.prefix_input.reading.is_some()
    }

    fn run(&self, params: &[f32]) -> Vec<f32> {
        let prefix = self.net.prefix_forward(params, &self.prefix_input);
        let fresh = Fresh {
            net: &self.net,
            input: &self.prefix_input,
            prefix: &prefix,
        };
        let response = self
            .net
            .response_forward(params, &self.response_input, &fresh, None);
        let vocabulary = self.net.vocabulary;
        let mut out = vec![MASKED; self.targets.len() * vocabulary + 1];
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
        let last = out.len() - 1;
        out[last] = prefix.reading.as_ref().map_or(0.0, |reading| reading.loss);
        *self.saved.lock().unwrap_or_else(PoisonError::into_inner) = Some((prefix, response));
        out
    }

    fn gradient(&self, params: &[f32], dout: &[f32]) -> Option<Vec<f32>> {
        let saved = self
            .saved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let (prefix, response) = saved?;
        let vocabulary = self.net.vocabulary;
        let mut dlogits = vec![0.0; response.logits.len()];
        for (target, row) in self.targets.iter().zip(dout.chunks_exact(vocabulary)) {
            if let Target::Row(index, state) = target {
                let into = &mut dlogits[index * vocabulary..(index + 1) * vocabulary];
                for &token in self.grammar.allowed(*state) {
                    into[token as usize] += row[token as usize];
                }
            }
        }
        let mut grads = vec![0.0; params.len()];
        let mut back = self.net.prefix_gradient(&self.prefix_input, &prefix);
        let fresh = Fresh {
            net: &self.net,
            input: &self.prefix_input,
            prefix: &prefix,
        };
        let kept = (&self.response_input, fresh, &response);
        self.net
            .response_backward(params, kept, &dlogits, (&mut back, &mut grads));
        let reading_weight = dout.last().copied().unwrap_or_default();
        let kept = (&self.prefix_input, &prefix);
        self.net
            .prefix_backward(params, kept, (back, reading_weight), &mut grads);
        Some(grads)
    }
}

impl CustomOp1 for NetworkPass {
    fn name(&self) -> &'static str {
        "vision-language-policy"
    }

    fn cpu_fwd(
        &self,
        storage: &CpuStorage,
        layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let all = storage.as_slice::<f32>()?;
        let params = match layout.contiguous_offsets() {
            Some((start, end)) => &all[start..end],
            None => candle_core::bail!("parameters are not contiguous"),
        };
        let out = self.run(params);
        let shape = Shape::from(out.len());
        Ok((CpuStorage::F32(out), shape))
    }

    fn bwd(
        &self,
        arg: &Tensor,
        _res: &Tensor,
        grad_res: &Tensor,
    ) -> candle_core::Result<Option<Tensor>> {
        let params = arg.to_dtype(DType::F32)?.to_vec1::<f32>()?;
        let dout = grad_res.to_vec1::<f32>()?;
        let Some(grads) = self.gradient(&params, &dout) else {
            candle_core::bail!("the backward pass of one forward pass runs once");
        };
        let length = grads.len();
        Ok(Some(Tensor::from_vec(grads, length, arg.device())?))
    }
}
