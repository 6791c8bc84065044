//! Element-wise and row-wise kernels, vectorised for whatever the CPU offers.
//!
//! Each public function runs a plain loop inside [`pulp::Arch::dispatch`], which compiles it for
//! SSE2, AVX2 and AVX-512 and picks at run time. Reductions keep [`LANES`] partial sums, because
//! the compiler may not reorder float additions by itself. Results therefore depend on the CPU's
//! instruction set in the last bits, never on the thread or the batch.

use std::sync::OnceLock;

use pulp::Arch;

const LANES: usize = 16;

/// Added to the mean square before the root (RMSNorm, arXiv 1910.07467).
const RMS_EPSILON: f32 = 1e-6;

/// Runs `work` with the widest vectors.
#[inline]
pub(crate) fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    static ARCH: OnceLock<Arch> = OnceLock::new();
    ARCH.get_or_init(Arch::new).dispatch(work)
}

/// e^x to about 2 units in the last place, for `x` in −87 to 88; clamped outside.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must inline to be compiled for the chosen vectors"
)]
pub(crate) fn exp(x: f32) -> f32 {
    // Cephes: x = n ln 2 + r, |r| ≤ ln 2 / 2, e^r by a polynomial. Adding and taking away 1.5·2^23
    // rounds to an integer.
    const MAGIC: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let n = (x * std::f32::consts::LOG2_E + MAGIC) - MAGIC;
    let r = (x - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let p = 1.987_569_1e-4_f32;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 0.166_666_66;
    let p = p * r + 0.5;
    let e = p * r * r + r + 1.0;
    e * f32::from_bits(((n as i32 + 127) as u32) << 23)
}

#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must inline to be compiled for the chosen vectors"
)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Σ a·b.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must inline to be compiled for the chosen vectors"
)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (a16, b16) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let tail: f32 = a16
        .remainder()
        .iter()
        .zip(b16.remainder())
        .map(|(x, y)| x * y)
        .sum();
    for (x, y) in a16.zip(b16) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    tail + sums.iter().sum::<f32>()
}

/// Σ a·b·c.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must inline to be compiled for the chosen vectors"
)]
fn dot3(a: &[f32], b: &[f32], c: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let whole = a.len() / LANES * LANES;
    let blocks = a[..whole]
        .chunks_exact(LANES)
        .zip(b[..whole].chunks_exact(LANES))
        .zip(c[..whole].chunks_exact(LANES));
    for ((x, y), z) in blocks {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane] * z[lane];
        }
    }
    let tail: f32 = (whole..a.len()).map(|i| a[i] * b[i] * c[i]).sum();
    tail + sums.iter().sum::<f32>()
}

/// `y += s·x`.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must inline to be compiled for the chosen vectors"
)]
pub(crate) fn axpy(y: &mut [f32], s: f32, x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += s * x;
    }
}

/// `y += x`.
pub(crate) fn add(y: &mut [f32], x: &[f32]) {
    vectorized(|| axpy(y, 1.0, x));
}

/// `row += bias` for each row.
pub(crate) fn add_bias(rows: &mut [f32], bias: &[f32]) {
    vectorized(|| {
        for row in rows.chunks_exact_mut(bias.len()) {
            axpy(row, 1.0, bias);
        }
    });
}

/// `sums += Σ rows`.
pub(crate) fn sum_rows(sums: &mut [f32], rows: &[f32]) {
    vectorized(|| {
        for row in rows.chunks_exact(sums.len()) {
            axpy(sums, 1.0, row);
        }
    });
}

/// RMSNorm of each row of width `gain.len()`; `inverse` keeps 1/rms for the backward pass.
pub(crate) fn rms_forward(x: &[f32], gain: &[f32], out: &mut [f32], inverse: &mut [f32]) {
    let width = gain.len();
    vectorized(|| {
        let rows = x.chunks_exact(width).zip(out.chunks_exact_mut(width));
        for ((x, out), inverse) in rows.zip(inverse) {
            let scale = 1.0 / (dot(x, x) / width as f32 + RMS_EPSILON).sqrt();
            *inverse = scale;
            for i in 0..width {
                out[i] = x[i] * scale * gain[i];
            }
        }
    });
}

