//! Every objective as the learner sees it: its settings, what it reports, and that no split of a batch
//! changes it.

use std::collections::BTreeMap;

use dart_core::{Batch, Learner};
use dart_kernels::TokenLoss;
use dart_trainer::{GrpoLearner, Preset, RejectionConfig, RejectionLevelConfig, TrainerConfig};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::toy::{Toy, config, mixed};

/// The settings that a file gives.
pub fn parsed(settings: Value) -> TrainerConfig {
    let config: TrainerConfig = serde_json::from_value(settings).unwrap();
    config.validate().unwrap();
    config
}

#[test]
fn presets_of_the_paper_are_the_kernels() {
    for (preset, loss) in [
        (Preset::Paper, TokenLoss::PAPER),
        (Preset::Released, TokenLoss::RELEASED),
    ] {
        assert_eq!(TrainerConfig::preset(preset).token_loss(), loss);
    }
}

fn name(preset: Preset) -> String {
    serde_json::to_value(preset)
        .unwrap()
        .as_str()
        .unwrap()
        .into()
}

#[test]
fn every_preset_is_valid_and_can_be_written_and_read() {
    let names: Vec<String> = Preset::ALL.into_iter().map(name).collect();
    let expected = [
        "paper",
        "released",
        "dapo",
        "dr-grpo",
        "gspo",
        "cispo",
        "sapo",
        "rloo",
        "reinforce++",
        "areal-decoupled",
        "verl-seq-tis",
        "icepop",
        "prime",
    ];
    assert_eq!(names, expected);
    for preset in Preset::ALL {
        let config = parsed(json!({"preset": name(preset)}));
        assert_eq!(config, TrainerConfig::preset(preset));
        let written = serde_json::to_string(&config).unwrap();
        let read: TrainerConfig = serde_json::from_str(&written).unwrap();
        assert_eq!(read, config, "{written}");
    }
}

#[test]
fn unknown_keys_and_kinds_are_named() {
    for (settings, expected) in [
        (json!({"preset": "ppo2"}), &["`ppo2`", "`dr-grpo`"][..]),
        (json!({"surrogate": {"kind": "cispo", "hi": 1}}), &["`hi`"]),
        (json!({"surrogate": {"kind": "cispo"}}), &["`high`"]),
        (
            json!({"surrogate": {"kind": "ppo"}}),
            &["`ppo`", "`clipped`"],
        ),
        (
            json!({"surrogate": {"kind": "reinforce", "low": 1}}),
            &["`low`"],
        ),
        (
            json!({"preset": "sapo", "surrogate": {"high": 1}}),
            &["`high`", "`positive`"],
        ),
        (json!({"importance": {"kind": "off", "cap": 1}}), &["`cap`"]),
        (
            json!({"importance": {"level": "trajectory"}}),
            &["`trajectory`", "`sequence-sum`"],
        ),
        (
            json!({"aggregation": {"kind": "token-mean", "max": 1}}),
            &["`max`"],
        ),
        (
            json!({"rejection": [{"test": "k2", "low": 1}]}),
            &["`low`", "`max`"],
        ),
        (json!({"clip_low": 0.2}), &["`clip_low`", "`surrogate`"]),
    ] {
        let error = serde_json::from_value::<TrainerConfig>(settings.clone()).unwrap_err();
        let text = error.to_string();
        assert!(
            expected.iter().all(|part| text.contains(part)),
            "{settings}: {text}"
        );
    }
}

