//! What is decided on the host before a launch: grids, threads, form of the loss, chunks.

use std::ops::Range;

use super::{
    abi::{CLUSTER_SIZE, MAX_THREADS},
    error::{Error, Result},
};

/// CTAs of the largest one-dimensional grid.
const MAX_GRID: usize = i32::MAX as usize;

/// Which way the loss and its gradient are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Statistics, loss, gradient: the logits are read twice and written once. On every GPU.
    ThreePass,
    /// A cluster of CTAs keeps the row in shared memory: read once, written once. From sm_90 on,
    /// for token-level losses.
    Fused,
}

/// The form for rows that need `needed` bytes of shared memory per CTA of `granted` (0 where there
/// are no clusters).
pub fn choose_form(needed: usize, granted: usize, token_level: bool) -> Form {
    if token_level && granted > 0 && needed <= granted {
        Form::Fused
    } else {
        Form::ThreePass
    }
}

/// Logits of a row that one CTA of a cluster keeps: whole 16-byte vectors.
pub fn slice_length(vocab: usize, element_bytes: usize) -> usize {
    let share = vocab.div_ceil(CLUSTER_SIZE as usize);
    share.next_multiple_of(16 / element_bytes)
}

/// Dynamic shared memory of one CTA of the two-pass form, in bytes.
pub fn fused_shared_bytes(vocab: usize, element_bytes: usize) -> usize {
    slice_length(vocab, element_bytes) * element_bytes + 16
}

/// Threads of a CTA that works on `length` elements: one for each 16 bytes, whole warps.
pub fn row_threads(length: usize, element_bytes: usize) -> u32 {
    let vectors = length
        .div_ceil(16 / element_bytes)
        .min(MAX_THREADS as usize);
    (vectors as u32).next_multiple_of(32).max(32)
}

/// Cuts `rows` into launches whose grids are possible, with `ctas` CTAs for each row.
pub fn launches(rows: usize, ctas: usize) -> impl Iterator<Item = Range<usize>> {
    let most = MAX_GRID / ctas;
    (0..rows.div_ceil(most)).map(move |i| i * most..rows.min((i + 1) * most))
}

/// `size` as the `int` of a kernel's argument.
pub(super) fn int(what: &'static str, size: usize) -> Result<i32> {
    i32::try_from(size).map_err(|_| Error::TooLarge {
        what,
        size,
        most: MAX_GRID,
    })
}

/// Rows of each chunk of a fused linear layer: as many as `budget_bytes` hold logits of
/// `row_bytes`, all chunks of about the same size, of whole tiles of 128 rows where possible. At
/// least one row, whatever the budget.
pub fn chunk_rows(rows: usize, row_bytes: usize, budget_bytes: usize) -> usize {
    const TILE: usize = 128;
    let most = (budget_bytes / row_bytes.max(1)).max(1);
    if most >= rows {
        return rows.max(1);
    }
    let even = rows.div_ceil(rows.div_ceil(most));
    let tiled = even.next_multiple_of(TILE);
    if tiled <= most { tiled } else { even }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_holds_the_row() {
        for vocab in [
            1, 7, 8, 255, 257, 1000, 1003, 32_000, 50_257, 151_936, 152_064, 262_144,
        ] {
            for bytes in [2, 4] {
                let length = slice_length(vocab, bytes);
                assert_eq!(length * bytes % 16, 0);
                assert!(length * CLUSTER_SIZE as usize >= vocab);
                assert_eq!(fused_shared_bytes(vocab, bytes), length * bytes + 16);
            }
        }
        // 38 KB for the vocabulary of Qwen in bf16: four CTAs share a multiprocessor of an H200.
        assert_eq!(fused_shared_bytes(152_064, 2), 38_032);
    }

    #[test]
    fn the_form_follows_memory_device_and_loss() {
        assert_eq!(choose_form(38_032, 232_448, true), Form::Fused);
        assert_eq!(choose_form(38_032, 232_448, false), Form::ThreePass);
        assert_eq!(choose_form(38_032, 0, true), Form::ThreePass);
        assert_eq!(choose_form(232_449, 232_448, true), Form::ThreePass);
    }

    #[test]
    fn threads_are_whole_warps_and_no_more_than_vectors() {
        assert_eq!(row_threads(1, 4), 32);
        assert_eq!(row_threads(0, 2), 32);
        assert_eq!(row_threads(4 * 33, 4), 64);
        assert_eq!(row_threads(152_064, 2), 512);
        assert!((1..5000).all(|n| row_threads(n, 2).is_multiple_of(32)));
    }

    #[test]
    fn more_rows_than_a_grid_are_several_launches() {
        assert_eq!(launches(0, 1).count(), 0);
        assert!(launches(7, 8).eq(std::iter::once(0..7)));
        let rows = 5_000_000_000;
        for ctas in [1, 8] {
            let all: Vec<_> = launches(rows, ctas).collect();
            assert!(
                all.iter()
                    .all(|range| i32::try_from(range.len() * ctas).is_ok())
            );
            assert_eq!(all.iter().map(ExactSizeIterator::len).sum::<usize>(), rows);
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }

    #[test]
    fn counts_that_do_not_fit_an_int_are_refused() {
        assert_eq!(int("vocabulary", 152_064).unwrap(), 152_064);
        assert!(matches!(
            int("vocabulary", 1 << 31),
            Err(Error::TooLarge { .. })
        ));
    }

    #[test]
    fn chunks_stay_within_the_budget_and_are_even() {
        let row = 152_064 * 2;
        // 2 GiB hold 7061 rows: two chunks of 4096.
        assert_eq!(chunk_rows(8192, row, 2 << 30), 4096);
        assert_eq!(chunk_rows(8192, row, 4 << 30), 8192);
        assert_eq!(chunk_rows(10, row, 0), 1);
        assert_eq!(chunk_rows(0, row, 1 << 30), 1);
        for rows in [1, 100, 129, 1000, 4097, 8192] {
            for most in [1, 5, 127, 128, 300, 1000, 5000] {
                let chunk = chunk_rows(rows, row, most * row);
                assert!(chunk >= 1 && chunk <= most.max(1), "{rows} {most} {chunk}");
                let fewest = rows.div_ceil(most);
                assert!(rows.div_ceil(chunk) <= fewest + 1, "{rows} {most} {chunk}");
            }
        }
    }
}
