//! Attention, forward and backward: of a prompt's rows among themselves (bidirectional), and of a
//! response's rows over their prompt and what precedes them in the response (causal).
//!
//! Sequences are packed without padding, so neither batch nor length of others can change a result.

use dart_kernels::gemm::{Mat, MatMut, Write, matmul};

use super::simd::{self, axpy, dot, softmax, softmax_backward_row, vectorized};

/// Sizes of attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    /// Numbers per row.
    pub(crate) width: usize,
    /// Heads; divides `width`.
    pub(crate) count: usize,
}

impl Heads {
    const fn size(self) -> usize {
        self.width / self.count
    }

    fn scale(self) -> f32 {
        1.0 / (self.size() as f32).sqrt()
    }
}

/// One prompt within packed rows: keys are all of its rows, queries are some of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// First row that asks.
    pub(crate) query_start: usize,
    /// Rows that ask.
    pub(crate) query_len: usize,
}

/// Attention of each prompt's asking rows over all of its rows: the result `[asking rows, width]`
/// and the weights, for the backward pass.
pub(crate) fn prompt_forward(
    heads: Heads,
    qkv: &[f32],
    sequences: &[Sequence],
) -> (Vec<f32>, Vec<f32>) {
    let (width, size, stride) = (heads.width, heads.size(), 3 * heads.width);
    let asking: usize = sequences.iter().map(|s| s.query_len).sum();
    let weights: usize = sequences.iter().map(|s| s.query_len * s.len).sum();
    let mut out = vec![0.0; asking * width];
    let mut probabilities = vec![0.0; weights * heads.count];
    let (mut out_at, mut weights_at) = (0, 0);
    for s in sequences {
        let area = s.query_len * s.len;
        for head in 0..heads.count {
            let column = head * size;
            let q = Mat::strided(
                &qkv[s.query_start * stride + column..],
                s.query_len,
                size,
                stride,
            );
            let k = Mat::strided(
                &qkv[s.start * stride + width + column..],
                s.len,
                size,
                stride,
            );
            let v = Mat::strided(
                &qkv[s.start * stride + 2 * width + column..],
                s.len,
                size,
                stride,
            );
            let p = &mut probabilities[weights_at..weights_at + area];
            let scores = MatMut::new(p, s.query_len, s.len);
            matmul(scores, Write::Replace, q, k.t(), heads.scale());
            simd::softmax_rows(p, s.len);
            let target = MatMut::strided(&mut out[out_at + column..], s.query_len, size, width);
            matmul(
                target,
                Write::Replace,
                Mat::new(p, s.query_len, s.len),
                v,
                1.0,
            );
            weights_at += area;
        }
        out_at += s.query_len * width;
    }
    (out, probabilities)
}

/// `dqkv += ` the gradient of [`prompt_forward`]'s input.
pub(crate) fn prompt_backward(
    heads: Heads,
    (qkv, sequences, probabilities): (&[f32], &[Sequence], &[f32]),
    dout: &[f32],
    dqkv: &mut [f32],
) {
    let (width, size, stride) = (heads.width, heads.size(), 3 * heads.width);
    let (mut out_at, mut weights_at) = (0, 0);
    let mut dp = Vec::new();
    for s in sequences {
        let area = s.query_len * s.len;
        for head in 0..heads.count {
            let column = head * size;
            let query = s.query_start * stride + column;
            let key = s.start * stride + width + column;
            let value = key + width;
            let p = &probabilities[weights_at..weights_at + area];
            let dy = Mat::strided(&dout[out_at + column..], s.query_len, size, width);
            let pm = Mat::new(p, s.query_len, s.len);
            let v = Mat::strided(&qkv[value..], s.len, size, stride);
            let dv = MatMut::strided(&mut dqkv[value..], s.len, size, stride);
            matmul(dv, Write::Add, pm.t(), dy, 1.0);
            dp.resize(area, 0.0);
            let scores = MatMut::new(&mut dp, s.query_len, s.len);
            matmul(scores, Write::Replace, dy, v.t(), 1.0);
            simd::softmax_backward(p, s.len, &mut dp, heads.scale());
            let ds = Mat::new(&dp, s.query_len, s.len);
            let k = Mat::strided(&qkv[key..], s.len, size, stride);
            let dq = MatMut::strided(&mut dqkv[query..], s.query_len, size, stride);
            matmul(dq, Write::Add, ds, k, 1.0);
            let q = Mat::strided(&qkv[query..], s.query_len, size, stride);
            let dk = MatMut::strided(&mut dqkv[key..], s.len, size, stride);
            matmul(dk, Write::Add, ds.t(), q, 1.0);
            weights_at += area;
        }
        out_at += s.query_len * width;
    }
}

