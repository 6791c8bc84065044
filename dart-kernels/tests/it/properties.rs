//! Properties of the loss over many tokens, and of its tensor operations.

use candle_core::{DType, Device, Tensor, Var};
use dart_kernels::{
    Error, Labels, LogitsMut, RlLoss, Sequences, Token, TokenLoss, candle_op,
    effective_sample_size, rl_loss_in_place,
};
use proptest::prelude::*;

const VOCAB: usize = 6;

fn loss() -> TokenLoss {
    TokenLoss {
        entropy_bonus: 0.03,
        ..TokenLoss::PAPER
    }
}

/// The loss with the gradient that has replaced the logits.
fn with_gradient(
    logits: &[f64],
    tokens: &[Token],
    loss: &TokenLoss,
) -> Result<(RlLoss, Vec<f64>), Error> {
    let mut data = logits.to_vec();
    let rows = LogitsMut::new(&mut data, tokens.len(), logits.len() / tokens.len().max(1))?;
    let sequences = Sequences::single_tokens(tokens.len());
    Ok((rl_loss_in_place(rows, tokens, &sequences, loss)?, data))
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
        let (result, gradients) = with_gradient(&logits, &tokens, &loss()).unwrap();
        for (j, gradient) in gradients.iter().enumerate() {
            let at = |step: f64| {
                let mut moved = logits.clone();
                moved[j] += step;
                with_gradient(&moved, &tokens, &loss()).unwrap().0.loss
            };
            let (above, below, here) = (at(1e-6), at(-1e-6), result.loss);
            let (right, left) = ((above - here) / 1e-6, (here - below) / 1e-6);
            // At a kink of the clipping either side is right.
            let near = |slope: f64| (slope - gradient).abs() < 1e-4;
            prop_assert!(near(right) || near(left), "{} {} {}", left, right, gradient);
        }
        for row in gradients.chunks(VOCAB) {
            prop_assert!(row.iter().sum::<f64>().abs() < 1e-12);
        }
    }

    #[test]
    fn a_split_changes_nothing((tokens, logits) in tokens_and_logits(), cut in 0usize..9) {
        let cut = cut.min(tokens.len());
        let part = |logits: &[f64], tokens: &[Token]| with_gradient(logits, tokens, &loss()).unwrap();
        let (whole, gradient) = part(&logits, &tokens);
        let (first, first_gradient) = part(&logits[..cut * VOCAB], &tokens[..cut]);
        let (second, second_gradient) = part(&logits[cut * VOCAB..], &tokens[cut..]);
        prop_assert!((first.loss + second.loss - whole.loss).abs() < 1e-12);
        prop_assert_eq!([first_gradient, second_gradient].concat(), gradient);
    }

    #[test]
    fn the_order_of_tokens_only_moves_rows((tokens, logits) in tokens_and_logits()) {
        let (_, gradient) = with_gradient(&logits, &tokens, &loss()).unwrap();
        let reversed_tokens: Vec<_> = tokens.iter().rev().copied().collect();
        let reversed_logits: Vec<_> = logits.chunks(VOCAB).rev().flatten().copied().collect();
        let (_, reversed) = with_gradient(&reversed_logits, &reversed_tokens, &loss()).unwrap();
        let back: Vec<_> = reversed.chunks(VOCAB).rev().flatten().copied().collect();
        prop_assert_eq!(back, gradient);
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
    let implicit = with_gradient(&logits, &[plain(1)], &TokenLoss::PAPER).unwrap();
    let now = implicit.0.outcomes[0].log_prob;
    let explicit = Token {
        old: Some(now),
        ..plain(1)
    };
    let explicit = with_gradient(&logits, &[explicit], &TokenLoss::PAPER).unwrap();
    assert_eq!(implicit, explicit);
    assert!((implicit.0.outcomes[0].importance - (now + 0.7).exp().min(1.0)).abs() < 1e-15);
}

#[test]
fn broken_rows_have_no_gradient_and_no_finite_loss() {
    let inf = f64::NEG_INFINITY;
    let run = |row: &[f64], token| with_gradient(row, &[token], &TokenLoss::PAPER).unwrap();
    for row in [
        [inf, inf, inf],
        [0.0, f64::NAN, 0.0],
        [inf, 1.0, 2.0],
        [0.0, -inf, 0.0],
    ] {
        let (result, gradient) = run(&row, plain(0));
        assert_eq!((result.bad_rows, gradient), (1, vec![0.0; 3]));
        assert!(result.loss.is_nan());
    }
    assert_eq!(run(&[0.0; 3], plain(3)).0.bad_rows, 1);
    let unread = Token {
        weight: 0.0,
        ..plain(0)
    };
    let (result, gradient) = run(&[f64::NAN; 3], unread);
    assert_eq!(
        (result.loss, result.bad_rows, gradient),
        (0.0, 0, vec![0.0; 3])
    );
    let (empty, _) = with_gradient(&[], &[], &TokenLoss::PAPER).unwrap();
    assert_eq!(empty.loss, 0.0);
}

#[test]
fn wrong_shapes_and_temperatures_are_errors() {
    let error = LogitsMut::new(&mut [0.0; 5], 2, 3).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    let single = Sequences::single_tokens(1);
    let mut data = [7.0; 3];
    let mut run = |tokens: &[Token], sequences: &Sequences| {
        let rows = LogitsMut::new(&mut data, 1, 3).unwrap();
        let error = rl_loss_in_place(rows, tokens, sequences, &TokenLoss::PAPER).unwrap_err();
        assert_eq!(data, [7.0; 3], "nothing is written");
        error
    };
    for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let token = Token {
            temperature,
            ..plain(0)
        };
        assert!(matches!(run(&[token], &single), Error::Temperature(_)));
    }
    assert!(matches!(
        run(&[], &Sequences::single_tokens(0)),
        Error::Length { .. }
    ));
    assert!(matches!(
        run(&[plain(0)], &Sequences::single_tokens(2)),
        Error::Sequences(_)
    ));
}

