//! Logits of every type, tokens, and the structs of the kernels as bytes (`cuda/abi.cuh`).

use dart_kernels::{
    Clip, Importance, KlEstimate, KlGradient, RatioLevel, Surrogate, Token, TokenLoss, WeightLevel,
};
use half::{bf16, f16};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::driver::Argument;

/// How logits are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    F32,
    Bf16,
    F16,
}

impl Type {
    pub(super) const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// The nearest number of this type.
    pub(super) fn round(self, x: f64) -> f64 {
        match self {
            Self::F32 => f64::from(x as f32),
            Self::Bf16 => bf16::from_f64(x).into(),
            Self::F16 => f16::from_f64(x).into(),
        }
    }

    pub(super) fn encode(self, values: &[f64]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(values.len() * self.bytes());
        for x in values {
            match self {
                Self::F32 => bytes.extend((*x as f32).to_le_bytes()),
                Self::Bf16 => bytes.extend(bf16::from_f64(*x).to_le_bytes()),
                Self::F16 => bytes.extend(f16::from_f64(*x).to_le_bytes()),
            }
        }
        bytes
    }

    pub(super) fn decode(self, bytes: &[u8]) -> Vec<f64> {
        let pairs = || bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
        match self {
            Self::F32 => floats(bytes).into_iter().map(f64::from).collect(),
            Self::Bf16 => pairs().map(|b| bf16::from_le_bytes(b).into()).collect(),
            Self::F16 => pairs().map(|b| f16::from_le_bytes(b).into()).collect(),
        }
    }
}

pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// Rows of logits, with the exact numbers that are stored.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) kind: Type,
    pub(super) count: usize,
    pub(super) vocab: usize,
    pub(super) stride: usize,
    /// Elements by which the first one misses a multiple of 16 bytes.
    pub(super) offset: usize,
    /// `[rows, stride]`; the gaps hold numbers that no kernel may use.
    pub(super) values: Vec<f64>,
    /// Whether the kernels see rows [`FAR_STRIDE`] apart instead.
    far: bool,
}

/// Row 1 begins beyond what 32 bits can count.
const FAR_STRIDE: i64 = (1 << 32) - 100;

/// What stands in the gaps between rows.
pub(super) const GAP: f64 = 1024.0;

impl Rows {
    /// Normal numbers of standard deviation 3, moved by `shift`.
    pub(super) fn random(kind: Type, count: usize, vocab: usize, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let values = (0..count * vocab)
            .map(|_| kind.round(3.0 * normal(&mut random)))
            .collect();
        Self {
            kind,
            count,
            vocab,
            stride: vocab,
            offset: 0,
            values,
            far: false,
        }
    }

    /// Moves every logit.
    pub(super) fn shifted(mut self, shift: f64) -> Self {
        for x in &mut self.values {
            *x = self.kind.round(*x + shift);
        }
        self
    }

    /// The same rows with `gap` elements between them, the first `offset` elements off alignment.
    pub(super) fn placed(self, offset: usize, gap: usize) -> Self {
        let stride = self.vocab + gap;
        let values = (0..self.count).flat_map(|row| {
            let gaps = std::iter::repeat_n(GAP, gap);
            self.row(row).iter().copied().chain(gaps)
        });
        Self {
            values: values.collect(),
            stride,
            offset,
            ..self
        }
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.stride..][..self.vocab]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.stride..][..self.vocab]
    }

    pub(super) fn kernel(&self, name: &str) -> String {
        format!("{name}_{}", self.kind.suffix())
    }

    pub(super) fn argument(&self) -> Argument {
        if self.far {
            return self.far_argument();
        }
        Argument::Buffer {
            bytes: self.kind.encode(&self.values),
            offset: (self.offset * self.kind.bytes()) as u32,
        }
    }

    /// The same rows so far apart that an offset in elements needs more than 32 bits.
    pub(super) fn far_apart(self) -> Self {
        assert!(self.offset == 0 && self.stride == self.vocab);
        Self { far: true, ..self }
    }

    fn far_argument(&self) -> Argument {
        let size = self.kind.bytes() as u64;
        let stretches = (0..self.count).map(|row| {
            let from = row as u64 * FAR_STRIDE as u64 * size;
            (from, self.kind.encode(self.row(row)))
        });
        Argument::Sparse {
            bytes: self.count as u64 * FAR_STRIDE as u64 * size,
            stretches: stretches.collect(),
        }
    }

    /// What the kernels get as stride.
    pub(super) fn stride_bytes(&self) -> [u8; 8] {
        let stride = if self.far {
            FAR_STRIDE
        } else {
            self.stride as i64
        };
        stride.to_le_bytes()
    }

    /// Bytes of one pass over all rows.
    pub(super) fn pass(&self) -> u64 {
        (self.count * self.vocab * self.kind.bytes()) as u64
    }
}

pub(super) fn normal(random: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (random.random::<f64>() * std::f64::consts::TAU).cos()
}

/// Tokens whose numbers are exact in f32. Old, rollout and reference lie within about 0.3 of
/// `log_probs`.
pub(super) fn tokens(log_probs: &[f64], vocab: usize, seed: u64) -> Vec<Token> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let exact = |x: f64| f64::from(x as f32);
    log_probs
        .iter()
        .map(|log_prob| {
            let mut near = || {
                let x = log_prob + 0.3 * normal(&mut random);
                Some(exact(x))
            };
            let (old, rollout, reference) = (near(), near(), near());
            Token {
                target: random.random_range(0..vocab as u32),
                // 1 / T is exact in f32.
                temperature: [1.0, 2.0, 0.5][random.random_range(0..3)],
                weight: f64::from(random.random_range(0.1f32..1.0)),
                advantage: f64::from(random.random_range(-2.0f32..2.0)),
                old,
                rollout,
                reference,
            }
        })
        .collect()
}

