//! The response pass: the few tokens of an action, causal, over the keys and values of their
//! prompt. The same code serves training (all tokens at once) and decoding (one token a time).

use dart_kernels::gemm::{Mat, MatMut, Write, matmul};

use super::{
    Net,
    attention::{self, KeyValues, RowSaved},
    block::{self, Finished, Projected, product, weight_gradient},
    prefix::{Parts, Prefix, PrefixGradient, PrefixInput},
    simd::{self, RmsSaved},
};

/// Scale of the ordinary vocabulary's logits, times √width: keeps a fresh model near uniform.
const LOGIT_SCALE: f32 = 2.5;

/// Rows of one response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseRows {
    /// Its prompt.
    pub(crate) prompt: usize,
    /// First packed row.
    pub(crate) start: usize,
    /// Rows.
    pub(crate) len: usize,
}

/// Packed response rows: the begin token, then the response without its last token.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseInput {
    pub(crate) parts: Vec<Parts>,
    pub(crate) responses: Vec<ResponseRows>,
}

/// Keys and values of the tokens decoded so far, for each block `[tokens, 2 width]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoded {
    layers: Vec<Vec<f32>>,
}

/// Where the response pass finds its prompts.
pub(crate) trait Prompts {
    /// Keys and values that block `layer` left for prompt `prompt`.
    fn key_values(&self, layer: usize, prompt: usize) -> KeyValues<'_>;
    /// The pointer's keys of prompt `prompt`, `[cells, pointer_width]`.
    fn pointer_keys(&self, prompt: usize) -> &[f32];
}

/// Prompts that were just computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh<'a> {
    pub(crate) net: &'a Net,
    pub(crate) input: &'a PrefixInput,
    pub(crate) prefix: &'a Prefix,
}

impl Prompts for Fresh<'_> {
    fn key_values(&self, layer: usize, prompt: usize) -> KeyValues<'_> {
        let sequence = self.input.sequences[prompt];
        self.prefix
            .key_values(layer, sequence, self.net.config.width)
    }

    fn pointer_keys(&self, prompt: usize) -> &[f32] {
        let numbers = self.net.config.cells() * self.net.config.pointer_width;
        &self.prefix.keys[prompt * numbers..(prompt + 1) * numbers]
    }
}

#[derive(Debug)]
struct ResponseBlock {
    projected: Projected,
    weights: Vec<f32>,
    finished: Finished,
}

/// What the response pass leaves.
#[derive(Debug)]
pub(crate) struct Response {
    blocks: Vec<ResponseBlock>,
    last: Vec<f32>,
    inverse: Vec<f32>,
    normed: Vec<f32>,
    queries: Vec<f32>,
    /// `[rows, vocabulary]`, before the grammar's mask.
    pub(crate) logits: Vec<f32>,
}

impl Net {
    fn logit_scale(&self) -> f32 {
        LOGIT_SCALE / (self.config.width as f32).sqrt()
    }

    fn pointer_scale(&self) -> f32 {
        1.0 / (self.config.pointer_width as f32).sqrt()
    }

    /// Runs the responses. With `decoded` (one for each response), their earlier tokens are taken
    /// from there and the new ones appended.
    pub(crate) fn response_forward(
        &self,
        params: &[f32],
        input: &ResponseInput,
        prompts: &impl Prompts,
        mut decoded: Option<&mut [Decoded]>,
    ) -> Response {
        let mut x = self.embed(params, &input.parts);
        let mut blocks = Vec::with_capacity(self.config.layers);
        for layer in 0..self.config.layers {
            let block = self.block(params, layer);
            let projected = block::project(block, x);
            let past = decoded.as_deref_mut();
            let (attended, weights) = self.attend(layer, &projected.qkv, input, (prompts, past));
            let (finished, output) = block::finish(block, projected.x.clone(), attended);
            x = output;
            blocks.push(ResponseBlock {
                projected,
                weights,
                finished,
            });
        }
        self.score(params, input, prompts, (blocks, x))
    }

