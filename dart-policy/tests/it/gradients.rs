//! Gradients of the whole model against finite differences; nothing is cut off.

use candle_core::{Tensor, Var};
use dart_core::DemonstrationEncoder as _;
use dart_core::{Action, Batch, Direction, Key, NamedKey, Sampling, ScreenPx};
use dart_policy::{Encoder, Forward, TrainableModel, Upstream, VlmModel, model::Tape};

use crate::common::{batch, input, log_prob, model};

/// Every kind of token, as target, as input and in history.
fn samples(model: &VlmModel) -> Batch {
    let encoder = Encoder::new(model);
    let at = ScreenPx::new;
    let actions = [
        Action::click(at(9, 9)),
        Action::DragTo {
            from: Some(at(2, 30)),
            to: at(47, 0),
        },
        Action::Type {
            text: "ab q".into(),
        },
        Action::Scroll {
            at: Some(at(20, 20)),
            direction: Direction::Up,
            notches: 5,
        },
        Action::Hotkey {
            keys: vec![Key::Named(NamedKey::Ctrl), Key::Char('v')],
        },
    ];
    let mut past: Vec<Vec<u32>> = Vec::new();
    let mut decided = Vec::new();
    for (index, action) in actions.iter().enumerate() {
        let history: Vec<&[u32]> = past.iter().map(Vec::as_slice).collect();
        let input = input(index as u32 % 3, &history, Sampling::GREEDY);
        let decision = encoder.encode(&input, action).unwrap();
        past.push(decision.token_ids.to_vec());
        decided.push((input, decision));
    }
    // The same prompt twice: computed once, its gradient counts twice.
    decided.push(decided[0].clone());
    batch(&decided)
}

/// Σ weight · log-prob over all tokens, plus the reading loss, in f64.
fn loss(batch: &Batch, forward: &Forward<Tape>) -> f64 {
    let rows: Vec<Vec<f32>> = forward.logits.to_vec2().unwrap();
    let targets = batch.samples.iter().flat_map(|s| s.response.iter());
    let sum: f64 = rows
        .iter()
        .zip(targets)
        .enumerate()
        .map(|(i, (row, target))| weight(i) * log_prob(row, *target).0)
        .sum();
    sum + forward.reading_loss.unwrap() * 2.0
}

fn weight(index: usize) -> f64 {
    0.5 + (index % 3) as f64 * 0.25
}

/// The gradient of [`loss`], for each parameter.
fn backward(model: &VlmModel, batch: &Batch) -> Vec<Vec<f32>> {
    let all: Vec<usize> = (0..batch.samples.len()).collect();
    let forward = model.forward(batch, &all, true).unwrap();
    let rows: Vec<Vec<f32>> = forward.logits.to_vec2().unwrap();
    let targets = batch.samples.iter().flat_map(|s| s.response.iter());
    let mut by_logits: Vec<f32> = Vec::new();
    for (i, (row, target)) in rows.iter().zip(targets).enumerate() {
        let p = |token| log_prob(row, token).0.exp();
        let gradient = (0..row.len() as u32).map(|t| f64::from(u8::from(t == *target)) - p(t));
        by_logits.extend(gradient.map(|g| (weight(i) * g) as f32));
    }
    let by_logits = Tensor::from_vec(by_logits, forward.logits.shape(), model.device()).unwrap();
    let by = Upstream {
        logits: &by_logits,
        reading: 2.0,
    };
    let gradients = model.backward(forward.tape, by).unwrap();
    let numbers = |g: Option<Tensor>| g.unwrap().flatten_all().unwrap().to_vec1().unwrap();
    gradients.into_iter().map(numbers).collect()
}

#[test]
fn every_parameter_gets_a_finite_gradient_that_is_not_zero() {
    let model = model();
    let batch = samples(&model);
    let grads = backward(&model, &batch);
    assert!(model.parameters().len() > 25);
    assert_eq!(model.parameters().len(), grads.len());
    for ((name, var), numbers) in model.parameters().iter().zip(grads) {
        assert_eq!(numbers.len(), var.elem_count());
        assert!(
            numbers.iter().all(|g| g.is_finite()),
            "{name} is not finite"
        );
        assert!(numbers.iter().any(|g| *g != 0.0), "{name} is zero");
    }
}

#[test]
fn gradients_match_finite_differences() {
    const STEP: f32 = 4e-3;
    let model = model();
    let batch = samples(&model);
    let all: Vec<usize> = (0..batch.samples.len()).collect();
    let grads = backward(&model, &batch);
    let mut checked = 0;
    for ((name, var), grad) in model.parameters().iter().zip(grads) {
        let values: Vec<f32> = var.flatten_all().unwrap().to_vec1().unwrap();
        let mut order: Vec<usize> = (0..grad.len()).collect();
        order.sort_by(|a, b| grad[*b].abs().total_cmp(&grad[*a].abs()));
        for &index in order.iter().take(3) {
            let at = |delta: f32| {
                let mut moved = values.clone();
                moved[index] += delta;
                set(var, moved);
                loss(&batch, &model.forward(&batch, &all, true).unwrap())
            };
            let want = (at(STEP) - at(-STEP)) / f64::from(2.0 * STEP);
            set(var, values.clone());
            let got = f64::from(grad[index]);
            assert!(
                (got - want).abs() < 5e-3 + 0.02 * want.abs(),
                "{name}[{index}]: {got}, by differences {want}"
            );
            checked += 1;
        }
    }
    assert!(checked > 75);
}

fn set(var: &Var, values: Vec<f32>) {
    let tensor = Tensor::from_vec(values, var.dims(), var.device()).unwrap();
    var.set(&tensor).unwrap();
}

#[test]
fn neither_batch_nor_order_changes_a_sample() {
    let model = model();
    let batch = samples(&model);
    let all = [4, 2, 0, 1, 3, 5];
    let together: Vec<Vec<f32>> = model
        .forward(&batch, &all, false)
        .unwrap()
        .logits
        .to_vec2()
        .unwrap();
    let mut at = 0;
    for index in all {
        let alone = model.forward(&batch, &[index], false).unwrap();
        assert!(alone.reading_loss.is_none());
        for row in alone.logits.to_vec2::<f32>().unwrap() {
            for (a, b) in row.iter().zip(&together[at]) {
                assert!((a - b).abs() < 1e-4, "sample {index}: {a} {b}");
            }
            at += 1;
        }
    }
    assert_eq!(at, together.len());
}

#[test]
fn a_gradient_of_another_shape_is_refused() {
    let model = model();
    let batch = samples(&model);
    let forward = model.forward(&batch, &[0], false).unwrap();
    let by = Upstream {
        logits: &forward.logits.narrow(0, 0, 1).unwrap(),
        reading: 0.0,
    };
    let error = model.backward(forward.tape, by).unwrap_err();
    assert!(error.to_string().contains("shape"), "{error}");
}

#[test]
fn a_copy_is_independent() {
    let model = model();
    let copy = model.deep_copy().unwrap();
    let before = copy.to_bytes().unwrap();
    assert_eq!(before, model.to_bytes().unwrap());
    let (_, var) = model.parameters().iter().next().unwrap();
    set(var, vec![0.5; var.elem_count()]);
    assert_ne!(before, model.to_bytes().unwrap());
    assert_eq!(before, copy.to_bytes().unwrap());
}
