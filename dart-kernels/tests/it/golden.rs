//! Numbers made by automatic differentiation in double precision.

use dart_kernels::{ClipSide, Token, TokenLoss, TokenOutcome, row_stats, token_loss};
use serde_json::Value;

const TOLERANCE: f64 = 1e-9;

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn assert_close(got: f64, expected: f64, what: &str) {
    assert!(
        (got - expected).abs() <= TOLERANCE * expected.abs().max(1.0),
        "{what}: {got} is not {expected}"
    );
}

fn token(weight: f64, advantage: f64) -> Token {
    Token {
        target: 0,
        temperature: 1.0,
        weight,
        advantage,
        old: None,
        rollout: None,
        reference: None,
    }
}

#[test]
fn paper_entropies() {
    let golden = read(include_str!("../data/dart_paper.json"));
    for step in golden["steps"].as_array().unwrap() {
        let targets = numbers(&step["targets"]);
        let entropies = numbers(&step["token_entropy"]);
        for (t, row) in step["old_logits"].as_array().unwrap().iter().enumerate() {
            let stats = row_stats(&numbers(row), targets[t] as usize, 1.0);
            assert_close(stats.entropy, entropies[t], "entropy");
        }
    }
}

/// Outcomes of the kept steps' tokens, with the step they belong to.
fn paper_outcomes(golden: &Value) -> Vec<(usize, TokenOutcome)> {
    let steps = golden["steps"].as_array().unwrap();
    let advantages = numbers(&golden["advantage_paper_per_step"]);
    let kept = steps.iter().filter(|s| s["kept"] == true).count();
    let mut outcomes = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let current = numbers(&step["current"]);
        let share = 1.0 / (kept * current.len()) as f64;
        let weight = if step["kept"] == true { share } else { 0.0 };
        for (t, log_prob) in current.iter().enumerate() {
            let token = Token {
                old: Some(numbers(&step["old"])[t]),
                rollout: Some(numbers(&step["rollout"])[t]),
                reference: Some(numbers(&step["reference"])[t]),
                ..token(weight, advantages[index])
            };
            outcomes.push((index, token_loss(&TokenLoss::PAPER, &token, *log_prob, 0.0)));
        }
    }
    outcomes
}

#[test]
fn paper_loss_and_gradient() {
    let golden = read(include_str!("../data/dart_paper.json"));
    let outcomes = paper_outcomes(&golden);
    let loss: f64 = outcomes.iter().map(|(_, o)| o.loss).sum();
    assert_close(loss, number(&golden["loss"]), "loss");
    for (index, step) in golden["steps"].as_array().unwrap().iter().enumerate() {
        let of_step: Vec<_> = outcomes.iter().filter(|(i, _)| *i == index).collect();
        let gradient = numbers(&step["grad_current"]);
        let weights = numbers(&step["is_weight"]);
        let mut sample = 0.0;
        for (t, (_, outcome)) in of_step.iter().enumerate() {
            assert_close(outcome.by_log_prob, gradient[t], "gradient");
            assert_close(outcome.importance, weights[t], "importance weight");
            sample += outcome.importance * outcome.surrogate + 0.1 * outcome.kl;
        }
        let mean = sample / of_step.len() as f64;
        assert_close(mean, number(&step["sample_loss"]), "sample loss");
    }
    for side in [ClipSide::Low, ClipSide::High, ClipSide::Dual] {
        assert!(
            outcomes.iter().any(|(_, o)| o.clip == side),
            "{side:?} is active somewhere"
        );
    }
}

#[test]
fn released_loss_and_gradient() {
    let golden = read(include_str!("../data/dart_reference.json"));
    let lengths = numbers(&golden["lens"]);
    let mut loss = 0.0;
    let mut high = 0;
    for (b, length) in lengths.iter().enumerate() {
        let row = |name: &str| numbers(&golden[name][b]);
        let (expected, weights) = (
            numbers(&golden["vanilla"]["dloss_dlogp"][b]),
            numbers(&golden["vanilla"]["tis_w"][b]),
        );
        let rollout = row("rollout_logp");
        let missing = rollout.iter().all(|lp| *lp == 0.0);
        for t in 0..*length as usize {
            let logits = numbers(&golden["logits"][b][t]);
            let stats = row_stats(&logits, row("targets")[t] as usize, 1.0);
            assert_close(stats.log_prob, row("logp")[t], "log-prob");
            assert_close(stats.entropy, row("entropy")[t], "entropy");
            let share = 1.0 / (lengths.len() as f64 * length);
            let token = Token {
                old: Some(row("old_logp")[t]),
                rollout: (!missing).then_some(rollout[t]),
                reference: Some(row("ref_logp")[t]),
                ..token(share, numbers(&golden["adv"])[b])
            };
            let outcome = token_loss(&TokenLoss::RELEASED, &token, stats.log_prob, stats.entropy);
            assert_close(outcome.by_log_prob, expected[t], "gradient");
            assert_close(outcome.importance, weights[t], "importance weight");
            loss += outcome.loss;
            high += usize::from(outcome.clip != ClipSide::None);
        }
    }
    assert_close(loss, number(&golden["vanilla"]["loss"]), "loss");
    assert!(high > 0, "some token is clipped");
}
