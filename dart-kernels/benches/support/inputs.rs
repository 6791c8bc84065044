//! Inputs that Rust and Python make alike, without files: numbers that are a hash of their index.

use dart_kernels::{Element, Token, TokenLoss};

/// Bytes that caches cannot hold: inputs rotate over buffers of at least this size together.
const BEYOND_CACHES: usize = 160 << 20;

/// A shape and the seed of its numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) rows: usize,
    pub(crate) vocab: usize,
}

impl Case {
    pub(crate) const ALL: [Self; 4] = [
        Self::new(512, 32_768),
        Self::new(64, 152_064),
        Self::new(8, 152_064),
        Self::new(4096, 1024),
    ];

    pub(crate) const fn new(rows: usize, vocab: usize) -> Self {
        Self { rows, vocab }
    }

    pub(crate) fn elements(self) -> usize {
        self.rows * self.vocab
    }

    pub(crate) fn name(self) -> String {
        format!("{}x{}", self.rows, self.vocab)
    }

    /// Logits of standard deviation 3.
    pub(crate) fn logits<T: Element>(self, seed: u32) -> Vec<T> {
        let numbers = 0..self.elements() as u32;
        numbers
            .map(|i| T::from_f64(f64::from(normal(seed, i))))
            .collect()
    }

    /// Logits of several seeds, more than caches hold.
    pub(crate) fn rotation<T: Element>(self) -> Vec<Vec<T>> {
        let bytes = self.elements() * size_of::<T>();
        let count = BEYOND_CACHES.div_ceil(bytes).clamp(2, 32);
        (0..count as u32).map(|seed| self.logits(seed)).collect()
    }

    pub(crate) fn targets(self) -> Vec<u32> {
        let vocab = self.vocab as u32;
        (0..self.rows as u32)
            .map(|row| hash(0xffff, row) % vocab)
            .collect()
    }

    /// A token for each row, near the policy that drew it.
    pub(crate) fn tokens(self) -> Vec<Token> {
        let targets = self.targets().into_iter().enumerate();
        let token = |(row, target): (usize, u32)| {
            let near = |seed| Some(-10.0 + f64::from(normal(seed, row as u32)) / 10.0);
            Token {
                target,
                temperature: 1.0,
                weight: 1.0 / self.rows as f64,
                advantage: if row % 2 == 0 { 1.0 } else { -1.0 },
                old: near(1 << 16),
                rollout: near(2 << 16),
                reference: near(3 << 16),
            }
        };
        targets.map(token).collect()
    }
}

/// The paper's loss with an entropy bonus, so that every part of the gradient is computed.
pub(crate) fn loss() -> TokenLoss {
    TokenLoss {
        entropy_bonus: 0.01,
        ..TokenLoss::PAPER
    }
}

/// The mixer of MurmurHash3 on 32 bits.
fn mix(mut h: u32) -> u32 {
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// A hash of `index` in stream `seed`.
pub(crate) fn hash(seed: u32, index: u32) -> u32 {
    mix(index ^ mix(seed.wrapping_add(0x9e37_79b9)))
}

/// Nearly normal with deviation 3: four halves of two hashes, an exact sum, one rounded product.
pub(crate) fn normal(seed: u32, index: u32) -> f32 {
    let first = hash(seed, index);
    let second = mix(first ^ 0x5851_f42d);
    let halves = [first & 0xffff, first >> 16, second & 0xffff, second >> 16];
    let sum: u32 = halves.iter().sum();
    (sum as f32 - 131_070.0) * 7.928e-5
}
