//! Collation: advantages, images, prompts.

use std::sync::Arc;

use dart_core::{
    Batch, BatchId, ErrorKind, Group, GroupId, Objective, Outcome, PolicyVersion, SampleOrigin,
    Trajectory, TrajectoryId, advantage::Deviation,
};
use dart_curation::{AdvantageConfig, Credit, TrainingGroup, collate, imitation_batch};
use proptest::prelude::*;

use crate::common::{frame, scored, step, task};

fn trajectory(id: u128, reward: f64, shades: &[u8]) -> Trajectory {
    Trajectory {
        id: TrajectoryId(id),
        group: GroupId(4),
        task: task("t"),
        seed: 9,
        instruction: "do".into(),
        steps: shades
            .iter()
            .enumerate()
            .map(|(index, shade)| step(index as u32, *shade, PolicyVersion(id as u64)))
            .collect(),
        outcome: scored(reward),
        stop: dart_core::StopReason::Completed,
        error: None,
    }
}

fn group(trajectories: Vec<Trajectory>) -> TrainingGroup {
    TrainingGroup::of_rollouts(Group {
        id: GroupId(4),
        trajectories: trajectories.into_iter().map(Arc::new).collect(),
    })
}

fn advantages(batch: &Batch) -> Vec<f64> {
    batch
        .samples
        .iter()
        .map(|sample| {
            assert_eq!(sample.advantages.len(), sample.response.len());
            let first = sample.advantages[0];
            assert!(sample.advantages.iter().all(|a| *a == first));
            first
        })
        .collect()
}

/// golden/dart_paper.json: rewards 1, 0, .5, 0 with 3, 5, 2, 4 steps, both presets.
#[test]
fn golden_advantages_go_through_collation() {
    let group = group(vec![
        trajectory(1, 1.0, &[1; 3]),
        trajectory(2, 0.0, &[2; 5]),
        trajectory(3, 0.5, &[3; 2]),
        trajectory(4, 0.0, &[4; 4]),
    ]);
    let golden = [
        (
            Deviation::Population,
            [1.740_772_317_143, -0.696_308_926_857, 0.522_231_695_143],
        ),
        (
            Deviation::Sample,
            [1.677_450_326_416, -0.670_980_130_566, 0.503_235_097_925],
        ),
    ];
    for (deviation, [high, low, middle]) in golden {
        let credit = Credit {
            advantage: AdvantageConfig::StepWise { deviation },
            ..Credit::default()
        };
        let batch = collate(BatchId(0), std::slice::from_ref(&group), &credit).unwrap();
        let expected = [vec![high; 3], vec![low; 5], vec![middle; 2], vec![low; 4]].concat();
        for (got, expected) in advantages(&batch).iter().zip(&expected) {
            assert!((got - expected).abs() < 1e-9, "{got} is not {expected}");
        }
        assert_eq!(batch.samples.len(), expected.len());
    }
}

#[test]
fn images_are_kept_once_and_prompts_renumbered() {
    // Shades 5 and 6 appear in both trajectories; 7 twice in the second.
    let batch = collate(
        BatchId(3),
        &[group(vec![
            trajectory(1, 1.0, &[5, 6]),
            trajectory(2, 0.0, &[6, 7, 7, 5]),
        ])],
        &Credit::default(),
    )
    .unwrap();
    assert_eq!(batch.images.len(), 3);
    let shown: Vec<Vec<u32>> = batch
        .samples
        .iter()
        .map(|sample| sample.prompt.images.iter().map(|span| span.image).collect())
        .collect();
    let expected: [&[u32]; 6] = [&[0], &[0, 1], &[1], &[1, 2], &[2, 2], &[2, 0]];
    assert_eq!(shown, expected);
    for (image, shade) in batch.images.iter().zip([5, 6, 7]) {
        assert_eq!(image.frame, frame(shade));
        assert!(
            image.ui.as_ref().unwrap()[0]
                .text
                .ends_with(&shade.to_string())
        );
    }
    let spans = &batch.samples[1].prompt.images;
    assert_eq!(
        (spans[0].start, spans[1].start),
        (1, 4),
        "spans stay where they were"
    );
    assert_eq!(batch.id, BatchId(3));
    assert_eq!(batch.objective, Objective::PolicyGradient);
}

#[test]
fn samples_carry_their_own_step() {
    let source = trajectory(7, 1.0, &[1, 2]);
    let batch = collate(
        BatchId(0),
        &[group(vec![source.clone(), trajectory(8, 0.0, &[3])])],
        &Credit::default(),
    )
    .unwrap();
    for (index, step) in source.steps.iter().enumerate() {
        let sample = &batch.samples[index];
        assert_eq!((sample.trajectory, sample.step), (source.id, index as u32));
        assert_eq!(sample.response, step.decision.token_ids);
        assert_eq!(sample.rollout_log_probs, step.decision.rollout_log_probs);
        assert_eq!(sample.prompt.token_ids, step.decision.prompt.token_ids);
        assert_eq!(sample.version, PolicyVersion(7));
        assert_eq!(sample.temperature, 0.7);
        assert_eq!(sample.origin, SampleOrigin::Rollout);
    }
}

#[test]
fn a_prompt_that_shows_what_is_not_there_is_an_error() {
    let mut wrong = trajectory(1, 1.0, &[1, 2]);
    wrong.steps[0].decision.prompt.images[0].image = 1;
    let error = imitation_batch(BatchId(0), &[wrong]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.to_string().contains("image 1"), "{error}");
    let mut aborted = trajectory(1, 1.0, &[1]);
    aborted.outcome = Outcome::Aborted;
    let error = collate(BatchId(0), &[group(vec![aborted])], &Credit::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[test]
fn demonstrations_have_no_log_probs() {
    let batch = imitation_batch(
        BatchId(1),
        &[trajectory(1, 1.0, &[1, 1, 2]), trajectory(2, 1.0, &[2])],
    )
    .unwrap();
    assert_eq!(batch.objective, Objective::Imitation);
    assert_eq!((batch.samples.len(), batch.images.len()), (4, 2));
    for sample in &batch.samples {
        assert_eq!(sample.origin, SampleOrigin::Expert);
        assert!(sample.rollout_log_probs.is_empty());
        assert_eq!(sample.response.len(), 3);
    }
}

proptest! {
    #[test]
    fn advantages_sum_to_zero_and_images_fit(
        shapes in prop::collection::vec((0u8..=2, prop::collection::vec(0u8..4, 1..6)), 1..8),
    ) {
        let trajectories = shapes.iter().enumerate().map(|(id, (reward, shades))| {
            trajectory(id as u128, f64::from(*reward) / 2.0, shades)
        });
        let groups = [group(trajectories.collect())];
        let batch = collate(BatchId(0), &groups, &Credit::default()).unwrap();
        let sum: f64 = advantages(&batch).iter().sum();
        prop_assert!(sum.abs() < 1e-6);
        prop_assert!(batch.images.len() <= 4);
        let sources = groups[0].group.trajectories.iter().flat_map(|t| (0..t.steps.len()).map(move |s| (t, s)));
        for (sample, (source, index)) in batch.samples.iter().zip(sources) {
            let original = &source.steps[index].decision.prompt.images;
            for (span, old) in sample.prompt.images.iter().zip(original) {
                let shown = &source.steps[old.image as usize].observation.frame;
                prop_assert_eq!(&batch.images[span.image as usize].frame, shown);
            }
        }
    }
}