    fn attend<P: Prompts>(
        &self,
        layer: usize,
        qkv: &[f32],
        input: &ResponseInput,
        (prompts, mut decoded): (&P, Option<&mut [Decoded]>),
    ) -> (Vec<f32>, Vec<f32>) {
        let d = self.config.width;
        let mut attended = vec![0.0; qkv.len() / 3];
        let mut weights = Vec::new();
        for (index, r) in input.responses.iter().enumerate() {
            let prompt = prompts.key_values(layer, r.prompt);
            for row in 0..r.len {
                let at = (r.start + row) * 3 * d;
                let own = match &mut decoded {
                    Some(decoded) => decoded[index].push(layer, &qkv[at + d..at + 3 * d], d),
                    None => KeyValues::of_qkv(qkv, d, r.start, row + 1),
                };
                let weights_at = weights.len();
                weights.resize(weights_at + self.config.heads * (prompt.len + own.len), 0.0);
                let out = &mut attended[(r.start + row) * d..(r.start + row + 1) * d];
                let query = &qkv[at..at + d];
                let weights = &mut weights[weights_at..];
                attention::row_forward(self.heads(), query, [prompt, own], out, weights);
            }
        }
        (attended, weights)
    }

    fn score(
        &self,
        params: &[f32],
        input: &ResponseInput,
        prompts: &impl Prompts,
        (blocks, x): (Vec<ResponseBlock>, Vec<f32>),
    ) -> Response {
        let (d, pointer) = (self.config.width, self.config.pointer_width);
        let (ordinary, vocabulary, rows) = (self.ordinary, self.vocabulary, x.len() / d);
        let mut inverse = vec![0.0; rows];
        let mut normed = vec![0.0; x.len()];
        let gain = self.layout.norm_response.of(params);
        simd::rms_forward(&x, gain, &mut normed, &mut inverse);
        let mut logits = vec![0.0; rows * vocabulary];
        let target = MatMut::strided(&mut logits, rows, ordinary, vocabulary);
        let tokens = Mat::new(self.layout.tokens.of(params), ordinary, d);
        let normed_mat = Mat::new(&normed, rows, d);
        matmul(
            target,
            Write::Replace,
            normed_mat,
            tokens.t(),
            self.logit_scale(),
        );
        let mut queries = vec![0.0; rows * pointer];
        let weight = Mat::new(self.layout.query.of(params), d, pointer);
        product(&mut queries, &normed, weight, Write::Replace);
        for r in &input.responses {
            let q = Mat::new(&queries[r.start * pointer..], r.len, pointer);
            let k = Mat::new(prompts.pointer_keys(r.prompt), self.config.cells(), pointer);
            let at = r.start * vocabulary + ordinary;
            let target = MatMut::strided(&mut logits[at..], r.len, self.config.cells(), vocabulary);
            matmul(target, Write::Replace, q, k.t(), self.pointer_scale());
        }
        Response {
            blocks,
            last: x,
            inverse,
            normed,
            queries,
            logits,
        }
    }

