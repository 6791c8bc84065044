//! One pre-norm transformer block without its attention: `x + out(attend(qkv(norm x)))`, then
//! `x + down(swiglu(up(norm x)))`.
//!
//! Prefix and response rows run through the same two halves, [`project`] and [`finish`], around
//! different attentions ([`super::attention`]).

use dart_kernels::gemm::{Mat, MatMut, Write, matmul};

use super::{
    layout::BlockSpans,
    simd::{self, RmsSaved},
};

/// Parameters and sizes of one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) params: &'a [f32],
    pub(crate) spans: BlockSpans,
    pub(crate) width: usize,
    pub(crate) mlp: usize,
}

/// First half, with what its backward pass needs.
#[derive(Debug)]
pub(crate) struct Projected {
    /// The block's input, `[rows, width]`.
    pub(crate) x: Vec<f32>,
    inverse: Vec<f32>,
    normed: Vec<f32>,
    /// Queries, keys and values, `[rows, 3 width]`.
    pub(crate) qkv: Vec<f32>,
}

/// Norm and projection of all rows.
pub(crate) fn project(block: Block<'_>, x: Vec<f32>) -> Projected {
    let (width, rows) = (block.width, x.len() / block.width);
    let mut inverse = vec![0.0; rows];
    let mut normed = vec![0.0; x.len()];
    let gain = block.spans.norm_attention.of(block.params);
    simd::rms_forward(&x, gain, &mut normed, &mut inverse);
    let mut qkv = vec![0.0; rows * 3 * width];
    let weight = Mat::new(block.spans.qkv.of(block.params), width, 3 * width);
    product(&mut qkv, &normed, weight, Write::Replace);
    Projected {
        x,
        inverse,
        normed,
        qkv,
    }
}

/// `dx += ` the gradient of [`project`]'s input, given that of its output.
pub(crate) fn project_backward(
    block: Block<'_>,
    saved: &Projected,
    dqkv: &[f32],
    dx: &mut [f32],
    grads: &mut [f32],
) {
    let width = block.width;
    let dweight = block.spans.qkv.of_mut(grads);
    weight_gradient(dweight, &saved.normed, width, dqkv, 3 * width);
    let mut dnormed = vec![0.0; saved.x.len()];
    let weight = Mat::new(block.spans.qkv.of(block.params), width, 3 * width);
    product(&mut dnormed, dqkv, weight.t(), Write::Replace);
    let norm = RmsSaved {
        x: &saved.x,
        inverse: &saved.inverse,
        gain: block.spans.norm_attention.of(block.params),
    };
    let dgain = block.spans.norm_attention.of_mut(grads);
    simd::rms_backward(norm, &dnormed, dx, dgain);
}

/// Second half, with what its backward pass needs.
#[derive(Debug)]
pub(crate) struct Finished {
    attended: Vec<f32>,
    middle: Vec<f32>,
    inverse: Vec<f32>,
    normed: Vec<f32>,
    up: Vec<f32>,
    active: Vec<f32>,
}

/// Output projection and network; `residual` is the block's input at the attended rows.
/// Returns the block's output too.
pub(crate) fn finish(
    block: Block<'_>,
    residual: Vec<f32>,
    attended: Vec<f32>,
) -> (Finished, Vec<f32>) {
    let (width, mlp, rows) = (block.width, block.mlp, residual.len() / block.width);
    let mut middle = residual;
    let out = Mat::new(block.spans.out.of(block.params), width, width);
    product(&mut middle, &attended, out, Write::Add);
    let mut inverse = vec![0.0; rows];
    let mut normed = vec![0.0; middle.len()];
    let gain = block.spans.norm_mlp.of(block.params);
    simd::rms_forward(&middle, gain, &mut normed, &mut inverse);
    let mut up = vec![0.0; rows * 2 * mlp];
    let weight = Mat::new(block.spans.up.of(block.params), width, 2 * mlp);
    product(&mut up, &normed, weight, Write::Replace);
    let mut active = vec![0.0; rows * mlp];
    simd::swiglu_forward(&up, mlp, &mut active);
    let mut output = middle.clone();
    let down = Mat::new(block.spans.down.of(block.params), mlp, width);
    product(&mut output, &active, down, Write::Add);
    let saved = Finished {
        attended,
        middle,
        inverse,
        normed,
        up,
        active,
    };
    (saved, output)
}

/// Turns the gradient of [`finish`]'s output into that of `residual`, in place, and returns that
/// of `attended`.
pub(crate) fn finish_backward(
    block: Block<'_>,
    saved: &Finished,
    dout: &mut [f32],
    grads: &mut [f32],
) -> Vec<f32> {
    let (width, mlp) = (block.width, block.mlp);
    let rows = dout.len() / width;
    let ddown = block.spans.down.of_mut(grads);
    weight_gradient(ddown, &saved.active, mlp, dout, width);
    let mut dactive = vec![0.0; rows * mlp];
    let down = Mat::new(block.spans.down.of(block.params), mlp, width);
    product(&mut dactive, dout, down.t(), Write::Replace);
    let mut dup = vec![0.0; rows * 2 * mlp];
    simd::swiglu_backward(&saved.up, mlp, &dactive, &mut dup);
    let dweight = block.spans.up.of_mut(grads);
    weight_gradient(dweight, &saved.normed, width, &dup, 2 * mlp);
    let mut dnormed = vec![0.0; rows * width];
    let up = Mat::new(block.spans.up.of(block.params), width, 2 * mlp);
    product(&mut dnormed, &dup, up.t(), Write::Replace);
    let norm = RmsSaved {
        x: &saved.middle,
        inverse: &saved.inverse,
        gain: block.spans.norm_mlp.of(block.params),
    };
    let dgain = block.spans.norm_mlp.of_mut(grads);
    simd::rms_backward(norm, &dnormed, dout, dgain);
    let dweight = block.spans.out.of_mut(grads);
    weight_gradient(dweight, &saved.attended, width, dout, width);
    let mut dattended = vec![0.0; rows * width];
    let out = Mat::new(block.spans.out.of(block.params), width, width);
    product(&mut dattended, dout, out.t(), Write::Replace);
    dattended
}

/// `out = x weight` (or `+=`), row by row.
pub(crate) fn product(out: &mut [f32], x: &[f32], weight: Mat<'_>, write: Write) {
    let (inputs, outputs) = weight.shape();
    let rows = x.len() / inputs;
    let target = MatMut::new(out, rows, outputs);
    matmul(target, write, Mat::new(x, rows, inputs), weight, 1.0);
}

/// `dweight += xᵀ dy`.
pub(crate) fn weight_gradient(
    dweight: &mut [f32],
    x: &[f32],
    inputs: usize,
    dy: &[f32],
    outputs: usize,
) {
    let rows = x.len() / inputs;
    matmul(
        MatMut::new(dweight, inputs, outputs),
        Write::Add,
        Mat::new(x, rows, inputs).t(),
        Mat::new(dy, rows, outputs),
        1.0,
    );
}
