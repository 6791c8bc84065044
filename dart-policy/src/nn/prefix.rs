//! The prompt pass: image and text tokens, bidirectional, once for each distinct prompt.
//!
//! It leaves keys and values for the responses and the pointer's keys. The last block computes
//! only what is still needed after it: the tokens of the current image.

use dart_kernels::gemm::{Mat, Write};

use super::{
    Net,
    attention::{self, Heads, KeyValues, Sequence},
    block::{self, Finished, Projected, product, weight_gradient},
    reading::{self, Reading, Targets},
    simd::{self, RmsSaved},
    stem::{self, ImageRow, Stem},
};

/// Marks an unused place in [`Parts`].
pub(crate) const UNUSED: u32 = u32::MAX;
/// A row's embedding: the sum of up to five rows of the parameters, by offset.
pub(crate) type Parts = [u32; 5];

/// Packed prompts.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixInput {
    pub(crate) parts: Vec<Parts>,
    /// The prompts; their asking rows are the current image's tokens.
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) images: Vec<ImageRow>,
    /// The distinct windows, `[windows, 576]`.
    pub(crate) windows: Vec<f32>,
    pub(crate) reading: Option<Targets>,
}

#[derive(Debug)]
struct PrefixBlock {
    projected: Projected,
    weights: Vec<f32>,
    finished: Finished,
}

/// What the prompt pass leaves.
#[derive(Debug)]
pub(crate) struct Prefix {
    stem: Stem,
    blocks: Vec<PrefixBlock>,
    last: Vec<f32>,
    inverse: Vec<f32>,
    normed: Vec<f32>,
    /// The pointer's keys, `[prompts, cells, pointer_width]`.
    pub(crate) keys: Vec<f32>,
    /// The reading loss, if targets were given.
    pub(crate) reading: Option<Reading>,
}

impl Prefix {
    /// Keys and values that block `layer` left for the rows of `sequence`.
    pub(crate) fn key_values(
        &self,
        layer: usize,
        sequence: Sequence,
        width: usize,
    ) -> KeyValues<'_> {
        let qkv = &self.blocks[layer].projected.qkv;
        KeyValues::of_qkv(qkv, width, sequence.start, sequence.len)
    }
}

/// Gradients that the response pass hands back to the prompt pass.
#[derive(Debug)]
pub(crate) struct PrefixGradient {
    /// For each block, of queries, keys and values, `[rows, 3 width]`.
    pub(crate) qkv: Vec<Vec<f32>>,
    /// Of the pointer's keys.
    pub(crate) keys: Vec<f32>,
}

impl Net {
    pub(super) fn heads(&self) -> Heads {
        Heads {
            width: self.config.width,
            count: self.config.heads,
        }
    }

    /// Sum of embedding rows for each row.
    pub(super) fn embed(&self, params: &[f32], parts: &[Parts]) -> Vec<f32> {
        let d = self.config.width;
        let mut x = vec![0.0; parts.len() * d];
        for (row, parts) in x.chunks_exact_mut(d).zip(parts) {
            for &at in parts.iter().filter(|at| **at != UNUSED) {
                simd::add(row, &params[at as usize..at as usize + d]);
            }
        }
        x
    }

    /// Gradient of [`Self::embed`].
    pub(super) fn embed_backward(&self, parts: &[Parts], dx: &[f32], grads: &mut [f32]) {
        let d = self.config.width;
        for (row, parts) in dx.chunks_exact(d).zip(parts) {
            for &at in parts.iter().filter(|at| **at != UNUSED) {
                simd::add(&mut grads[at as usize..at as usize + d], row);
            }
        }
    }

    fn sequences_of(&self, input: &PrefixInput, layer: usize) -> Vec<Sequence> {
        let last = layer + 1 == self.config.layers;
        let whole = |s: &Sequence| Sequence {
            query_start: s.start,
            query_len: s.len,
            ..*s
        };
        input
            .sequences
            .iter()
            .map(|s| if last { *s } else { whole(s) })
            .collect()
    }

