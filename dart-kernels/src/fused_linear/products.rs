//! The three products of the layer, over fixed blocks on the threads of the pool: which thread
//! computes a block does not change its bits.

use rayon::prelude::*;

use super::{FusedLinear, Head};
use crate::gemm::{Mat, MatMut, Write, matmul};

/// Rows of one product of logits or of ∂hidden: four blocks of a chunk, but no more than a core
/// makes good use of and no fewer, as every block packs the whole weight anew.
fn block_rows(rows: usize) -> usize {
    rows.div_ceil(4).clamp(32, 256)
}

/// Rows of one product of ∂weight.
const BLOCK_VOCAB: usize = 1024;

impl FusedLinear {
    /// hidden · weightᵀ.
    pub(super) fn logits(&self, head: &Head<'_>, hidden: &[f32]) -> Vec<f32> {
        let weight = Mat::new(head.weight, head.vocab, head.width);
        let rows = hidden.len() / head.width.max(1);
        let size = block_rows(rows);
        let mut logits = vec![0.0; rows * head.vocab];
        self.blocks(&mut logits, size * head.vocab, |index, block| {
            let rows = block.len() / head.vocab;
            let hidden = &hidden[index * size * head.width..];
            let hidden = Mat::new(hidden, rows, head.width);
            let block = MatMut::new(block, rows, head.vocab);
            matmul(block, Write::Replace, hidden, weight.t(), 1.0);
        });
        logits
    }

    /// gradient · weight.
    pub(super) fn by_hidden(&self, head: &Head<'_>, gradient: &[f32], rows: usize) -> Vec<f32> {
        let weight = Mat::new(head.weight, head.vocab, head.width);
        let size = block_rows(rows);
        let mut by_hidden = vec![0.0; rows * head.width];
        self.blocks(&mut by_hidden, size * head.width, |index, block| {
            let rows = block.len() / head.width;
            let gradient = &gradient[index * size * head.vocab..];
            let gradient = Mat::new(gradient, rows, head.vocab);
            let block = MatMut::new(block, rows, head.width);
            matmul(block, Write::Replace, gradient, weight, 1.0);
        });
        by_hidden
    }

    /// by_weight += gradientᵀ · hidden.
    pub(super) fn add_by_weight(
        &self,
        head: &Head<'_>,
        (gradient, hidden): (&[f32], &[f32]),
        by_weight: &mut [f32],
    ) {
        let rows = hidden.len() / head.width.max(1);
        let hidden = Mat::new(hidden, rows, head.width);
        self.blocks(by_weight, BLOCK_VOCAB * head.width, |index, block| {
            let vocab = block.len() / head.width;
            let gradient = &gradient[index * BLOCK_VOCAB..];
            let gradient = Mat::strided(gradient, rows, vocab, head.vocab);
            let block = MatMut::new(block, vocab, head.width);
            matmul(block, Write::Add, gradient.t(), hidden, 1.0);
        });
    }

    /// `each` of the blocks of `size` numbers, on threads if there are any.
    fn blocks(&self, data: &mut [f32], size: usize, each: impl Fn(usize, &mut [f32]) + Sync) {
        let size = size.max(1);
        if self.cpu.is_parallel() {
            let blocks = data.par_chunks_mut(size).enumerate();
            blocks.for_each(|(index, block)| each(index, block));
        } else {
            let blocks = data.chunks_mut(size).enumerate();
            blocks.for_each(|(index, block)| each(index, block));
        }
    }
}
