//! The fused layer against the unchunked path and against an oracle in f64.

use dart_kernels::{
    Cpu, Error, FusedLinear, FusedLoss, Head, Importance, Kl, Labels, LogitsMut, Objective,
    RatioLevel, Sequences, Temperature, Token, TokenLoss, WeightLevel, fused_linear,
    fused_linear_log_prob_entropy, rl_loss_in_place,
};

use crate::support::{assert_close, token};

/// A layer and its tokens. More rows and logits than one block of a product.
struct Case {
    hidden: Vec<f32>,
    weight: Vec<f32>,
    tokens: Vec<Token>,
    sequences: Sequences,
    sizes: [usize; 3],
}

/// Numbers in −1 to 1 from a counter.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    (0..count as u32)
        .map(|index| {
            let mut x = index.wrapping_mul(0x9e37_79b9) ^ seed.wrapping_mul(0x85eb_ca6b);
            x = (x ^ (x >> 15)).wrapping_mul(0x2c1b_3c6d);
            x = (x ^ (x >> 12)).wrapping_mul(0x297a_2d39);
            f32::from_bits((x >> 9) | 0x3f80_0000) * 2.0 - 3.0
        })
        .collect()
}

impl Case {
    fn new([rows, width, vocab]: [usize; 3]) -> Self {
        let number = |index: usize, seed| f64::from(numbers(index + 1, seed)[index]);
        let tokens = (0..rows).map(|row| {
            let near = |seed| Some(-(vocab as f64).ln() + 0.4 * number(row, seed));
            let weight = if row % 5 == 3 {
                0.0
            } else {
                0.5 + 0.01 * row as f64
            };
            Token {
                target: (row * 37 % vocab) as u32,
                temperature: 0.8 + 0.1 * (row % 4) as f64,
                old: near(3),
                rollout: near(4),
                reference: near(5),
                ..token(weight, number(row, 6))
            }
        });
        Self {
            hidden: numbers(rows * width, 1),
            weight: numbers(vocab * width, 2),
            tokens: tokens.collect(),
            sequences: Sequences::from_lengths(&[rows / 3, 0, rows - rows / 3]),
            sizes: [rows, width, vocab],
        }
    }

    fn head(&self) -> Head<'_> {
        let [rows, width, vocab] = self.sizes;
        Head {
            hidden: &self.hidden,
            weight: &self.weight,
            rows,
            width,
            vocab,
        }
    }

    fn run(&self, layer: FusedLinear, loss: TokenLoss) -> (FusedLoss, Vec<f32>) {
        let objective = Objective {
            tokens: &self.tokens,
            sequences: &self.sequences,
            loss,
        };
        // What is there already is added to.
        let mut by_weight = vec![0.25; self.weight.len()];
        let result = layer
            .rl_loss(&self.head(), &objective, &mut by_weight)
            .unwrap();
        for by in &mut by_weight {
            *by -= 0.25;
        }
        (result, by_weight)
    }

    fn logits(&self) -> Vec<f64> {
        let [_, width, _] = self.sizes;
        let mut logits = Vec::new();
        for hidden in self.hidden.chunks(width) {
            for weight in self.weight.chunks(width) {
                let products = hidden.iter().zip(weight);
                logits.push(products.map(|(h, w)| f64::from(*h) * f64::from(*w)).sum());
            }
        }
        logits
    }

    /// Loss, ∂hidden and ∂weight in f64.
    fn oracle(&self, loss: &TokenLoss) -> (f64, Vec<f64>, Vec<f64>) {
        let [rows, width, vocab] = self.sizes;
        let mut logits = self.logits();
        let view = LogitsMut::new(&mut logits, rows, vocab).unwrap();
        let result = rl_loss_in_place(view, &self.tokens, &self.sequences, loss).unwrap();
        let mut by_hidden = vec![0.0; rows * width];
        let mut by_weight = vec![0.0; vocab * width];
        for row in 0..rows {
            for entry in 0..vocab {
                let by = logits[row * vocab + entry];
                for k in 0..width {
                    by_hidden[row * width + k] += by * f64::from(self.weight[entry * width + k]);
                    by_weight[entry * width + k] += by * f64::from(self.hidden[row * width + k]);
                }
            }
        }
        (result.loss, by_hidden, by_weight)
    }
}