    /// Runs the prompts.
    pub(crate) fn prefix_forward(&self, params: &[f32], input: &PrefixInput) -> Prefix {
        let model = (&self.config, &self.layout, params);
        let mut x = self.embed(params, &input.parts);
        let stem = stem::forward(model, &input.windows, &input.images, &mut x);
        let mut blocks = Vec::with_capacity(self.config.layers);
        for layer in 0..self.config.layers {
            let block = self.block(params, layer);
            let sequences = self.sequences_of(input, layer);
            let projected = block::project(block, x);
            let (attended, weights) =
                attention::prompt_forward(self.heads(), &projected.qkv, &sequences);
            let residual = asking_rows(&projected.x, &sequences, self.config.width);
            let (finished, output) = block::finish(block, residual, attended);
            x = output;
            blocks.push(PrefixBlock {
                projected,
                weights,
                finished,
            });
        }
        let (d, pointer) = (self.config.width, 4 * self.config.pointer_width);
        let mut inverse = vec![0.0; x.len() / d];
        let mut normed = vec![0.0; x.len()];
        let gain = self.layout.norm_image.of(params);
        simd::rms_forward(&x, gain, &mut normed, &mut inverse);
        let mut keys = vec![0.0; x.len() / d * pointer];
        let weight = Mat::new(self.layout.key.of(params), d, pointer);
        product(&mut keys, &normed, weight, Write::Replace);
        let reading = input
            .reading
            .as_ref()
            .map(|targets| reading::forward(model, targets, &stem.hidden, &normed));
        Prefix {
            stem,
            blocks,
            last: x,
            inverse,
            normed,
            keys,
            reading,
        }
    }

    /// Gradients of zero, to be filled by the response pass.
    pub(crate) fn prefix_gradient(&self, input: &PrefixInput, prefix: &Prefix) -> PrefixGradient {
        let numbers = input.parts.len() * 3 * self.config.width;
        PrefixGradient {
            qkv: vec![vec![0.0; numbers]; self.config.layers],
            keys: vec![0.0; prefix.keys.len()],
        }
    }

    /// Adds the gradients of all parameters that the prompt pass used.
    pub(crate) fn prefix_backward(
        &self,
        params: &[f32],
        (input, prefix): (&PrefixInput, &Prefix),
        (gradient, reading_weight): (PrefixGradient, f32),
        grads: &mut [f32],
    ) {
        let model = (&self.config, &self.layout, params);
        let d = self.config.width;
        let pointer = 4 * self.config.pointer_width;
        let dweight = self.layout.key.of_mut(grads);
        weight_gradient(dweight, &prefix.normed, d, &gradient.keys, pointer);
        let mut dnormed = vec![0.0; prefix.normed.len()];
        let weight = Mat::new(self.layout.key.of(params), d, pointer);
        product(&mut dnormed, &gradient.keys, weight.t(), Write::Replace);
        let dhidden = match (&input.reading, &prefix.reading) {
            (Some(targets), Some(reading)) => {
                let read = (targets, reading, prefix.stem.hidden.as_slice());
                let into = (dnormed.as_mut_slice(), &mut *grads);
                Some(reading::backward(model, read, reading_weight, into))
            }
            _ => None,
        };
        let mut dx = vec![0.0; prefix.last.len()];
        let norm = RmsSaved {
            x: &prefix.last,
            inverse: &prefix.inverse,
            gain: self.layout.norm_image.of(params),
        };
        let dgain = self.layout.norm_image.of_mut(grads);
        simd::rms_backward(norm, &dnormed, &mut dx, dgain);
        for (layer, mut dqkv) in gradient.qkv.into_iter().enumerate().rev() {
            let saved = &prefix.blocks[layer];
            let sequences = self.sequences_of(input, layer);
            let kept = (layer, saved, sequences.as_slice());
            dx = self.block_backward(params, kept, (&mut dqkv, dx), grads);
        }
        self.embed_backward(&input.parts, &dx, grads);
        let taken = (
            input.windows.as_slice(),
            input.images.as_slice(),
            &prefix.stem,
        );
        stem::backward(model, taken, (&dx, dhidden), grads);
    }

    fn block_backward(
        &self,
        params: &[f32],
        (layer, saved, sequences): (usize, &PrefixBlock, &[Sequence]),
        (dqkv, mut dout): (&mut [f32], Vec<f32>),
        grads: &mut [f32],
    ) -> Vec<f32> {
        let block = self.block(params, layer);
        let d = self.config.width;
        let dattended = block::finish_backward(block, &saved.finished, &mut dout, grads);
        let attended = (
            saved.projected.qkv.as_slice(),
            sequences,
            saved.weights.as_slice(),
        );
        attention::prompt_backward(self.heads(), attended, &dattended, dqkv);
        let mut dx = if dout.len() == saved.projected.x.len() {
            dout
        } else {
            let mut dx = vec![0.0; saved.projected.x.len()];
            let mut at = 0;
            for s in sequences {
                let numbers = s.query_len * d;
                dx[s.query_start * d..][..numbers].copy_from_slice(&dout[at..at + numbers]);
                at += numbers;
            }
            dx
        };
        block::project_backward(block, &saved.projected, dqkv, &mut dx, grads);
        dx
    }
}

fn asking_rows(x: &[f32], sequences: &[Sequence], width: usize) -> Vec<f32> {
    let asking: usize = sequences.iter().map(|s| s.query_len).sum();
    let mut rows = Vec::with_capacity(asking * width);
    for s in sequences {
        rows.extend_from_slice(&x[s.query_start * width..(s.query_start + s.query_len) * width]);
    }
    rows
}