    /// Adds the gradients of all parameters that the response pass used, and those that go on to
    /// the prompts. `dlogits` is 0 wherever the grammar forbids a token.
    pub(crate) fn response_backward(
        &self,
        params: &[f32],
        (input, fresh, saved): (&ResponseInput, Fresh<'_>, &Response),
        dlogits: &[f32],
        (gradient, grads): (&mut PrefixGradient, &mut [f32]),
    ) {
        let mut dx = self.score_backward(params, (input, fresh, saved), dlogits, (gradient, grads));
        for layer in (0..self.config.layers).rev() {
            let block = self.block(params, layer);
            let kept = &saved.blocks[layer];
            let dattended = block::finish_backward(block, &kept.finished, &mut dx, grads);
            let into = &mut gradient.qkv[layer];
            let dqkv = self.attend_backward(layer, (input, fresh, kept), &dattended, into);
            block::project_backward(block, &kept.projected, &dqkv, &mut dx, grads);
        }
        self.embed_backward(&input.parts, &dx, grads);
    }

    fn score_backward(
        &self,
        params: &[f32],
        (input, fresh, saved): (&ResponseInput, Fresh<'_>, &Response),
        dlogits: &[f32],
        (gradient, grads): (&mut PrefixGradient, &mut [f32]),
    ) -> Vec<f32> {
        let (d, pointer, cells) = (
            self.config.width,
            self.config.pointer_width,
            self.config.cells(),
        );
        let (ordinary, vocabulary) = (self.ordinary, self.vocabulary);
        let rows = saved.last.len() / d;
        let mut dqueries = vec![0.0; rows * pointer];
        for r in &input.responses {
            let at = r.start * vocabulary + ordinary;
            let dy = Mat::strided(&dlogits[at..], r.len, cells, vocabulary);
            let keys = Mat::new(fresh.pointer_keys(r.prompt), cells, pointer);
            let dq = MatMut::new(&mut dqueries[r.start * pointer..], r.len, pointer);
            matmul(dq, Write::Replace, dy, keys, self.pointer_scale());
            let numbers = cells * pointer;
            let dkeys = &mut gradient.keys[r.prompt * numbers..(r.prompt + 1) * numbers];
            let q = Mat::new(&saved.queries[r.start * pointer..], r.len, pointer);
            let dk = MatMut::new(dkeys, cells, pointer);
            matmul(dk, Write::Add, dy.t(), q, self.pointer_scale());
        }
        let dweight = self.layout.query.of_mut(grads);
        weight_gradient(dweight, &saved.normed, d, &dqueries, pointer);
        let mut dnormed = vec![0.0; rows * d];
        let weight = Mat::new(self.layout.query.of(params), d, pointer);
        product(&mut dnormed, &dqueries, weight.t(), Write::Replace);
        let dy = Mat::strided(dlogits, rows, ordinary, vocabulary);
        let tokens = Mat::new(self.layout.tokens.of(params), ordinary, d);
        let scale = self.logit_scale();
        matmul(
            MatMut::new(&mut dnormed, rows, d),
            Write::Add,
            dy,
            tokens,
            scale,
        );
        let dtokens = MatMut::new(self.layout.tokens.of_mut(grads), ordinary, d);
        matmul(
            dtokens,
            Write::Add,
            dy.t(),
            Mat::new(&saved.normed, rows, d),
            scale,
        );
        let mut dx = vec![0.0; rows * d];
        let norm = RmsSaved {
            x: &saved.last,
            inverse: &saved.inverse,
            gain: self.layout.norm_response.of(params),
        };
        let dgain = self.layout.norm_response.of_mut(grads);
        simd::rms_backward(norm, &dnormed, &mut dx, dgain);
        dx
    }

    fn attend_backward(
        &self,
        layer: usize,
        (input, fresh, saved): (&ResponseInput, Fresh<'_>, &ResponseBlock),
        dattended: &[f32],
        dprompts: &mut [f32],
    ) -> Vec<f32> {
        let (d, qkv) = (self.config.width, &saved.projected.qkv);
        let mut dqkv = vec![0.0; qkv.len()];
        let mut dquery = vec![0.0; d];
        let mut weights_at = 0;
        for r in &input.responses {
            let prompt = fresh.key_values(layer, r.prompt);
            let prompt_at = fresh.input.sequences[r.prompt].start * 3 * d;
            for row in 0..r.len {
                let own = KeyValues::of_qkv(qkv, d, r.start, row + 1);
                let at = (r.start + row) * 3 * d;
                let numbers = self.config.heads * (prompt.len + own.len);
                let kept = RowSaved {
                    query: &qkv[at..at + d],
                    runs: [prompt, own],
                    weights: &saved.weights[weights_at..weights_at + numbers],
                };
                weights_at += numbers;
                let dout = &dattended[(r.start + row) * d..(r.start + row + 1) * d];
                dquery.fill(0.0);
                let druns = [&mut dprompts[prompt_at..], &mut dqkv[r.start * 3 * d..]];
                attention::row_backward(self.heads(), kept, dout, &mut dquery, druns);
                simd::add(&mut dqkv[at..at + d], &dquery);
            }
        }
        dqkv
    }
}

impl Decoded {
    /// Nothing decoded yet.
    pub(crate) fn new(layers: usize) -> Self {
        Self {
            layers: vec![Vec::new(); layers],
        }
    }

    fn push(&mut self, layer: usize, key_value: &[f32], width: usize) -> KeyValues<'_> {
        let data = &mut self.layers[layer];
        data.extend_from_slice(key_value);
        KeyValues {
            data,
            stride: 2 * width,
            key: 0,
            value: width,
            len: data.len() / (2 * width),
        }
    }
}
