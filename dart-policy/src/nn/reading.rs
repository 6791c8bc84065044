//! The auxiliary reading loss: what is written where (used in the warm start).
//!
//! Two tasks share one loss. *Glyphs*: the stem's hidden layer names the letter at each of six
//! places of a window, if there is one; this needs no context and is learnt within seconds.
//! *Labels*: the image token at the middle of a text spells it, after the transformer; that
//! brings neighbouring windows together. A policy that can read learns the tasks; one that
//! cannot, does not.

use dart_kernels::gemm::{Mat, Write};

use super::{
    block::{product, weight_gradient},
    layout::{GLYPHS, LETTERS, Layout},
    simd::{self, softmax, vectorized},
};
use crate::config::ModelConfig;

/// The class of a place without a letter.
pub(crate) const NO_LETTER: u8 = 26;

/// The class of a place that is not judged.
pub(crate) const UNREADABLE: u8 = u8::MAX;

/// What is to be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    /// Six classes for each distinct window.
    pub(crate) glyphs: Vec<u8>,
    /// Rows of the final image tokens that hold the middle of a label.
    pub(crate) label_rows: Vec<usize>,
    /// `read_letters` classes for each of them.
    pub(crate) labels: Vec<u8>,
}

impl Targets {
    /// Whether there is nothing to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.label_rows.is_empty()
    }
}

/// The loss, with gradients of both heads' logits already scaled to its mean.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) loss: f32,
    dglyphs: Vec<f32>,
    dlabels: Vec<f32>,
    label_tokens: Vec<f32>,
}

/// Reads glyphs from `hidden` and labels from the final image tokens.
pub(crate) fn forward(
    (config, layout, params): (&ModelConfig, &Layout, &[f32]),
    targets: &Targets,
    hidden: &[f32],
    tokens: &[f32],
) -> Reading {
    let d = config.width;
    let windows = hidden.len() / config.stem_width;
    let mut glyphs = vec![0.0; windows * GLYPHS * LETTERS];
    let weight = Mat::new(
        layout.read_glyph.of(params),
        config.stem_width,
        GLYPHS * LETTERS,
    );
    product(&mut glyphs, hidden, weight, Write::Replace);
    simd::add_bias(&mut glyphs, layout.read_glyph_bias.of(params));
    let letters = targets.glyphs.iter().filter(|g| **g < NO_LETTER).count();
    let glyph_loss = cross_entropy(&mut glyphs, &targets.glyphs, letters.max(1));
    let label_tokens: Vec<f32> = targets
        .label_rows
        .iter()
        .flat_map(|row| &tokens[row * d..(row + 1) * d])
        .copied()
        .collect();
    let outputs = config.read_letters * LETTERS;
    let mut labels = vec![0.0; targets.label_rows.len() * outputs];
    let weight = Mat::new(layout.read_label.of(params), d, outputs);
    product(&mut labels, &label_tokens, weight, Write::Replace);
    simd::add_bias(&mut labels, layout.read_label_bias.of(params));
    let label_loss = cross_entropy(&mut labels, &targets.labels, targets.labels.len());
    Reading {
        loss: glyph_loss + label_loss,
        dglyphs: glyphs,
        dlabels: labels,
        label_tokens,
    }
}

/// Adds the gradients for a loss weighted by `weight`: to the parameters, to the final image
/// tokens (`dtokens`), and returns that of the stem's hidden layer.
pub(crate) fn backward(
    (config, layout, params): (&ModelConfig, &Layout, &[f32]),
    (targets, reading, hidden): (&Targets, &Reading, &[f32]),
    weight: f32,
    (dtokens, grads): (&mut [f32], &mut [f32]),
) -> Vec<f32> {
    let (d, stem, outputs) = (
        config.width,
        config.stem_width,
        config.read_letters * LETTERS,
    );
    let scaled = |values: &[f32]| values.iter().map(|v| v * weight).collect::<Vec<_>>();
    let (dglyphs, dlabels) = (scaled(&reading.dglyphs), scaled(&reading.dlabels));
    simd::sum_rows(layout.read_label_bias.of_mut(grads), &dlabels);
    let dweight = layout.read_label.of_mut(grads);
    weight_gradient(dweight, &reading.label_tokens, d, &dlabels, outputs);
    let mut dlabel_tokens = vec![0.0; reading.label_tokens.len()];
    let head = Mat::new(layout.read_label.of(params), d, outputs);
    product(&mut dlabel_tokens, &dlabels, head.t(), Write::Replace);
    for (row, gradient) in targets.label_rows.iter().zip(dlabel_tokens.chunks_exact(d)) {
        simd::add(&mut dtokens[row * d..(row + 1) * d], gradient);
    }
    simd::sum_rows(layout.read_glyph_bias.of_mut(grads), &dglyphs);
    let dweight = layout.read_glyph.of_mut(grads);
    weight_gradient(dweight, hidden, stem, &dglyphs, GLYPHS * LETTERS);
    let mut dhidden = vec![0.0; hidden.len()];
    let head = Mat::new(layout.read_glyph.of(params), stem, GLYPHS * LETTERS);
    product(&mut dhidden, &dglyphs, head.t(), Write::Replace);
    dhidden
}

/// Sum of the cross-entropies over `count`; turns the logits into their gradients.
fn cross_entropy(logits: &mut [f32], targets: &[u8], count: usize) -> f32 {
    let scale = 1.0 / count.max(1) as f32;
    vectorized(|| {
        let mut loss = 0.0;
        for (row, &target) in logits.chunks_exact_mut(LETTERS).zip(targets) {
            if target == UNREADABLE {
                row.fill(0.0);
                continue;
            }
            softmax(row);
            loss -= row[usize::from(target)].max(1e-30).ln();
            row[usize::from(target)] -= 1.0;
            for value in row.iter_mut() {
                *value *= scale;
            }
        }
        loss * scale
    })
}
