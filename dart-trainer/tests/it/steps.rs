//! What single steps do, and what they report.

use dart_core::{Batch, ErrorKind, Learner, LogProbKind, Objective, SampleOrigin};
use dart_trainer::{GrpoLearner, MissingLogProbs, TrainerConfig};
use proptest::prelude::*;

use crate::toy::{NAN, Toy, batch, config, mixed, sample};

fn learner(config: TrainerConfig) -> GrpoLearner<Toy> {
    GrpoLearner::new(Toy::new(), config).unwrap()
}

/// The table after `steps` steps on `batch`.
fn trained(config: TrainerConfig, batch: &Batch, steps: usize) -> Vec<f32> {
    let mut learner = learner(config);
    for _ in 0..steps {
        learner.step(batch).unwrap();
    }
    learner.model().values("table")
}

fn assert_near(a: &[f32], b: &[f32]) {
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() < 1e-4, "{a} is not {b}");
    }
}

#[test]
fn paths_agree() {
    // One pass with its graph, a pass ahead (micro-batches), several threads.
    let one_pass = trained(config(), &mixed(), 3);
    for (threads, micro_batch_samples) in [(1, 5), (2, 128), (2, 3), (3, 1)] {
        let config = TrainerConfig {
            threads,
            micro_batch_samples,
            ..config()
        };
        let other = trained(config.clone(), &mixed(), 3);
        assert_near(&one_pass, &other);
        assert_eq!(other, trained(config, &mixed(), 3), "bit for bit");
    }
    // Without step selection nothing has to be known ahead.
    let all = |micro_batch_samples| TrainerConfig {
        entropy_drop: 0.0,
        micro_batch_samples,
        ..config()
    };
    assert_near(
        &trained(all(128), &mixed(), 3),
        &trained(all(4), &mixed(), 3),
    );
}

#[test]
fn epochs_and_minibatches_use_the_log_probs_from_before() {
    let config = TrainerConfig {
        epochs: 3,
        minibatches: 2,
        minibatch_min_samples: 4,
        learning_rate: 0.1,
        ..config()
    };
    let mut learner = learner(config.clone());
    let report = learner.step(&mixed()).unwrap();
    assert_eq!(report.metrics["updates"], 6.0);
    assert!(report.metrics["clip_high"] > 0.0, "{:?}", report.metrics);
    assert!(report.metrics["clip_low"] > 0.0, "{:?}", report.metrics);
    assert_eq!(learner.version().0, 1, "one version for each batch");
    assert_eq!(
        trained(config.clone(), &mixed(), 2),
        trained(config, &mixed(), 2)
    );
}

#[test]
fn metrics_say_what_happened() {
    let config = TrainerConfig {
        kl_beta: 0.1,
        ..config()
    };
    let mut learner = learner(config);
    let first = learner.step(&mixed()).unwrap();
    assert_eq!(
        first.metrics["kl_reference"], 0.0,
        "the reference is the start"
    );
    assert_eq!(first.metrics["clip_low"], 0.0, "ratios are 1");
    for _ in 0..5 {
        learner.step(&mixed()).unwrap();
    }
    let metrics = learner.step(&mixed()).unwrap().metrics;
    assert!(metrics["kl_reference"] > 0.0);
    assert!(metrics["rollout_kl_k3"] > 0.0);
    assert!(metrics["is_min"] < metrics["is_mean"] && metrics["is_mean"] <= 1.0);
    assert!(metrics["is_ess"] > 0.0 && metrics["is_ess"] < 1.0);
    assert!(metrics["grad_norm"] > 0.0 && metrics["entropy"] > 0.0);
    assert!(metrics["kept_share"] >= 0.75 && metrics["kept_share"] < 1.0);
    assert_eq!(metrics["images_per_sample"], 1.0);
    assert_eq!((metrics["samples"], metrics["skipped"]), (24.0, 0.0));
    assert_eq!(metrics["parameters_without_gradient"], 1.0, "the reader");
    assert!(
        metrics.values().all(|value| value.is_finite()),
        "{metrics:?}"
    );
}

