//! How steps are taken: optimizers, schedules, accumulated batches, averages; and that none of it
//! is lost in a checkpoint.

use std::collections::BTreeSet;

use dart_core::{Batch, Learner, Objective, WeightsSource};
use dart_trainer::{
    AverageConfig, Decay, GrpoLearner, OptimizerConfig, Preset, Published, Schedule, TrainerConfig,
};
use proptest::prelude::*;

use crate::toy::{NAN, Toy, batch, config, mixed, sample};

fn learner(config: TrainerConfig) -> GrpoLearner<Toy> {
    GrpoLearner::new(Toy::new(), config).unwrap()
}

/// Every kind of state at once; 10 batches end in the middle of an optimizer step of 3.
fn everything(optimizer: OptimizerConfig, accumulate_batches: u64) -> TrainerConfig {
    TrainerConfig {
        optimizer,
        accumulate_batches,
        average: AverageConfig {
            decay: 0.8,
            publish: Published::Average,
        },
        schedule: Schedule {
            warmup_steps: 3,
            decay: Decay::Cosine,
            decay_steps: 12,
            final_share: 0.05,
        },
        kl_beta: 0.1,
        weight_decay: 0.1,
        ..config()
    }
}

/// A batch that differs with `turn`.
fn turned(turn: usize) -> Batch {
    let mut batch = mixed();
    batch.samples.rotate_left(turn % 7);
    batch.samples.truncate(24 - turn % 5);
    batch
}