/// Keys and values of some rows, wherever they lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyValues<'a> {
    pub(crate) data: &'a [f32],
    /// Numbers from one row to the next.
    pub(crate) stride: usize,
    /// Where a row's key begins.
    pub(crate) key: usize,
    /// Where a row's value begins.
    pub(crate) value: usize,
    /// Rows.
    pub(crate) len: usize,
}

impl<'a> KeyValues<'a> {
    /// Rows `start..start + len` of packed queries, keys and values.
    pub(crate) fn of_qkv(qkv: &'a [f32], width: usize, start: usize, len: usize) -> Self {
        Self {
            data: &qkv[start * 3 * width..],
            stride: 3 * width,
            key: width,
            value: 2 * width,
            len,
        }
    }
}

/// Attention of one row over two runs of rows; `weights` gets `[heads, all keys]`.
pub(crate) fn row_forward(
    heads: Heads,
    query: &[f32],
    runs: [KeyValues<'_>; 2],
    out: &mut [f32],
    weights: &mut [f32],
) {
    vectorized(|| {
        let (size, total) = (heads.size(), runs[0].len + runs[1].len);
        for head in 0..heads.count {
            let columns = head * size..(head + 1) * size;
            let q = &query[columns.clone()];
            let w = &mut weights[head * total..(head + 1) * total];
            let mut at = 0;
            for run in runs {
                for row in 0..run.len {
                    let key = row * run.stride + run.key + columns.start;
                    w[at] = dot(q, &run.data[key..key + size]) * heads.scale();
                    at += 1;
                }
            }
            softmax(w);
            let out = &mut out[columns.clone()];
            out.fill(0.0);
            at = 0;
            for run in runs {
                for row in 0..run.len {
                    let value = row * run.stride + run.value + columns.start;
                    axpy(out, w[at], &run.data[value..value + size]);
                    at += 1;
                }
            }
        }
    });
}

/// One row of [`row_forward`], for its backward pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSaved<'a> {
    pub(crate) query: &'a [f32],
    pub(crate) runs: [KeyValues<'a>; 2],
    pub(crate) weights: &'a [f32],
}

/// Gradients of [`row_forward`]: `dquery +=`, and `druns[i] +=` in the layout of `runs[i].data`.
pub(crate) fn row_backward(
    heads: Heads,
    saved: RowSaved<'_>,
    dout: &[f32],
    dquery: &mut [f32],
    druns: [&mut [f32]; 2],
) {
    vectorized(|| {
        let (size, total) = (heads.size(), saved.runs[0].len + saved.runs[1].len);
        let mut dw = vec![0.0; total];
        let [first, second] = druns;
        for head in 0..heads.count {
            let columns = head * size..(head + 1) * size;
            let w = &saved.weights[head * total..(head + 1) * total];
            let (q, dy) = (&saved.query[columns.clone()], &dout[columns.clone()]);
            let mut at = 0;
            for (run, drun) in saved.runs.iter().zip([&mut *first, &mut *second]) {
                for row in 0..run.len {
                    let value = row * run.stride + run.value + columns.start;
                    dw[at] = dot(dy, &run.data[value..value + size]);
                    axpy(&mut drun[value..value + size], w[at], dy);
                    at += 1;
                }
            }
            softmax_backward_row(w, &mut dw, heads.scale());
            at = 0;
            for (run, drun) in saved.runs.iter().zip([&mut *first, &mut *second]) {
                for row in 0..run.len {
                    let key = row * run.stride + run.key + columns.start;
                    axpy(
                        &mut dquery[columns.clone()],
                        dw[at],
                        &run.data[key..key + size],
                    );
                    axpy(&mut drun[key..key + size], dw[at], q);
                    at += 1;
                }
            }
        }
    });
}