#[test]
fn the_tensor_operation_agrees_and_scales_its_gradient() {
    let tokens = [plain(2), plain(0)];
    let sequences = Sequences::single_tokens(2);
    let numbers = [0.1f64, -0.4, 0.7, 1.1, -2.0, 0.3];
    let (direct, direct_gradient) = with_gradient(&numbers, &tokens, &loss()).unwrap();
    let logits = Var::from_tensor(&Tensor::new(&numbers, &Device::Cpu).unwrap()).unwrap();
    // A narrowed view: offsets must be honoured.
    let padded = Tensor::cat(&[logits.as_tensor(), logits.as_tensor()], 0).unwrap();
    let view = padded.narrow(0, 6, 6).unwrap().reshape((2, 3)).unwrap();
    let output = candle_op::rl_loss(&view, &tokens, &sequences, &loss()).unwrap();
    assert_eq!(output.value, direct.loss);
    let store = (output.loss * 3.0).unwrap().backward().unwrap();
    let gradient = store.get(&logits).unwrap().to_vec1::<f64>().unwrap();
    for (got, expected) in gradient.iter().zip(&direct_gradient) {
        assert!((got - 3.0 * expected).abs() < 1e-14, "{got} {expected}");
    }
    let transposed = view.t().unwrap().contiguous().unwrap();
    let stats = candle_op::row_stats(&transposed.t().unwrap(), &Labels::new(&[2, 0])).unwrap();
    for (stats, outcome) in stats.iter().zip(&direct.outcomes) {
        assert_eq!(
            (stats.log_prob, stats.entropy),
            (outcome.log_prob, outcome.entropy)
        );
    }
    // In place, inside a larger tensor, which keeps its other half.
    candle_op::rl_loss_in_place(&view, &tokens, &sequences, &loss()).unwrap();
    assert_eq!(
        view.flatten_all().unwrap().to_vec1::<f64>().unwrap(),
        direct_gradient
    );
    assert_eq!(
        padded.narrow(0, 0, 6).unwrap().to_vec1::<f64>().unwrap(),
        numbers
    );
}

#[test]
fn tensors_that_have_no_kernel_are_refused() {
    let integers = Tensor::zeros((1, 3), DType::U32, &Device::Cpu).unwrap();
    let sequences = Sequences::single_tokens(1);
    let in_place =
        |logits: &Tensor| candle_op::rl_loss_in_place(logits, &[plain(0)], &sequences, &loss());
    assert!(matches!(in_place(&integers), Err(Error::Unsupported(_))));
    assert!(matches!(
        candle_op::row_stats(&integers, &Labels::new(&[0])),
        Err(Error::Unsupported(_))
    ));
    assert!(matches!(
        candle_op::log_prob_entropy(&integers, &[0], 1.0),
        Err(Error::Unsupported(_))
    ));
    let columns = Tensor::zeros((3, 1), DType::F32, &Device::Cpu).unwrap();
    let strided = Tensor::cat(&[&columns, &columns], 1)
        .unwrap()
        .narrow(1, 0, 1)
        .unwrap();
    let strided = strided.t().unwrap();
    assert!(matches!(in_place(&strided), Err(Error::Unsupported(_))));
}

#[test]
fn the_differentiable_rows_agree_with_plain_candle() {
    use candle_core::D;
    let numbers = [0.1f64, -0.4, 0.7, 1.1, -2.0, 0.3];
    let rows = Tensor::new(&numbers, &Device::Cpu)
        .unwrap()
        .reshape((2, 3))
        .unwrap();
    let logits = Var::from_tensor(&rows).unwrap();
    let ours = candle_op::log_prob_entropy(&logits, &[2, 0], 0.7).unwrap();
    let scaled = (logits.as_tensor() / 0.7).unwrap();
    let log_sum = scaled.log_sum_exp(D::Minus1).unwrap().unsqueeze(1).unwrap();
    let log_p = scaled.broadcast_sub(&log_sum).unwrap();
    let targets = Tensor::new(&[[2u32], [0]], &Device::Cpu).unwrap();
    let log_prob = log_p.gather(&targets, 1).unwrap();
    let entropy = (log_p.exp().unwrap() * &log_p)
        .unwrap()
        .sum_keepdim(1)
        .unwrap()
        .neg()
        .unwrap();
    let plain = Tensor::cat(&[log_prob, entropy], 1).unwrap();
    let by = Tensor::new(&[[0.3f64, -1.1], [2.0, 0.6]], &Device::Cpu).unwrap();
    let gradient = |output: &Tensor| {
        let loss = (output * &by).unwrap().sum_all().unwrap();
        let store = loss.backward().unwrap();
        store
            .get(&logits)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1::<f64>()
            .unwrap()
    };
    let numbers = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let pairs = [
        (numbers(&ours), numbers(&plain)),
        (gradient(&ours), gradient(&plain)),
    ];
    for (ours, plain) in pairs {
        for (a, b) in ours.iter().zip(&plain) {
            assert!((a - b).abs() < 1e-12, "{ours:?} {plain:?}");
        }
    }
}

#[test]
fn effective_sample_size_counts() {
    assert_eq!(effective_sample_size(&[0.5; 7]), 1.0);
    assert_eq!(effective_sample_size(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    assert!(effective_sample_size(&[]).is_nan());
}