/// Everything that a checkpoint of the learner holds, byte for byte.
fn saved(learner: &GrpoLearner<Toy>) -> Vec<(String, Vec<u8>)> {
    let dir = tempfile::tempdir().unwrap();
    learner.save(dir.path()).unwrap();
    let entries = std::fs::read_dir(dir.path()).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn twenty_steps_are_ten_and_a_restart_and_ten() {
    let momentum = OptimizerConfig::Adafactor {
        betas: [0.9, 0.99],
        epsilon: 1e-30,
        clip_rms: 1.0,
    };
    let optimizers = [OptimizerConfig::ADAMW, OptimizerConfig::ADAFACTOR, momentum];
    for (optimizer, accumulate) in optimizers.into_iter().flat_map(|o| [(o, 1), (o, 3)]) {
        let config = everything(optimizer, accumulate);
        let mut straight = learner(config.clone());
        let mut first = learner(config.clone());
        for turn in 0..10 {
            straight.step(&turned(turn)).unwrap();
            first.step(&turned(turn)).unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        first.save(dir.path()).unwrap();
        let half = dir.path().join("accumulated.safetensors").exists();
        assert_eq!(
            half,
            accumulate == 3,
            "the restart is within an optimizer step"
        );
        drop(first);
        let mut resumed = learner(config);
        resumed.restore(dir.path()).unwrap();
        for turn in 10..20 {
            let report = straight.step(&turned(turn)).unwrap();
            assert_eq!(resumed.step(&turned(turn)).unwrap(), report);
        }
        assert_eq!(
            saved(&resumed),
            saved(&straight),
            "{optimizer:?} {accumulate}"
        );
        let digests = [&straight, &resumed].map(|l| l.export().unwrap().digest);
        assert_eq!(digests[0], digests[1]);
    }
}

/// What `before` saved after ten batches, restored under the settings `after`.
fn taken_over(before: TrainerConfig, after: TrainerConfig) -> GrpoLearner<Toy> {
    let mut first = learner(before);
    for turn in 0..10 {
        first.step(&turned(turn)).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    first.save(dir.path()).unwrap();
    let mut second = learner(after);
    second.restore(dir.path()).unwrap();
    second
}

/// The moments of vectors have the same form in both optimizers, and other units.
#[test]
fn moments_of_another_optimizer_begin_anew() {
    let adafactor = OptimizerConfig::Adafactor {
        betas: [0.9, 0.999],
        epsilon: 1e-30,
        clip_rms: 1.0,
    };
    let moments = |learner: &GrpoLearner<Toy>| {
        let mut files = saved(learner).into_iter();
        files.find(|(name, _)| name == "optimizer.safetensors")
    };
    for (before, after) in [
        (adafactor, OptimizerConfig::ADAMW),
        (OptimizerConfig::ADAMW, adafactor),
    ] {
        let none = moments(&learner(everything(after, 1)));
        let kept = moments(&taken_over(everything(before, 1), everything(before, 1)));
        let other = moments(&taken_over(everything(before, 1), everything(after, 1)));
        assert!(none.is_some() && kept != none);
        assert_eq!(other, none, "{before:?} to {after:?}");
    }
}

#[test]
fn a_sum_that_was_begun_is_finished_under_other_settings() {
    let whole = everything(OptimizerConfig::ADAMW, 1);
    let mut learner = taken_over(everything(OptimizerConfig::ADAMW, 3), whole);
    let has_sum = |learner: &GrpoLearner<Toy>| {
        let files = saved(learner);
        files
            .iter()
            .any(|(name, _)| name == "accumulated.safetensors")
    };
    assert!(has_sum(&learner));
    learner.step(&turned(10)).unwrap();
    assert!(!has_sum(&learner));
}

#[test]
fn a_damaged_save_of_any_kind_changes_nothing() {
    let mut learner = learner(everything(OptimizerConfig::ADAFACTOR, 3));
    learner.step(&mixed()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    learner.save(dir.path()).unwrap();
    learner.step(&mixed()).unwrap();
    let before = saved(&learner);
    for name in ["accumulated.safetensors", "average.safetensors"] {
        let path = dir.path().join(name);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
        let error = learner.restore(dir.path()).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert!(saved(&learner) == before, "{name}");
        std::fs::write(&path, bytes).unwrap();
    }
    learner.restore(dir.path()).unwrap();
    assert!(saved(&learner) != before);
}

#[test]
fn the_rate_follows_the_schedule() {
    let config = TrainerConfig {
        learning_rate: 1.0,
        schedule: Schedule {
            warmup_steps: 2,
            decay: Decay::Linear,
            decay_steps: 4,
            final_share: 0.0,
        },
        ..config()
    };
    let mut learner = learner(config);
    let rates = [(); 5].map(|()| learner.step(&mixed()).unwrap().metrics["learning_rate"]);
    assert_eq!(rates, [0.5, 1.0, 0.5, 0.0, 0.0]);
}

#[test]
fn accumulated_batches_make_one_step() {
    let mut learner = learner(TrainerConfig {
        accumulate_batches: 3,
        ..config()
    });
    let start = Toy::new().values("table");
    for version in 1..=6u64 {
        let report = learner.step(&mixed()).unwrap();
        assert_eq!((report.version.0, report.skipped), (version, false));
        let steps = f64::from(u8::from(version % 3 == 0));
        assert_eq!(report.metrics["updates"], steps, "version {version}");
        assert_eq!(learner.model().values("table") == start, version < 3);
    }
}

#[test]
fn what_is_not_finite_leaves_an_accumulated_step_whole() {
    let config = TrainerConfig {
        accumulate_batches: 2,
        ..config()
    };
    let broken = batch(Objective::PolicyGradient, vec![sample(NAN, &[1], 1.0)]);
    let mut clean = learner(TrainerConfig::clone(&config));
    let nothing = batch(Objective::PolicyGradient, vec![sample(0, &[1], 0.0)]);
    let mut hit = learner(config);
    for learner in [&mut clean, &mut hit] {
        learner.step(&mixed()).unwrap();
    }
    let report = hit.step(&broken).unwrap();
    assert_eq!(report.metrics["updates_not_finite"], 1.0);
    assert_eq!(report.metrics["updates"], 1.0, "the other batch counts");
    assert!(!report.skipped);
    // Clipping and AdamW's first step take the size of the gradient away: only the direction is
    // compared, which a batch without a gradient leaves.
    clean.step(&nothing).unwrap();
    for (a, b) in clean
        .model()
        .values("table")
        .iter()
        .zip(hit.model().values("table"))
    {
        assert!((a - b).abs() < 1e-6, "{a} is not {b}");
    }
    let skipped: Vec<bool> = (0..2).map(|_| hit.step(&broken).unwrap().skipped).collect();
    assert_eq!(skipped, [true, true], "nothing to come, nothing done");
    assert_eq!(hit.step(&mixed()).unwrap().metrics["not_finite_total"], 3.0);
}

#[test]
fn the_average_lags_and_either_is_published() {
    let weights = |learner: &GrpoLearner<Toy>| match learner.export().unwrap().source {
        WeightsSource::Memory(bytes) => bytes.to_vec(),
        other @ WeightsSource::Directory(_) => panic!("in memory, not {other:?}"),
    };
    let file = |learner: &GrpoLearner<Toy>, name: &str| {
        let mut files = saved(learner).into_iter();
        files
            .find(|(found, _)| found == name)
            .map(|(_, bytes)| bytes)
    };
    for publish in [Published::Current, Published::Average] {
        let mut learner = learner(TrainerConfig {
            average: AverageConfig {
                decay: 0.5,
                publish,
            },
            ..config()
        });
        let warm = batch(Objective::Imitation, vec![sample(2, &[1, 0], 0.0)]);
        learner.step(&warm).unwrap();
        assert_eq!(file(&learner, "average.safetensors"), None);
        learner.step(&mixed()).unwrap();
        let name = match publish {
            Published::Current => "weights.safetensors",
            Published::Average => "average.safetensors",
        };
        assert_eq!(Some(weights(&learner)), file(&learner, name), "{publish:?}");
        assert_ne!(
            file(&learner, "average.safetensors"),
            file(&learner, "weights.safetensors")
        );
    }
    assert_eq!(file(&learner(config()), "average.safetensors"), None);
}

/// `batch` cut into the parts that `part` names for each of its groups.
fn parts(batch: &Batch, part: &[usize]) -> Vec<Batch> {
    let names: BTreeSet<usize> = part.iter().copied().collect();
    names
        .into_iter()
        .map(|name| {
            let mut cut = batch.clone();
            cut.samples.retain(|s| part[s.group.0 as usize] == name);
            cut
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Steps are chosen by group and rules look at tokens or sequences, so groups may be spread
    /// over batches in any way. (Choosing tokens by entropy looks at a whole batch, and is left out.)
    #[test]
    fn several_batches_are_one(
        preset in prop::sample::select(Preset::ALL.to_vec()),
        part in prop::collection::vec(0usize..3, 6),
        grad_clip in prop::sample::select(vec![0.0, 0.01]),
    ) {
        let mut whole = mixed();
        for (sample, i) in whole.samples.iter_mut().zip(0u64..) {
            sample.group = dart_core::GroupId(i * i % 11 % 6);
        }
        let parts = parts(&whole, &part);
        let base = TrainerConfig {
            // So large an epsilon that weights move in proportion to the gradient.
            optimizer: OptimizerConfig::Adamw { betas: [0.0, 0.0], epsilon: 1e6 },
            learning_rate: 1e6,
            weight_decay: 0.0,
            grad_clip,
            kl_beta: 0.1,
            entropy_drop: 0.2,
            ..TrainerConfig::preset(preset)
        };
        let mut together = learner(base.clone());
        let mut apart = learner(TrainerConfig {
            accumulate_batches: parts.len() as u64,
            ..base
        });
        let one = together.step(&whole).unwrap();
        let reports: Vec<_> = parts.iter().map(|part| apart.step(part).unwrap()).collect();
        let last = &reports[reports.len() - 1].metrics;
        prop_assert_eq!(last["updates"], 1.0);
        let norms = (one.metrics["grad_norm"], last["grad_norm"]);
        prop_assert!((norms.0 - norms.1).abs() < 1e-6 * norms.0.max(1.0), "{norms:?}");
        for name in ["table", "bias"] {
            let (a, b) = (together.model().values(name), apart.model().values(name));
            for (a, b) in a.iter().zip(b) {
                prop_assert!((a - b).abs() < 2e-6 * norms.0.max(1.0) as f32, "{a} is not {b}");
            }
        }
    }
}
