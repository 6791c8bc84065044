//! Objectives against numbers that other trainers' own functions gave in f64: loss, gradient, weights
//! and rejection masks, from a preset and what a config lays over it.

use dart_kernels::{Counts, Drift, Sequences, Token, TokenOutcome, token_losses};
use dart_trainer::{Preset, TrainerConfig};
use serde_json::{Value, json};

use crate::objectives::parsed;

/// What the file promises; its denominators have 1e-8 added.
const TOLERANCE: f64 = 2e-9;
/// The same for its decoupled losses by token.
const DECOUPLED: f64 = 5e-9;

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        Value::Bool(flag) => vec![f64::from(u8::from(*flag))],
        number => vec![number.as_f64().unwrap()],
    }
}

fn assert_all_close(got: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: how many");
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        let close = (got - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(close, "{what} {index}: {got} is not {expected}");
    }
}

/// Four sequences of four tokens, some of which are masked.
struct Peers {
    inputs: Value,
    outputs: Value,
    sequences: Sequences,
    mask: Vec<bool>,
}

impl Peers {
    fn read() -> Self {
        let golden: Value = serde_json::from_str(include_str!("../data/peer_losses.json")).unwrap();
        let mask = numbers(&golden["inputs"]["mask"]);
        Self {
            mask: mask.iter().map(|flag| *flag != 0.0).collect(),
            sequences: Sequences::from_lengths(&[4; 4]),
            outputs: golden["outputs"].clone(),
            inputs: golden["inputs"].clone(),
        }
    }

    fn input(&self, name: &str) -> Vec<f64> {
        numbers(&self.inputs[name])
    }

    /// The tokens that the rules of `config` leave.
    fn kept(&self, config: &TrainerConfig) -> Vec<bool> {
        let (old, rollout) = (self.input("old"), self.input("beh"));
        let drift = Drift::new((&old, &rollout), &self.mask, &self.sequences).unwrap();
        drift.keep(&config.rejection_rules()).mask
    }

    /// What `config` makes of the inputs.
    fn outcomes(&self, config: &TrainerConfig) -> Vec<TokenOutcome> {
        let mask = self.kept(config);
        let counts = Counts::of(&mask, &self.sequences).unwrap();
        let weights = config.token_weights();
        let weights = weights.weights(&mask, &self.sequences, counts).unwrap();
        let (old, rollout) = (self.input("old"), self.input("beh"));
        let advantages = numbers(&self.outputs["grpo_adv_seq"]);
        let tokens: Vec<Token> = (0..16)
            .map(|t| Token {
                target: 0,
                temperature: 1.0,
                weight: weights[t],
                advantage: advantages[t / 4],
                old: Some(old[t]),
                rollout: Some(rollout[t]),
                reference: None,
            })
            .collect();
        let current: Vec<_> = self.input("lp").into_iter().map(|lp| (lp, 0.0)).collect();
        token_losses(&config.token_loss(), &tokens, &self.sequences, &current)
    }

    fn check(&self, name: &str, settings: Value, tolerance: f64) {
        let outcomes = self.outcomes(&parsed(settings));
        let loss: f64 = outcomes.iter().map(|outcome| outcome.loss).sum();
        let slopes: Vec<f64> = outcomes.iter().map(|outcome| outcome.by_log_prob).collect();
        let expected = &self.outputs[name];
        assert_all_close(&[loss], &numbers(&expected["loss"]), tolerance, name);
        assert_all_close(&slopes, &numbers(&expected["grad"]), tolerance, name);
    }
}

#[test]
fn clip_higher_under_every_aggregation() {
    let peers = Peers::read();
    let sequences = json!({"kind": "seq-mean-token-mean"});
    for (name, settings) in [
        (
            "verl_ppo_cliphigher_token-mean",
            json!({"preset": "dapo", "surrogate": {"dual": 3}}),
        ),
        (
            "verl_ppo_cliphigher_seq-mean-token-sum-norm",
            json!({"preset": "dr-grpo", "surrogate": {"high": 0.28, "dual": 3},
                "aggregation": {"max_tokens": 4}}),
        ),
        (
            "verl_ppo_cliphigher_seq-mean-token-sum",
            json!({"preset": "dapo", "surrogate": {"dual": 3},
                "aggregation": {"kind": "seq-mean-token-sum"}}),
        ),
        (
            "verl_ppo_cliphigher_seq-mean-token-mean",
            json!({"preset": "reinforce++", "surrogate": {"high": 0.28, "dual": 3},
                "aggregation": sequences}),
        ),
    ] {
        peers.check(name, settings, TOLERANCE);
    }
}