/// What the backward pass of RMSNorm needs of its forward pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RmsSaved<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) inverse: &'a [f32],
    pub(crate) gain: &'a [f32],
}

/// `dx += ∂/∂x`, `dgain += ∂/∂gain`, given the gradient `dy` of the output.
pub(crate) fn rms_backward(saved: RmsSaved<'_>, dy: &[f32], dx: &mut [f32], dgain: &mut [f32]) {
    let width = saved.gain.len();
    vectorized(|| {
        let rows = saved.x.chunks_exact(width).zip(saved.inverse);
        for (((x, &inverse), dy), dx) in rows
            .zip(dy.chunks_exact(width))
            .zip(dx.chunks_exact_mut(width))
        {
            let back = dot3(x, dy, saved.gain) * inverse.powi(3) / width as f32;
            for i in 0..width {
                dx[i] += dy[i] * saved.gain[i] * inverse - x[i] * back;
                dgain[i] += dy[i] * x[i] * inverse;
            }
        }
    });
}

/// SiLU: x·σ(x).
pub(crate) fn silu_forward(x: &[f32], out: &mut [f32]) {
    vectorized(|| {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = x * sigmoid(x);
        }
    });
}

/// Turns the gradient of SiLU's output into that of its input, in place.
pub(crate) fn silu_backward(x: &[f32], grad: &mut [f32]) {
    vectorized(|| {
        for (grad, &x) in grad.iter_mut().zip(x) {
            let s = sigmoid(x);
            *grad *= s * (1.0 + x * (1.0 - s));
        }
    });
}

/// SwiGLU (arXiv 2002.05202): each row of `x` holds gate and value, each of `width` numbers.
pub(crate) fn swiglu_forward(x: &[f32], width: usize, out: &mut [f32]) {
    vectorized(|| {
        for (x, out) in x.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
            let (gate, value) = x.split_at(width);
            for i in 0..width {
                out[i] = gate[i] * sigmoid(gate[i]) * value[i];
            }
        }
    });
}

/// Gradient of [`swiglu_forward`] with respect to `x`.
pub(crate) fn swiglu_backward(x: &[f32], width: usize, dout: &[f32], dx: &mut [f32]) {
    vectorized(|| {
        let rows = x
            .chunks_exact(2 * width)
            .zip(dx.chunks_exact_mut(2 * width));
        for ((x, dx), dout) in rows.zip(dout.chunks_exact(width)) {
            let (gate, value) = x.split_at(width);
            let (dgate, dvalue) = dx.split_at_mut(width);
            for i in 0..width {
                let s = sigmoid(gate[i]);
                dvalue[i] = dout[i] * gate[i] * s;
                dgate[i] = dout[i] * value[i] * s * (1.0 + gate[i] * (1.0 - s));
            }
        }
    });
}

/// Softmax of each row of width `width`, in place.
pub(crate) fn softmax_rows(rows: &mut [f32], width: usize) {
    vectorized(|| {
        for row in rows.chunks_exact_mut(width) {
            softmax(row);
        }
    });
}

/// Softmax of one row, in place.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must inline to be compiled for the chosen vectors"
)]
pub(crate) fn softmax(row: &mut [f32]) {
    let mut peaks = [f32::NEG_INFINITY; LANES];
    let chunks = row.chunks_exact(LANES);
    for &x in chunks.remainder() {
        peaks[0] = if x > peaks[0] { x } else { peaks[0] };
    }
    for chunk in chunks {
        for lane in 0..LANES {
            peaks[lane] = if chunk[lane] > peaks[lane] {
                chunk[lane]
            } else {
                peaks[lane]
            };
        }
    }
    let peak = peaks.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for x in row.iter_mut() {
        *x = exp(*x - peak);
    }
    let mut sums = [0.0f32; LANES];
    let chunks = row.chunks_exact(LANES);
    let tail: f32 = chunks.remainder().iter().sum();
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] += chunk[lane];
        }
    }
    let scale = 1.0 / (tail + sums.iter().sum::<f32>());
    for x in row.iter_mut() {
        *x *= scale;
    }
}