fn losses() -> [TokenLoss; 3] {
    let token_level = TokenLoss {
        entropy_bonus: 0.05,
        ..TokenLoss::PAPER
    };
    let sequence_level = TokenLoss {
        ratio: RatioLevel::Sequence,
        kl: Kl {
            times_ratio: true,
            ..Kl::k3(0.1)
        },
        ..token_level
    };
    let weighted = TokenLoss {
        importance: Importance::Truncated {
            level: WeightLevel::SequenceMean,
            cap: 1.1,
        },
        ..token_level
    };
    [token_level, sequence_level, weighted]
}

/// ‖got − expected‖ / ‖expected‖.
fn distance(got: &[f32], expected: &[f64]) -> f64 {
    let pairs = got.iter().zip(expected);
    let error: f64 = pairs.map(|(g, e)| (f64::from(*g) - e).powi(2)).sum();
    let size: f64 = expected.iter().map(|e| e * e).sum();
    (error / size).sqrt()
}

#[test]
fn gradients_are_those_of_the_oracle() {
    let case = Case::new([150, 24, 1100]);
    for loss in losses() {
        let (expected, by_hidden, by_weight) = case.oracle(&loss);
        for chunk in [1, 7, 64, 100, 1000] {
            let layer = FusedLinear::default().with_chunk_rows(chunk);
            let (result, weight) = case.run(layer, loss);
            assert_eq!(result.loss.bad_rows, 0);
            assert_close(result.loss.loss, expected, 1e-6, "loss");
            let distances = (
                distance(&result.by_hidden, &by_hidden),
                distance(&weight, &by_weight),
            );
            assert!(distances.0 < 2e-6 && distances.1 < 5e-6, "{distances:?}");
        }
    }
}