#[test]
fn other_clips() {
    let peers = Peers::read();
    for (name, settings) in [
        ("verl_gspo", json!({"preset": "gspo"})),
        (
            "areal_gspo",
            json!({"preset": "gspo", "aggregation": {"kind": "token-mean"}}),
        ),
        ("areal_cispo", json!({"preset": "cispo"})),
        (
            "areal_cispo",
            json!({"preset": "paper", "surrogate": {"kind": "cispo", "high": 4},
                "importance": {"kind": "off"}, "aggregation": {"kind": "token-mean"}}),
        ),
        (
            "verl_cispo",
            json!({"preset": "cispo", "surrogate": {"low": 0.2, "high": 0.28}}),
        ),
        ("areal_sapo_tau1.0_1.05", json!({"preset": "sapo"})),
        ("prime_default", json!({"preset": "prime"})),
    ] {
        peers.check(name, settings, TOLERANCE);
    }
}

#[test]
fn decoupled_ppo() {
    let peers = Peers::read();
    for (name, settings, tolerance) in [
        (
            "areal_decoupled_clamp_token_upper1.2",
            json!({"preset": "areal-decoupled", "surrogate": {"high": 0.28},
                "importance": {"kind": "truncated", "cap": 1.2}}),
            DECOUPLED,
        ),
        (
            "areal_decoupled_mask_token_0.9_1.2",
            json!({"preset": "areal-decoupled", "surrogate": {"high": 0.28},
                "importance": {"low": 0.9, "high": 1.2}}),
            DECOUPLED,
        ),
        (
            "areal_decoupled_mask_seq_geo_0.97_1.03",
            json!({"preset": "areal-decoupled", "surrogate": {"high": 0.28},
                "importance": {"level": "sequence-mean", "low": 0.97, "high": 1.03}}),
            TOLERANCE,
        ),
    ] {
        peers.check(name, settings, tolerance);
    }
}

#[test]
fn importance_weights_are_the_peers() {
    let peers = Peers::read();
    for (name, settings) in [
        (
            "verl_tis_sequence_C1.2",
            json!({"preset": "verl-seq-tis", "importance": {"cap": 1.2}}),
        ),
        (
            "verl_tis_token_C1.2",
            json!({"preset": "paper", "importance": {"cap": 1.2}}),
        ),
        (
            "verl_icepop_0.9_1.2",
            json!({"preset": "icepop", "importance": {"low": 0.9, "high": 1.2}}),
        ),
    ] {
        let outcomes = peers.outcomes(&parsed(settings));
        let weights: Vec<f64> = outcomes.iter().map(|outcome| outcome.importance).collect();
        assert_all_close(&weights, &numbers(&peers.outputs[name]), TOLERANCE, name);
    }
}

#[test]
fn rejection_rules_are_the_peers() {
    let peers = Peers::read();
    for (name, rule) in [
        (
            "token_k1_0.8_1.2",
            json!({"test": "k1", "low": 0.8, "high": 1.2}),
        ),
        (
            "seq_sum_k1_0.9_1.2",
            json!({"test": "k1", "level": "sequence-sum", "low": 0.9, "high": 1.2}),
        ),
        (
            "seq_mean_k1_0.97_1.03",
            json!({"test": "k1", "level": "sequence-mean", "low": 0.97, "high": 1.03}),
        ),
        (
            "seq_mean_k3_0.002",
            json!({"test": "k3", "level": "sequence-mean", "max": 0.002}),
        ),
        (
            "seq_max_k2_0.05",
            json!({"test": "k2", "level": "sequence-max", "max": 0.05}),
        ),
        ("token_k3_0.01", json!({"test": "k3", "max": 0.01})),
    ] {
        let config = parsed(json!({"preset": "dapo", "rejection": [rule]}));
        let kept = peers.kept(&config);
        let expected = numbers(&peers.outputs[format!("verl_rs_{name}")]);
        let expected: Vec<bool> = expected.iter().map(|flag| *flag != 0.0).collect();
        assert_eq!(kept, expected, "{name}");
        // What is rejected has no part in the loss.
        for (outcome, kept) in peers.outcomes(&config).iter().zip(&kept) {
            assert!(*kept || *outcome == TokenOutcome::default(), "{name}");
        }
    }
}

/// Gradient of REINFORCE: −A over the number of sequences, whatever the ratio.
#[test]
fn reinforce_sums_over_tokens() {
    let peers = Peers::read();
    let outcomes = peers.outcomes(&TrainerConfig::preset(Preset::Rloo));
    let advantages = numbers(&peers.outputs["grpo_adv_seq"]);
    let slopes: Vec<f64> = outcomes.iter().map(|outcome| outcome.by_log_prob).collect();
    let expected: Vec<f64> = (0..16)
        .map(|t| f64::from(u8::from(peers.mask[t])) * -advantages[t / 4] / 4.0)
        .collect();
    assert_all_close(&slopes, &expected, 1e-15, "gradient");
}
