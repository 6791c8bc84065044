//! The online softmax over a row, in vectors.
//!
//! Logits come in chunks of several vectors, which stay in registers: their largest is compared
//! with the top so far, which rarely rises, then each adds 2^d and d 2^d to sums in f32. The sums
//! are emptied into f64 every [`BLOCK`] vectors, so rounding does not grow with the vocabulary.

use super::{
    lanes::{Lanes, Stored},
    partial::Partial,
};

/// Vectors after which the sums are emptied.
const BLOCK: usize = 256;

/// Bytes by which memory is asked for ahead of its use. The processor's own prefetching stops at the
/// end of a page; this goes on, and gains a quarter on rows that come from memory. Between 8 and
/// 32 KiB it makes no difference. Behind a row lies the next one, or nothing that is read.
const AHEAD: usize = 12 << 10;
const CACHE_LINE: usize = 64;

/// What is added up between two moves into f64.
struct Sums<L> {
    /// The top that d is measured from; 0 before the first number.
    top: L,
    scale: L,
    floor: L,
    sum: [L; 2],
    weighted: [L; 2],
}

impl<L: Lanes> Sums<L> {
    /// # Safety
    /// As [`Lanes`].
    #[inline(always)]
    unsafe fn new(scale: f32, top: f32) -> Self {
        // SAFETY: the caller's.
        unsafe {
            let zero = L::splat(0.0);
            Self {
                top: L::splat(if top > f32::NEG_INFINITY { top } else { 0.0 }),
                scale: L::splat(scale),
                floor: L::splat(L::FLOOR),
                sum: [zero; 2],
                weighted: [zero; 2],
            }
        }
    }

    /// Adds a vector to the sums of one `side`; two sides, so that one need not wait for the other.
    ///
    /// # Safety
    /// As [`Lanes`].
    #[inline(always)]
    unsafe fn push(&mut self, x: L, side: usize) {
        // SAFETY: the caller's.
        unsafe {
            // Subtracted before it is scaled: no finite logit overflows.
            let d = self.floor.max(x.sub(self.top).mul(self.scale));
            let power = d.exp2();
            self.sum[side] = self.sum[side].add(power);
            self.weighted[side] = power.mul_add(d, self.weighted[side]);
        }
    }

    /// Moves the sums into `partial`.
    ///
    /// # Safety
    /// As [`Lanes`].
    #[inline(always)]
    unsafe fn empty(&mut self, partial: &mut Partial) {
        // SAFETY: the caller's.
        unsafe {
            partial.sum += self.sum[0].add(self.sum[1]).sum();
            partial.weighted += self.weighted[0].add(self.weighted[1]).sum();
            self.sum = [L::splat(0.0); 2];
            self.weighted = [L::splat(0.0); 2];
        }
    }
}

/// Adds `row` to `partial`, under `scale` = log2(e) / T; `CHUNK` vectors are held in registers.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn scan<L: Lanes, T: Stored, const CHUNK: usize>(
    row: &[T],
    scale: f32,
    partial: &mut Partial,
) {
    let mut scan = Scan::<L> {
        // SAFETY: the caller's.
        sums: unsafe { Sums::new(scale, partial.top as f32) },
        scale,
        partial,
        vectors: 0,
    };
    let chunks = row.chunks_exact(CHUNK * L::WIDTH);
    let rest = chunks.remainder();
    // SAFETY: each chunk holds CHUNK vectors, each vector of the rest WIDTH elements.
    unsafe {
        for chunk in chunks {
            for line in (0..size_of_val(chunk)).step_by(CACHE_LINE) {
                L::prefetch(chunk.as_ptr().cast::<u8>().wrapping_add(AHEAD + line));
            }
            scan.chunk::<T, CHUNK>(chunk.as_ptr());
        }
        let vectors = rest.chunks_exact(L::WIDTH);
        let tail = vectors.remainder();
        for vector in vectors {
            scan.chunk::<T, 1>(vector.as_ptr());
        }
        if !tail.is_empty() {
            let mut padded = [T::MASKED; super::lanes::MAX_WIDTH];
            padded[..tail.len()].copy_from_slice(tail);
            scan.chunk::<T, 1>(padded.as_ptr());
        }
        scan.sums.empty(scan.partial);
    }
}

/// A scan under way.
struct Scan<'a, L> {
    sums: Sums<L>,
    scale: f32,
    partial: &'a mut Partial,
    vectors: usize,
}

impl<L: Lanes> Scan<'_, L> {
    /// Reads `N` vectors and adds them.
    ///
    /// # Safety
    /// As [`Lanes`]; `from` is valid for `N` vectors.
    #[inline(always)]
    unsafe fn chunk<T: Stored, const N: usize>(&mut self, from: *const T) {
        // SAFETY: the caller's.
        unsafe {
            let mut x = [T::load::<L>(from); N];
            for (i, x) in x.iter_mut().enumerate().skip(1) {
                *x = T::load(from.add(i * L::WIDTH));
            }
            let mut highest = x[0];
            for x in &x[1..] {
                highest = highest.max(*x);
            }
            if highest.any_above(self.known_top()) {
                self.raise(highest);
            }
            for (i, x) in x.into_iter().enumerate() {
                self.sums.push(x, i % 2);
            }
            self.vectors += N;
            if self.vectors >= BLOCK {
                self.sums.empty(self.partial);
                self.vectors = 0;
            }
        }
    }

    /// # Safety
    /// As [`Lanes`].
    #[inline(always)]
    unsafe fn known_top(&self) -> L {
        // SAFETY: the caller's.
        unsafe { L::splat(self.partial.top as f32) }
    }

    /// Moves the top up to the largest lane of `highest`.
    ///
    /// # Safety
    /// As [`Lanes`].
    #[inline(always)]
    unsafe fn raise(&mut self, highest: L) {
        // SAFETY: the caller's.
        unsafe {
            let top = highest.highest();
            self.sums.empty(self.partial);
            self.partial.raise(top.into(), self.scale.into());
            self.sums.top = L::splat(top);
        }
    }
}