#[test]
fn a_chunk_of_everything_is_the_unchunked_path() {
    let case = Case::new([150, 24, 1100]);
    let [rows, _, vocab] = case.sizes;
    for loss in losses() {
        let mut logits: Vec<f32> = case.logits().iter().map(|l| *l as f32).collect();
        let view = LogitsMut::new(&mut logits, rows, vocab).unwrap();
        let expected = rl_loss_in_place(view, &case.tokens, &case.sequences, &loss).unwrap();
        for chunk in [13, 1000] {
            let (result, _) = case.run(FusedLinear::default().with_chunk_rows(chunk), loss);
            assert_close(result.loss.loss, expected.loss, 1e-6, "loss");
            for (got, expected) in result.loss.outcomes.iter().zip(&expected.outcomes) {
                assert_close(got.log_prob, expected.log_prob, 4e-6, "log-prob");
                assert_close(got.entropy, expected.entropy, 4e-6, "entropy");
                assert_close(got.by_log_prob, expected.by_log_prob, 1e-5, "slope");
                assert_eq!(got.clip, expected.clip);
            }
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let case = Case::new([150, 24, 1100]);
    for loss in losses() {
        let alone = case.run(FusedLinear::new(Cpu::new().single_threaded()), loss);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(3)
            .build()
            .unwrap();
        let together = pool.install(|| case.run(FusedLinear::default(), loss));
        assert_eq!(alone, together);
    }
}

#[test]
fn rows_that_are_not_read_may_hold_anything() {
    let mut case = Case::new([20, 8, 50]);
    let (expected, weight) = case.run(FusedLinear::default(), TokenLoss::PAPER);
    for (row, token) in case.tokens.iter().enumerate() {
        if token.weight == 0.0 {
            case.hidden[row * 8..(row + 1) * 8].fill(f32::NAN);
        }
    }
    let (got, got_weight) = case.run(FusedLinear::default(), TokenLoss::PAPER);
    assert_eq!((got, got_weight), (expected, weight));
}

#[test]
fn bad_rows_leave_the_other_gradients_alone() {
    let case = Case::new([20, 8, 50]);
    let mut broken = Case::new([20, 8, 50]);
    broken.hidden[5 * 8] = f32::NAN;
    broken.tokens[7].target = 50;
    let (result, weight) = broken.run(FusedLinear::default(), TokenLoss::PAPER);
    assert_eq!(result.loss.bad_rows, 2);
    assert!(result.loss.loss.is_nan());
    assert_eq!(result.by_hidden[5 * 8..6 * 8], [0.0; 8]);
    assert_eq!(result.by_hidden[7 * 8..8 * 8], [0.0; 8]);
    let mut without = case;
    without.tokens[5].weight = 0.0;
    without.tokens[7].weight = 0.0;
    let (expected, expected_weight) = without.run(FusedLinear::default(), TokenLoss::PAPER);
    assert_eq!(result.by_hidden, expected.by_hidden);
    let near = |(got, expected): (&f32, &f32)| (got - expected).abs() < 1e-5;
    assert!(weight.iter().zip(&expected_weight).all(near));
}

#[test]
fn log_probs_and_entropies_alone() {
    let case = Case::new([150, 24, 1100]);
    let targets: Vec<u32> = case.tokens.iter().map(|token| token.target).collect();
    let temperatures: Vec<f64> = case.tokens.iter().map(|token| token.temperature).collect();
    let labels = Labels {
        temperature: Temperature::PerRow(&temperatures),
        ignore: Some(targets[2]),
        ..Labels::new(&targets)
    };
    let stats = fused_linear_log_prob_entropy(&case.head(), &labels).unwrap();
    let small = FusedLinear::default().with_chunk_rows(11);
    let chunked = small.log_prob_entropy(&case.head(), &labels).unwrap();
    for (row, logits) in case.logits().chunks(1100).enumerate() {
        if row == 2 {
            assert_eq!((stats[row].log_prob, stats[row].entropy), (0.0, 0.0));
            continue;
        }
        let expected = dart_kernels::row_stats(logits, targets[row] as usize, temperatures[row]);
        for got in [stats[row], chunked[row]] {
            assert_close(got.log_prob, expected.log_prob, 4e-6, "log-prob");
            assert_close(got.entropy, expected.entropy, 4e-6, "entropy");
        }
    }
}

#[test]
fn no_rows_give_nothing() {
    let case = Case::new([0, 8, 50]);
    let (result, weight) = case.run(FusedLinear::default(), TokenLoss::PAPER);
    assert_eq!((result.loss.loss, result.loss.bad_rows), (0.0, 0));
    assert!(result.by_hidden.is_empty() && weight.iter().all(|by| *by == 0.0));
    let none = fused_linear_log_prob_entropy(&case.head(), &Labels::new(&[])).unwrap();
    assert!(none.is_empty());
    let mut unread = Case::new([3, 8, 50]);
    unread
        .tokens
        .iter_mut()
        .for_each(|token| token.weight = 0.0);
    let (result, weight) = unread.run(FusedLinear::default(), losses()[1]);
    assert_eq!((result.loss.loss, result.by_hidden), (0.0, vec![0.0; 24]));
    assert!(weight.iter().all(|by| *by == 0.0));
}

#[test]
fn wrong_shapes_are_errors_and_write_nothing() {
    let case = Case::new([4, 8, 50]);
    let mut by_weight = vec![1.0; 400];
    let objective = Objective {
        tokens: &case.tokens,
        sequences: &case.sequences,
        loss: TokenLoss::PAPER,
    };
    let good = case.head();
    let heads = [
        Head { rows: 5, ..good },
        Head { width: 9, ..good },
        Head { vocab: 51, ..good },
        Head {
            rows: usize::MAX,
            ..good
        },
        Head {
            hidden: &[],
            weight: &[],
            width: 0,
            ..good
        },
    ];
    for head in heads {
        let error = fused_linear(&head, &objective, &mut by_weight).unwrap_err();
        assert!(matches!(error, Error::Matrix { .. }), "{error}");
        assert!(fused_linear_log_prob_entropy(&head, &Labels::new(&[0; 4])).is_err());
    }
    let error = fused_linear(&good, &objective, &mut by_weight[1..]).unwrap_err();
    assert!(matches!(error, Error::Matrix { .. }), "{error}");
    let fewer = Objective {
        tokens: &case.tokens[..3],
        ..objective
    };
    let error = fused_linear(&good, &fewer, &mut by_weight).unwrap_err();
    assert!(matches!(error, Error::Length { .. }), "{error}");
    let other = Sequences::single_tokens(3);
    let other = Objective {
        sequences: &other,
        ..objective
    };
    let error = fused_linear(&good, &other, &mut by_weight).unwrap_err();
    assert!(matches!(error, Error::Sequences(_)), "{error}");
    let mut cold = case.tokens.clone();
    cold[3].temperature = 0.0;
    let cold = Objective {
        tokens: &cold,
        ..objective
    };
    let error = fused_linear(&good, &cold, &mut by_weight).unwrap_err();
    assert!(matches!(error, Error::Temperature(_)), "{error}");
    assert_eq!(by_weight, vec![1.0; 400]);
}