/// `Token` of the kernels.
pub(super) fn encode_tokens(tokens: &[Token]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for token in tokens {
        bytes.extend(token.target.to_le_bytes());
        let numbers = [
            1.0 / token.temperature,
            token.weight,
            token.advantage,
            token.old.unwrap_or(f64::NAN),
            token.rollout.unwrap_or(f64::NAN),
            token.reference.unwrap_or(f64::NAN),
        ];
        for number in numbers {
            bytes.extend((number as f32).to_le_bytes());
        }
        let present = u32::from(token.old.is_some())
            | u32::from(token.rollout.is_some()) << 1
            | u32::from(token.reference.is_some()) << 2;
        bytes.extend(present.to_le_bytes());
    }
    bytes
}

/// The number of a surrogate and its nine settings, as they lie in `Loss`.
fn surrogate_words(surrogate: &Surrogate) -> (i32, [f64; 9]) {
    match *surrogate {
        Surrogate::Clipped(Clip {
            low,
            high,
            dual,
            ratio_cap,
        }) => {
            let (dual, cap) = (dual.unwrap_or(0.0), ratio_cap.unwrap_or(0.0));
            (0, [low, high, dual, cap, 0.0, 0.0, 0.0, 0.0, 0.0])
        }
        Surrogate::LogLikelihood => (1, [0.0; 9]),
        Surrogate::Cispo { low, high } => {
            let low = low.unwrap_or(-1.0);
            (2, [low, high, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        }
        Surrogate::Sapo { positive, negative } => {
            (3, [0.0, 0.0, 0.0, 0.0, positive, negative, 0.0, 0.0, 0.0])
        }
        Surrogate::Prime { low, high, penalty } => {
            (4, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, high, low, penalty])
        }
    }
}

/// The number of an importance weight, its level and its bounds.
fn importance_words(importance: &Importance) -> (i32, i32, [f64; 2]) {
    let level_of = |level| match level {
        WeightLevel::Token => 0,
        WeightLevel::SequenceSum => 1,
        WeightLevel::SequenceMean => 2,
    };
    match *importance {
        Importance::Off => (0, 0, [0.0; 2]),
        Importance::Truncated { level, cap } => (1, level_of(level), [0.0, cap]),
        Importance::Masked { level, low, high } => (2, level_of(level), [low, high]),
    }
}

/// `Loss` of the kernels: 20 words.
pub(super) fn encode_loss(loss: &TokenLoss) -> Vec<u8> {
    let (surrogate, settings) = surrogate_words(&loss.surrogate);
    let ratio_level = if loss.ratio == RatioLevel::Token {
        0
    } else {
        2
    };
    let (importance, level, bounds) = importance_words(&loss.importance);
    let estimate = match loss.kl.estimate {
        KlEstimate::K1 => 1,
        KlEstimate::K2 => 2,
        KlEstimate::K3 => 3,
    };
    let own_gradient = loss.kl.gradient == KlGradient::Own;
    let mut words: Vec<[u8; 4]> = Vec::with_capacity(20);
    let integers = |words: &mut Vec<_>, numbers: &[i32]| {
        words.extend(numbers.iter().map(|number| number.to_le_bytes()));
    };
    let floats = |words: &mut Vec<_>, numbers: &[f64]| {
        words.extend(numbers.iter().map(|number| (*number as f32).to_le_bytes()));
    };
    integers(&mut words, &[surrogate, ratio_level]);
    floats(&mut words, &settings);
    integers(&mut words, &[importance, level]);
    floats(&mut words, &[bounds[0], bounds[1], loss.kl.beta]);
    let times_ratio = i32::from(loss.kl.times_ratio);
    integers(
        &mut words,
        &[estimate, i32::from(!own_gradient), times_ratio],
    );
    floats(&mut words, &[loss.entropy_bonus]);
    assert_eq!(words.len(), 20);
    words.concat()
}

/// `RowStats` of the kernels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stats {
    pub(super) log_prob: f64,
    pub(super) entropy: f64,
    pub(super) log_sum_exp: f64,
    pub(super) complement: f64,
    pub(super) status: u32,
}

pub(super) fn decode_stats(bytes: &[u8]) -> Vec<Stats> {
    let rows = bytes.chunks_exact(32);
    rows.map(|row| {
        let number = floats(&row[..24]);
        Stats {
            log_prob: number[0].into(),
            entropy: number[1].into(),
            log_sum_exp: number[2].into(),
            complement: number[3].into(),
            status: u32::from_le_bytes(row[24..28].try_into().unwrap()),
        }
    })
    .collect()
}

/// `Outcome` of the kernels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) loss: f64,
    pub(super) surrogate: f64,
    pub(super) importance: f64,
    pub(super) kl: f64,
    pub(super) by_log_prob: f64,
    pub(super) by_entropy: f64,
    pub(super) clip: u32,
    pub(super) log_ratio: f64,
}

pub(super) fn decode_outcomes(bytes: &[u8]) -> Vec<Outcome> {
    let rows = bytes.chunks_exact(32);
    rows.map(|row| {
        let number = floats(row);
        Outcome {
            loss: number[0].into(),
            surrogate: number[1].into(),
            importance: number[2].into(),
            kl: number[3].into(),
            by_log_prob: number[4].into(),
            by_entropy: number[5].into(),
            clip: u32::from_le_bytes(row[24..28].try_into().unwrap()),
            log_ratio: number[7].into(),
        }
    })
    .collect()
}