#[test]
fn numbers_that_make_no_sense_are_named() {
    for (settings, expected) in [
        (
            json!({"surrogate": {"low": 1.0}}),
            "surrogate.low must be at least 0 and below 1",
        ),
        (
            json!({"surrogate": {"high": -1}}),
            "surrogate.high must be a number of 0 or more",
        ),
        (
            json!({"surrogate": {"dual": 0.5}}),
            "surrogate.dual must be above 1",
        ),
        (
            json!({"preset": "sapo", "surrogate": {"positive": 0}}),
            "surrogate.positive must be",
        ),
        (
            json!({"importance": {"cap": -1}}),
            "importance.cap must be a number of 0 or more",
        ),
        (
            json!({"preset": "icepop", "importance": {"low": 9}}),
            "importance.high must not be",
        ),
        (
            json!({"rejection": [{"test": "k1", "low": 2, "high": 1}]}),
            "rejection.high must not",
        ),
        (
            json!({"preset": "dr-grpo", "aggregation": {"max_tokens": 0}}),
            "aggregation.max_tokens",
        ),
        (json!({"ratio_source": "rollout"}), "importance must be off"),
        (
            json!({"preset": "rloo", "ratio": "sequence"}),
            "ratio has no use",
        ),
        (
            json!({"token_entropy_drop": 1.0}),
            "token_entropy_drop must be at least 0 and below 1",
        ),
    ] {
        let config: TrainerConfig = serde_json::from_value(settings).unwrap();
        let error = config.validate().unwrap_err();
        assert_eq!(error.kind(), dart_core::ErrorKind::Config);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A rule that rejects some of the toy batch's tokens, whole sequences of another, and token
/// selection: whatever could depend on a split.
fn strict(preset: Preset) -> TrainerConfig {
    parsed(json!({
        "preset": name(preset),
        "learning_rate": 0.02,
        "weight_decay": 0.0,
        "kl_beta": 0.1,
        "rejection": [
            {"test": "k1", "low": 0.6, "high": 1.8},
            {"test": "k2", "level": "sequence-max", "max": 0.5},
        ],
        "token_entropy_drop": 0.2,
    }))
}

fn metrics(config: TrainerConfig, batch: &Batch) -> BTreeMap<&'static str, f64> {
    let mut learner = GrpoLearner::new(Toy::new(), config).unwrap();
    learner.step(batch).unwrap();
    learner.step(batch).unwrap().metrics
}

#[test]
fn rejected_tokens_are_counted() {
    let all = metrics(config(), &mixed());
    assert_eq!(all["share_rejected"], 0.0);
    let some = metrics(strict(Preset::Paper), &mixed());
    assert!(
        some["share_rejected"] > 0.0 && some["share_rejected"] < 1.0,
        "{some:?}"
    );
    assert!(some["tokens"] < all["tokens"], "{some:?}");
    assert_eq!(
        some["rollout_kl_k1"].is_finite(),
        all["rollout_kl_k1"].is_finite()
    );
    let mut none = strict(Preset::Paper);
    none.rejection = vec![RejectionConfig::K2 {
        level: RejectionLevelConfig::Token,
        max: 0.0,
    }];
    let mut learner = GrpoLearner::new(Toy::new(), none).unwrap();
    let report = learner.step(&mixed()).unwrap();
    assert!(report.skipped, "nothing is left: {report:?}");
    assert_eq!(report.metrics["share_rejected"], 1.0);
    assert!(
        report.metrics.values().all(|value| value.is_finite()),
        "{report:?}"
    );
}

#[test]
fn everything_of_the_specification_is_logged() {
    for preset in Preset::ALL {
        let metrics = metrics(
            TrainerConfig {
                kl_beta: 0.1,
                ..TrainerConfig::preset(preset)
            },
            &mixed(),
        );
        for name in [
            "entropy",
            "share_rejected",
            "rollout_kl_k1",
            "rollout_kl_k3",
            "rollout_ess",
            "rollout_chi2_token",
            "rollout_chi2_sequence",
            "rollout_perplexity",
            "old_perplexity",
            "is_ess",
            "clip_low",
            "clip_high",
            "clip_dual",
            "kl_reference",
        ] {
            assert!(metrics[name].is_finite(), "{preset:?} {name} {metrics:?}");
        }
    }
}

#[test]
fn a_ratio_against_the_rollout_corrects_at_once() {
    let run = |settings| metrics(parsed(settings), &mixed());
    let old = run(json!({"preset": "dapo"}));
    let rollout = run(json!({"preset": "dapo", "ratio_source": "rollout"}));
    assert_eq!(
        (old["ratio_kl_k3"], old["clip_high"]),
        (0.0, 0.0),
        "one step: ratios are 1"
    );
    let same = (rollout["ratio_kl_k3"] - rollout["rollout_kl_k3"]).abs();
    assert!(same < 1e-9 && rollout["clip_high"] > 0.0, "{rollout:?}");
}

/// As methods that discount give it: another advantage for each token.
fn by_token(mut batch: Batch) -> Batch {
    for sample in &mut batch.samples {
        let own = sample.advantages.iter().enumerate();
        sample.advantages = own
            .map(|(at, a)| a * 0.75f64.powi(at as i32) - 0.01)
            .collect();
    }
    batch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn neither_threads_nor_micro_batches_nor_order_change_any_objective(
        preset in prop::sample::select(&Preset::ALL[..]),
        threads in 1usize..4, micro_batch_samples in 1usize..30, turn in 0usize..24,
        each_token in any::<bool>(),
    ) {
        let batch = if each_token { by_token(mixed()) } else { mixed() };
        let mut turned = batch.clone();
        turned.samples.rotate_left(turn);
        let other = TrainerConfig { threads, micro_batch_samples, ..strict(preset) };
        // Of the first step: after it, AdamW would have turned rounding of tiny gradients into signs.
        let first = |config, batch: &Batch| {
            let mut learner = GrpoLearner::new(Toy::new(), config).unwrap();
            learner.step(batch).unwrap().metrics
        };
        let (a, b) = (first(strict(preset), &batch), first(other, &turned));
        prop_assert_eq!(a["tokens"], b["tokens"]);
        prop_assert_eq!(a["share_rejected"], b["share_rejected"]);
        prop_assert!(a["share_rejected"] > 0.0 && a["grad_norm"] > 0.0);
        for (name, tolerance) in [("loss", 1e-9), ("grad_norm", 1e-6), ("rollout_kl_k3", 1e-9)] {
            let gap = (a[name] - b[name]).abs();
            prop_assert!(gap <= tolerance * a[name].abs().max(1.0), "{} {} {}", name, a[name], b[name]);
        }
    }
}
