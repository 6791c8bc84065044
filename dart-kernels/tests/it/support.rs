//! Golden files, and tokens to begin with.

use dart_kernels::{Token, TokenOutcome};
use serde_json::Value;

/// A golden file.
pub(crate) fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Numbers of a list, or of a list of lists one after another.
pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        Value::Bool(flag) => vec![f64::from(u8::from(*flag))],
        number => vec![number.as_f64().unwrap()],
    }
}

/// A list of 0 and 1.
pub(crate) fn flags(value: &Value) -> Vec<bool> {
    numbers(value).iter().map(|flag| *flag != 0.0).collect()
}

/// Whether two numbers agree, relative to the larger of 1 and what is expected.
pub(crate) fn assert_close(got: f64, expected: f64, tolerance: f64, what: &str) {
    assert!(
        (got - expected).abs() <= tolerance * expected.abs().max(1.0),
        "{what}: {got} is not {expected}"
    );
}

/// Whether all numbers agree.
pub(crate) fn assert_all_close(got: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: how many");
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_close(*got, *expected, tolerance, &format!("{what} {index}"));
    }
}

/// A token of which nothing is known.
pub(crate) fn token(weight: f64, advantage: f64) -> Token {
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

/// Sum of the shares of the loss.
pub(crate) fn total(outcomes: &[TokenOutcome]) -> f64 {
    outcomes.iter().map(|outcome| outcome.loss).sum()
}

/// Derivatives by the log-probs.
pub(crate) fn slopes(outcomes: &[TokenOutcome]) -> Vec<f64> {
    outcomes.iter().map(|outcome| outcome.by_log_prob).collect()
}