/// Turns the gradient of a softmax' output (`grad`) into that of its input, times `scale`, in
/// place, row by row; `p` is the output.
pub(crate) fn softmax_backward(p: &[f32], width: usize, grad: &mut [f32], scale: f32) {
    vectorized(|| {
        for (p, grad) in p.chunks_exact(width).zip(grad.chunks_exact_mut(width)) {
            softmax_backward_row(p, grad, scale);
        }
    });
}

/// One row of [`softmax_backward`].
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must inline to be compiled for the chosen vectors"
)]
pub(crate) fn softmax_backward_row(p: &[f32], grad: &mut [f32], scale: f32) {
    let mean = dot(p, grad);
    for (grad, p) in grad.iter_mut().zip(p) {
        *grad = p * (*grad - mean) * scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate() {
        for step in -8600..8700 {
            let x = step as f32 * 0.01;
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!(
                (got / want - 1.0).abs() < 3e-7,
                "exp({x}) = {got}, not {want}"
            );
        }
    }

    /// Compares a gradient with central differences of `loss`.
    fn check(x: &mut [f32], grad: &[f32], mut loss: impl FnMut(&[f32]) -> f64) {
        for i in 0..x.len() {
            let keep = x[i];
            x[i] = keep + 1e-2;
            let up = loss(x);
            x[i] = keep - 1e-2;
            let down = loss(x);
            x[i] = keep;
            let want = (up - down) / 2e-2;
            let got = f64::from(grad[i]);
            assert!(
                (got - want).abs() < 2e-3 * (1.0 + want.abs()),
                "{i}: {got} {want}"
            );
        }
    }

    fn numbers(count: usize, salt: u32) -> Vec<f32> {
        (0..count as u32)
            .map(|i| ((i * 37 + salt * 101) % 97) as f32 / 40.0 - 1.2)
            .collect()
    }

    fn weighted(out: &[f32], weights: &[f32]) -> f64 {
        out.iter()
            .zip(weights)
            .map(|(o, w)| f64::from(*o) * f64::from(*w))
            .sum()
    }

    #[test]
    fn rms_norm_has_the_right_gradient() {
        let (mut x, mut gain, dy) = (numbers(40, 1), numbers(20, 2), numbers(40, 3));
        let run = |x: &[f32], gain: &[f32]| {
            let (mut out, mut inverse) = (vec![0.0; 40], vec![0.0; 2]);
            rms_forward(x, gain, &mut out, &mut inverse);
            (out, inverse)
        };
        let (mut dx, mut dgain) = (vec![0.0; 40], vec![0.0; 20]);
        let inverse = run(&x, &gain).1;
        let saved = RmsSaved {
            x: &x,
            inverse: &inverse,
            gain: &gain,
        };
        rms_backward(saved, &dy, &mut dx, &mut dgain);
        let fixed = gain.clone();
        check(&mut x, &dx, |x| weighted(&run(x, &fixed).0, &dy));
        check(&mut gain, &dgain, |gain| weighted(&run(&x, gain).0, &dy));
    }

    #[test]
    fn activations_have_the_right_gradient() {
        let (mut x, dy) = (numbers(36, 4), numbers(18, 5));
        let mut dx = vec![0.0; 36];
        swiglu_backward(&x, 9, &dy, &mut dx);
        check(&mut x, &dx, |x| {
            let mut out = vec![0.0; 18];
            swiglu_forward(x, 9, &mut out);
            weighted(&out, &dy)
        });
        let (mut x, dy) = (numbers(18, 6), numbers(18, 5));
        let mut dx = dy.clone();
        silu_backward(&x, &mut dx);
        check(&mut x, &dx, |x| {
            let mut out = vec![0.0; 18];
            silu_forward(x, &mut out);
            weighted(&out, &dy)
        });
    }

    #[test]
    fn softmax_sums_to_one_and_has_the_right_gradient() {
        let (mut x, dy) = (numbers(38, 7), numbers(38, 8));
        let run = |x: &[f32]| {
            let mut p = x.to_vec();
            softmax_rows(&mut p, 19);
            p
        };
        let p = run(&x);
        assert!((p[..19].iter().sum::<f32>() - 1.0).abs() < 1e-6);
        let mut dx = dy.clone();
        softmax_backward(&p, 19, &mut dx, 1.0);
        check(&mut x, &dx, |x| weighted(&run(x), &dy));
    }
}