#[test]
fn the_reference_holds_the_policy_back() {
    let run = |kl_beta| {
        let mut learner = learner(TrainerConfig {
            kl_beta,
            ..config()
        });
        learner.freeze_reference().unwrap();
        for _ in 0..60 {
            learner.step(&mixed()).unwrap();
        }
        let moved = learner.model().values("table");
        let start = Toy::new().values("table");
        moved
            .iter()
            .zip(start)
            .map(|(a, b)| (a - b).powi(2))
            .sum::<f32>()
    };
    assert!(run(5.0) < 0.8 * run(0.0));
}

#[test]
fn imitation_learns_and_reads() {
    let samples = vec![sample(0, &[1, 2], 0.0), sample(1, &[3, 4, 5], 0.0)];
    let batch = batch(Objective::Imitation, samples);
    let mut learner = learner(config());
    let scores = learner.score(&batch).unwrap();
    let means = scores
        .iter()
        .map(|s| f64::from(s.iter().sum::<f32>()) / s.len() as f64);
    let nll = -means.sum::<f64>() / 2.0;
    let first = learner.step(&batch).unwrap().metrics;
    let expected = nll + first["reading_loss"];
    assert!(
        (first["loss"] - expected).abs() < 1e-5,
        "{first:?} {expected}"
    );
    for _ in 0..80 {
        learner.step(&batch).unwrap();
    }
    let last = learner.step(&batch).unwrap().metrics;
    assert!(last["nll"] < 0.1 * first["nll"], "{first:?} {last:?}");
    assert_eq!(first["reading_loss"], 1.0);
    assert!(last["reading_loss"] < 0.01);
    assert_eq!(first["parameters_without_gradient"], 0.0);
}

#[test]
fn a_new_objective_begins_with_a_fresh_optimizer() {
    let imitation = batch(Objective::Imitation, vec![sample(0, &[1], 0.0)]);
    let mut learner = learner(config());
    for _ in 0..5 {
        learner.step(&imitation).unwrap();
    }
    let before = learner.model().values("table");
    // With the old moments an untouched context would not stay where it is, and the touched one
    // would go on towards imitation.
    let away = batch(Objective::PolicyGradient, vec![sample(0, &[1], -1.0)]);
    learner.step(&away).unwrap();
    let after = learner.model().values("table");
    assert!(after[1] < before[1]);
}

#[test]
fn numbers_that_are_not_finite_are_skipped_and_counted() {
    for minibatches in [1, 2] {
        let mut learner = learner(TrainerConfig {
            minibatches,
            minibatch_min_samples: 1,
            ..config()
        });
        learner.step(&mixed()).unwrap();
        let before = learner.export().unwrap().digest;
        let broken = batch(Objective::PolicyGradient, vec![sample(NAN, &[1], 1.0)]);
        let report = learner.step(&broken).unwrap();
        assert!(report.skipped);
        assert_eq!(report.metrics["updates_not_finite"], 1.0);
        assert_eq!(report.metrics["not_finite_total"], 1.0);
        assert_eq!((report.version.0, learner.version().0), (2, 2));
        assert_eq!(learner.export().unwrap().digest, before);
        assert!(!learner.step(&mixed()).unwrap().skipped, "it goes on");
    }
}

