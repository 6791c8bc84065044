//! Inputs that Rust and Python make bit for bit the same, without files: a hash of a counter.
//!
//! `peers/gpu_peers.py` has the same formulas.

use dart_kernels::{Element, Token};

/// The mixing function of splitmix64.
pub(crate) fn hash(stream: u64, counter: u64) -> u64 {
    let mut x = counter
        .wrapping_add(stream.wrapping_mul(0xd134_2543_de82_ef95))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Nearly normal with standard deviation 3: the sum of four 16-bit numbers, one rounding.
pub(crate) fn normal(stream: u64, counter: u64) -> f32 {
    let bits = hash(stream, counter);
    let parts = (0..4).map(|i| (bits >> (16 * i)) & 0xffff);
    let sum = parts.sum::<u64>() as i64 - 131_070;
    sum as f32 * 7.928_8e-5
}

/// Bits of a few numbers, by which Python sees that its inputs are the same.
pub(crate) fn sample() -> Vec<i32> {
    let numbers = (0..16).map(|i| normal(3, 997 * i));
    numbers.map(|x| x.to_bits().cast_signed()).collect()
}

/// Uniform in [0, 1).
pub(crate) fn uniform(stream: u64, counter: u64) -> f64 {
    (hash(stream, counter) >> 11) as f64 * 2f64.powi(-53)
}

/// `count` logits from the counter `from` on.
pub(crate) fn logits<T: Element>(stream: u64, from: usize, count: usize) -> Vec<T> {
    let numbers = from as u64..(from + count) as u64;
    numbers
        .map(|counter| T::from_f64(normal(stream, counter).into()))
        .collect()
}

/// A target inside the vocabulary.
pub(crate) fn target(stream: u64, row: usize, vocab: usize) -> u32 {
    (hash(stream, row as u64) % vocab as u64) as u32
}

/// Tokens whose other log-probabilities are near `current`, with every kind of gap among them.
pub(crate) fn tokens(stream: u64, vocab: usize, current: &[f64]) -> Vec<Token> {
    let number = |kind: u64, row: usize| uniform(stream + kind, row as u64);
    let tokens = current.iter().enumerate().map(|(row, log_prob)| {
        let near = |kind| log_prob + 0.6 * (number(kind, row) - 0.5);
        Token {
            target: target(stream, row, vocab),
            temperature: if row % 5 == 4 { 0.7 } else { 1.0 },
            weight: if row % 7 == 6 {
                0.0
            } else {
                0.01 + 0.1 * number(1, row)
            },
            advantage: 4.0 * number(2, row) - 2.0,
            old: (row % 11 != 10).then(|| near(3)),
            rollout: (row % 4 != 3).then(|| near(4)),
            reference: (row % 6 != 5).then(|| near(5)),
        }
    });
    tokens.collect()
}
