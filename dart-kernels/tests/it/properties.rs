//! Properties of the loss over many tokens, and of its tensor operation.

use candle_core::{Device, Tensor, Var};
use dart_kernels::{
    Error, Token, TokenLoss, effective_sample_size, log_prob_entropy, rl_loss, rl_loss_rows,
};
use proptest::prelude::*;

const VOCAB: usize = 6;

fn loss() -> TokenLoss {
    TokenLoss {
        entropy_bonus: 0.03,
        ..TokenLoss::PAPER
    }
}

prop_compose! {
    fn token()(
        target in 0..VOCAB as u32, temperature in 0.5f64..2.0, weight in 0.01f64..1.0,
        advantage in -3.0f64..3.0, offsets in prop::array::uniform3(-0.5f64..0.5),
    ) -> Token {
        let near = |offset: f64| Some(-1.8 + offset);
        Token {
            target, temperature, weight, advantage,
            old: near(offsets[0]), rollout: near(offsets[1]), reference: near(offsets[2]),
        }
    }
}

fn tokens_and_logits() -> impl Strategy<Value = (Vec<Token>, Vec<f64>)> {
    prop::collection::vec((token(), prop::collection::vec(-3.0f64..3.0, VOCAB)), 1..9).prop_map(
        |rows| {
            let (tokens, logits): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
            (tokens, logits.concat())
        },
    )
}

proptest! {
    #[test]
    fn gradient_is_the_finite_difference((mut tokens, logits) in tokens_and_logits(), own in any::<bool>()) {
        if own {
            // The detached old log-prob must not leak into the gradient: fix it by hand.
            tokens[0].rollout = None;
        }
        let result = rl_loss_rows(&logits, &tokens, &loss()).unwrap();
        for (j, gradient) in result.gradient.iter().enumerate() {
            let at = |step: f64| {
                let mut moved = logits.clone();
                moved[j] += step;
                rl_loss_rows(&moved, &tokens, &loss()).unwrap().loss
            };
            let (above, below, here) = (at(1e-6), at(-1e-6), result.loss);
            let (right, left) = ((above - here) / 1e-6, (here - below) / 1e-6);
            // At a kink of the clipping either side is right.
            let near = |slope: f64| (slope - gradient).abs() < 1e-4;
            prop_assert!(near(right) || near(left), "{} {} {}", left, right, gradient);
        }
        for row in result.gradient.chunks(VOCAB) {
            prop_assert!(row.iter().sum::<f64>().abs() < 1e-12);
        }
    }

    #[test]
    fn a_split_changes_nothing((tokens, logits) in tokens_and_logits(), cut in 0usize..9) {
        let cut = cut.min(tokens.len());
        let whole = rl_loss_rows(&logits, &tokens, &loss()).unwrap();
        let part = |logits: &[f64], tokens: &[Token]| rl_loss_rows(logits, tokens, &loss()).unwrap();
        let first = part(&logits[..cut * VOCAB], &tokens[..cut]);
        let second = part(&logits[cut * VOCAB..], &tokens[cut..]);
        prop_assert!((first.loss + second.loss - whole.loss).abs() < 1e-12);
        prop_assert_eq!([first.gradient, second.gradient].concat(), whole.gradient);
    }

    #[test]
    fn the_order_of_tokens_only_moves_rows((tokens, logits) in tokens_and_logits()) {
        let whole = rl_loss_rows(&logits, &tokens, &loss()).unwrap();
        let reversed_tokens: Vec<_> = tokens.iter().rev().copied().collect();
        let reversed_logits: Vec<_> = logits.chunks(VOCAB).rev().flatten().copied().collect();
        let reversed = rl_loss_rows(&reversed_logits, &reversed_tokens, &loss()).unwrap();
        let back: Vec<_> = reversed.gradient.chunks(VOCAB).rev().flatten().copied().collect();
        prop_assert_eq!(back, whole.gradient);
    }
}

fn plain(target: u32) -> Token {
    Token {
        target,
        temperature: 1.0,
        weight: 1.0,
        advantage: 1.0,
        old: None,
        rollout: Some(-0.7),
        reference: None,
    }
}