#[test]
fn bad_samples_are_refused_by_name() {
    type Break = fn(&mut Batch);
    let cases: [(&str, Break); 10] = [
        ("no response", |b| b.samples[1].response = Vec::new().into()),
        ("no image", |b| b.samples[1].prompt.images.clear()),
        ("not in the batch", |b| b.images.clear()),
        ("one rollout log-prob", |b| {
            b.samples[1].rollout_log_probs = vec![-1.0; 9].into();
        }),
        ("missing", |b| {
            b.samples[1].rollout_log_probs = Vec::new().into();
        }),
        ("not positive", |b| {
            b.samples[0].rollout_log_probs = vec![0.5].into();
        }),
        ("not finite", |b| {
            b.samples[1].advantages = vec![f64::NAN; b.samples[1].response.len()].into();
        }),
        ("one advantage", |b| {
            b.samples[1].advantages = vec![1.0].into();
        }),
        ("greedy", |b| b.samples[1].temperature = 0.0),
        ("temperature", |b| b.samples[1].temperature = -1.0),
    ];
    let mut learner = learner(config());
    for (expected, break_it) in cases {
        let mut batch = mixed();
        break_it(&mut batch);
        let error = learner.step(&batch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{expected}");
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
    assert_eq!(learner.version().0, 0);
}

#[test]
fn missing_log_probs_may_weigh_one() {
    let mut batch = mixed();
    for sample in &mut batch.samples {
        sample.rollout_log_probs = Vec::new().into();
    }
    let mut learner = learner(TrainerConfig {
        missing_rollout_log_probs: MissingLogProbs::Unit,
        ..config()
    });
    let report = learner.step(&batch).unwrap();
    assert_eq!(
        (report.metrics["is_min"], report.metrics["is_mean"]),
        (1.0, 1.0)
    );
    assert!(
        !report.metrics.contains_key("rollout_kl_k3"),
        "nothing to compare"
    );
}

#[test]
fn log_probs_are_those_of_the_recorded_distribution() {
    let learner = learner(config());
    let mut batch = batch(Objective::PolicyGradient, vec![sample(0, &[1], 0.0); 4]);
    batch.samples[1].temperature = 2.0;
    batch.samples[2].temperature = 2.0;
    batch.samples[2].log_prob_kind = LogProbKind::Raw;
    batch.samples[3].temperature = 0.0;
    batch.samples[3].origin = SampleOrigin::Expert;
    let scores = learner.score(&batch).unwrap();
    let logits: Vec<f64> = learner.model().values("table")[..6]
        .iter()
        .map(|x| f64::from(*x))
        .collect();
    let at = |temperature: f64| {
        let lse = logits
            .iter()
            .map(|x| (x / temperature).exp())
            .sum::<f64>()
            .ln();
        logits[1] / temperature - lse
    };
    for (scores, expected) in scores.iter().zip([at(1.0), at(2.0), at(1.0), at(1.0)]) {
        assert!(
            (f64::from(scores[0]) - expected).abs() < 1e-6,
            "{scores:?} {expected}"
        );
    }
}

#[test]
fn training_goes_on_the_same_after_a_restart() {
    let config = TrainerConfig {
        kl_beta: 0.1,
        epochs: 2,
        minibatches: 3,
        minibatch_min_samples: 2,
        weight_decay: 0.1,
        ..config()
    };
    let warm = batch(Objective::Imitation, vec![sample(2, &[1, 0], 0.0)]);
    let mut straight = learner(config.clone());
    let mut first = learner(config.clone());
    for learner in [&mut straight, &mut first] {
        learner.step(&warm).unwrap();
        learner.step(&mixed()).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    first.save(dir.path()).unwrap();
    drop(first);
    let mut resumed = learner(config);
    resumed.restore(dir.path()).unwrap();
    for _ in 0..3 {
        let a = straight.step(&mixed()).unwrap();
        let b = resumed.step(&mixed()).unwrap();
        assert_eq!(a, b);
        assert_eq!(
            straight.export().unwrap().digest,
            resumed.export().unwrap().digest
        );
    }
}

#[test]
fn a_damaged_save_changes_nothing() {
    let mut learner = learner(config());
    learner.step(&mixed()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    learner.save(dir.path()).unwrap();
    learner.step(&mixed()).unwrap();
    let before = (learner.version(), learner.export().unwrap().digest);
    for name in [
        "weights.safetensors",
        "optimizer.safetensors",
        "learner.json",
    ] {
        let path = dir.path().join(name);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
        let error = learner.restore(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage);
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(
            (learner.version(), learner.export().unwrap().digest),
            before
        );
        std::fs::write(&path, bytes).unwrap();
    }
    learner.restore(dir.path()).unwrap();
    assert_eq!(learner.version().0, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn neither_threads_nor_micro_batches_nor_order_change_a_step(
        threads in 1usize..4, micro_batch_samples in 1usize..30, turn in 0usize..24,
    ) {
        let mut turned = mixed();
        turned.samples.rotate_left(turn);
        let other = TrainerConfig { threads, micro_batch_samples, ..config() };
        // Plain gradient size: AdamW's first step would turn rounding of tiny gradients into signs.
        let loss = |config, batch: &Batch| {
            let metrics = learner(config).step(batch).unwrap().metrics;
            (metrics["loss"], metrics["grad_norm"])
        };
        let (a, b) = (loss(config(), &mixed()), loss(other, &turned));
        prop_assert!((a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-6, "{:?} {:?}", a, b);
    }
}
