//! The window embedding: pixels of overlapping windows to image tokens.
//!
//! Each window goes through a two-layer network; then a token takes in its left and right
//! neighbours, because a label is wider than a window. Most windows of a screen are blank or
//! repeated, so each *distinct* window of a call is computed once.

use dart_kernels::gemm::{Mat, Write};

use super::{
    block::{product, weight_gradient},
    layout::{Layout, WINDOW_AREA},
    simd,
};
use crate::config::ModelConfig;

/// One image token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageRow {
    /// Its place among the packed rows.
    pub(crate) row: usize,
    /// Its window among the distinct windows.
    pub(crate) window: usize,
    /// The window to its left, if it has one.
    pub(crate) left: Option<usize>,
    /// The window to its right, if it has one.
    pub(crate) right: Option<usize>,
}

/// What the backward pass needs.
#[derive(Debug)]
pub(crate) struct Stem {
    before: Vec<f32>,
    /// After the activation, `[windows, stem_width]`; glyphs are read from here.
    pub(crate) hidden: Vec<f32>,
    out: Vec<f32>,
}

/// Adds the image tokens to the packed rows `x`.
pub(crate) fn forward(
    (config, layout, params): (&ModelConfig, &Layout, &[f32]),
    windows: &[f32],
    images: &[ImageRow],
    x: &mut [f32],
) -> Stem {
    let (d, hidden_width) = (config.width, config.stem_width);
    let count = windows.len() / WINDOW_AREA;
    let mut before = vec![0.0; count * hidden_width];
    let weight = Mat::new(layout.stem_in.of(params), WINDOW_AREA, hidden_width);
    product(&mut before, windows, weight, Write::Replace);
    simd::add_bias(&mut before, layout.stem_in_bias.of(params));
    let mut hidden = vec![0.0; before.len()];
    simd::silu_forward(&before, &mut hidden);
    let mut out = vec![0.0; count * d];
    let weight = Mat::new(layout.stem_out.of(params), hidden_width, d);
    product(&mut out, &hidden, weight, Write::Replace);
    simd::add_bias(&mut out, layout.stem_out_bias.of(params));
    let mut mixed = vec![0.0; count * 2 * d];
    let weight = Mat::new(layout.stem_mix.of(params), d, 2 * d);
    product(&mut mixed, &out, weight, Write::Replace);
    for image in images {
        let target = &mut x[image.row * d..(image.row + 1) * d];
        simd::add(target, &out[image.window * d..(image.window + 1) * d]);
        if let Some(left) = image.left {
            simd::add(target, &mixed[left * 2 * d..left * 2 * d + d]);
        }
        if let Some(right) = image.right {
            simd::add(target, &mixed[right * 2 * d + d..(right + 1) * 2 * d]);
        }
    }
    Stem {
        before,
        hidden,
        out,
    }
}

/// Adds the gradients of the stem's parameters, given those of the packed rows (`dx`) and, from
/// the reading loss, of the hidden layer.
pub(crate) fn backward(
    (config, layout, params): (&ModelConfig, &Layout, &[f32]),
    (windows, images, saved): (&[f32], &[ImageRow], &Stem),
    (dx, dhidden): (&[f32], Option<Vec<f32>>),
    grads: &mut [f32],
) {
    let (d, hidden_width) = (config.width, config.stem_width);
    let count = windows.len() / WINDOW_AREA;
    let mut dout = vec![0.0; count * d];
    let mut dmixed = vec![0.0; count * 2 * d];
    for image in images {
        let source = &dx[image.row * d..(image.row + 1) * d];
        simd::add(&mut dout[image.window * d..(image.window + 1) * d], source);
        if let Some(left) = image.left {
            simd::add(&mut dmixed[left * 2 * d..left * 2 * d + d], source);
        }
        if let Some(right) = image.right {
            simd::add(&mut dmixed[right * 2 * d + d..(right + 1) * 2 * d], source);
        }
    }
    let dweight = layout.stem_mix.of_mut(grads);
    weight_gradient(dweight, &saved.out, d, &dmixed, 2 * d);
    let mix = Mat::new(layout.stem_mix.of(params), d, 2 * d);
    product(&mut dout, &dmixed, mix.t(), Write::Add);
    simd::sum_rows(layout.stem_out_bias.of_mut(grads), &dout);
    let dweight = layout.stem_out.of_mut(grads);
    weight_gradient(dweight, &saved.hidden, hidden_width, &dout, d);
    let mut dhidden = dhidden.unwrap_or_else(|| vec![0.0; count * hidden_width]);
    let weight = Mat::new(layout.stem_out.of(params), hidden_width, d);
    product(&mut dhidden, &dout, weight.t(), Write::Add);
    simd::silu_backward(&saved.before, &mut dhidden);
    simd::sum_rows(layout.stem_in_bias.of_mut(grads), &dhidden);
    let dweight = layout.stem_in.of_mut(grads);
    weight_gradient(dweight, windows, WINDOW_AREA, &dhidden, hidden_width);
}