#[test]
fn without_an_old_log_prob_the_ratio_is_one_and_keeps_its_slope() {
    let logits = [0.3, -0.2, 0.9];
    let implicit = rl_loss_rows(&logits, &[plain(1)], &TokenLoss::PAPER).unwrap();
    let now = implicit.outcomes[0].log_prob;
    let explicit = Token {
        old: Some(now),
        ..plain(1)
    };
    let explicit = rl_loss_rows(&logits, &[explicit], &TokenLoss::PAPER).unwrap();
    assert_eq!(implicit, explicit);
    assert!((implicit.outcomes[0].importance - (now + 0.7).exp().min(1.0)).abs() < 1e-15);
}

#[test]
fn broken_rows_have_no_gradient_and_no_finite_loss() {
    let inf = f64::NEG_INFINITY;
    for row in [[inf, inf, inf], [0.0, f64::NAN, 0.0], [inf, 1.0, 2.0]] {
        let result = rl_loss_rows(&row, &[plain(0)], &TokenLoss::PAPER).unwrap();
        assert_eq!((result.bad_rows, result.gradient), (1, vec![0.0; 3]));
        assert!(!result.loss.is_finite());
    }
    let outside = rl_loss_rows(&[0.0; 3], &[plain(3)], &TokenLoss::PAPER).unwrap();
    assert_eq!(outside.bad_rows, 1);
    let unread = Token {
        weight: 0.0,
        ..plain(0)
    };
    let unread = rl_loss_rows(&[f64::NAN; 3], &[unread], &TokenLoss::PAPER).unwrap();
    assert_eq!((unread.loss, unread.bad_rows), (0.0, 0));
    let empty = rl_loss_rows::<f32>(&[], &[], &TokenLoss::PAPER).unwrap();
    assert_eq!(empty.loss, 0.0);
}

#[test]
fn wrong_shapes_and_temperatures_are_errors() {
    let error = rl_loss_rows(&[0.0; 5], &[plain(0), plain(0)], &TokenLoss::PAPER).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let token = Token {
            temperature,
            ..plain(0)
        };
        let error = rl_loss_rows(&[0.0; 3], &[token], &TokenLoss::PAPER).unwrap_err();
        assert!(matches!(error, Error::Temperature(_)), "{error}");
    }
}

#[test]
fn the_tensor_operation_agrees_and_scales_its_gradient() {
    let tokens = [plain(2), plain(0)];
    let numbers = [0.1f32, -0.4, 0.7, 1.1, -2.0, 0.3];
    let direct = rl_loss_rows(&numbers, &tokens, &loss()).unwrap();
    let logits = Var::from_tensor(&Tensor::new(&numbers, &Device::Cpu).unwrap()).unwrap();
    // A narrowed, transposed view: offsets and strides must be honoured.
    let padded = Tensor::cat(&[logits.as_tensor(), logits.as_tensor()], 0).unwrap();
    let view = padded.narrow(0, 6, 6).unwrap().reshape((2, 3)).unwrap();
    let output = rl_loss(&view, &tokens, &loss()).unwrap();
    assert_eq!(output.value, direct.loss);
    let store = (output.loss * 3.0).unwrap().backward().unwrap();
    let gradient = store.get(&logits).unwrap().to_vec1::<f32>().unwrap();
    for (got, expected) in gradient.iter().zip(&direct.gradient) {
        assert!((got - 3.0 * expected).abs() < 1e-6, "{got} {expected}");
    }
    let transposed = view.t().unwrap().contiguous().unwrap();
    let stats = log_prob_entropy(&transposed.t().unwrap(), &[(2, 1.0), (0, 1.0)]).unwrap();
    for (stats, outcome) in stats.iter().zip(&direct.outcomes) {
        assert_eq!(
            (stats.log_prob, stats.entropy),
            (outcome.log_prob, outcome.entropy)
        );
    }
}

#[test]
fn effective_sample_size_counts() {
    assert_eq!(effective_sample_size(&[0.5; 7]), 1.0);
    assert_eq!(effective_sample_size(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    assert!(effective_sample_size(&[]).is_nan());
}
