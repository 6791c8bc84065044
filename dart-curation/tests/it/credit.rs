//! Every estimate of advantages on its way into a batch.

use std::sync::Arc;

use dart_core::{
    BatchId, Group, GroupId, Outcome, PolicyVersion, StopReason, Trajectory, TrajectoryId,
};
use dart_curation::{AdvantageConfig, Credit, TrainingGroup, collate, overlong::OverlongConfig};
use proptest::prelude::*;
use serde_json::Value;

use crate::common::{scored, step, task};

const ALL: [&str; 7] = [
    r#"{"kind": "step-wise"}"#,
    r#"{"kind": "grpo"}"#,
    r#"{"kind": "dr-grpo"}"#,
    r#"{"kind": "rloo"}"#,
    r#"{"kind": "reinforce++", "discount": 0.9}"#,
    r#"{"kind": "reinforce++-baseline"}"#,
    r#"{"kind": "gigpo"}"#,
];

fn estimate(text: &str) -> AdvantageConfig {
    serde_json::from_str(text).unwrap()
}

fn credit(text: &str) -> Credit {
    Credit {
        advantage: estimate(text),
        ..Credit::default()
    }
}

/// A trajectory with one step for each shade, each with so many tokens.
fn trajectory(id: u128, outcome: Outcome, shades: &[u8], tokens: usize) -> Arc<Trajectory> {
    let mut steps: Vec<_> = shades
        .iter()
        .enumerate()
        .map(|(index, shade)| step(index as u32, *shade, PolicyVersion(0)))
        .collect();
    for step in &mut steps {
        step.decision.token_ids = vec![1; tokens].into();
        step.decision.rollout_log_probs = vec![-0.1; tokens].into();
        step.observation.last_action_error = None;
    }
    Arc::new(Trajectory {
        id: TrajectoryId(id),
        group: GroupId(0),
        task: task("t"),
        seed: 9,
        instruction: "do".into(),
        steps,
        outcome,
        stop: StopReason::Completed,
        error: None,
    })
}

fn group(id: u64, trajectories: Vec<Arc<Trajectory>>) -> TrainingGroup {
    TrainingGroup::of_rollouts(Group {
        id: GroupId(id),
        trajectories,
    })
}

/// Token advantages by trajectory, in the order of the batch.
fn advantages(groups: &[TrainingGroup], credit: &Credit) -> Vec<(TrajectoryId, u32, Arc<[f64]>)> {
    let batch = collate(BatchId(0), groups, credit).unwrap();
    let samples = batch.samples.into_iter();
    samples
        .map(|sample| {
            assert_eq!(sample.advantages.len(), sample.response.len());
            (sample.trajectory, sample.step, sample.advantages)
        })
        .collect()
}

/// The groups a and b of the peers' file: one step for each row, with its valid tokens.
fn peers() -> (Value, Vec<TrainingGroup>) {
    let text = include_str!("../../../dart-kernels/tests/data/peer_losses.json");
    let golden: Value = serde_json::from_str(text).unwrap();
    let rows = (0..4).map(|row| {
        let reward = golden["inputs"]["outcome_reward"][row].as_f64().unwrap();
        let mask = golden["inputs"]["mask"][row].as_array().unwrap();
        let tokens = mask.iter().filter(|m| **m == 1).count();
        trajectory(row as u128, scored(reward), &[row as u8 + 1], tokens)
    });
    let rows: Vec<_> = rows.collect();
    let groups = rows.chunks(2).zip(0..);
    let groups = groups.map(|(rows, id)| group(id, rows.to_vec())).collect();
    (golden, groups)
}

#[test]
fn golden_advantages_of_the_peers_go_through_collation() {
    let (golden, groups) = peers();
    for (kind, name) in [
        ("grpo", "grpo_adv_seq"),
        ("dr-grpo", "drgrpo_adv_seq"),
        ("rloo", "rloo_adv_seq"),
        ("reinforce++", "rfpp_adv"),
        ("reinforce++-baseline", "rfpp_base_adv"),
    ] {
        let credit = credit(&format!(r#"{{"kind": "{kind}"}}"#));
        let expected = golden["outputs"][name].as_array().unwrap();
        for (row, (.., got)) in advantages(&groups, &credit).iter().enumerate() {
            for (t, got) in got.iter().enumerate() {
                let at = if expected.len() == 4 {
                    row
                } else {
                    4 * row + t
                };
                let expected = expected[at].as_f64().unwrap();
                assert!(
                    (got - expected).abs() < 2e-9,
                    "{name}: {got}, not {expected}"
                );
            }
        }
    }
}

/// Discount runs over the tokens of all steps of a trajectory, back from the last.
#[test]
fn returns_cross_the_steps() {
    let groups = [group(
        0,
        vec![
            trajectory(1, scored(1.0), &[1, 2], 2),
            trajectory(2, scored(0.0), &[3], 2),
        ],
    )];
    let got = advantages(
        &groups,
        &credit(r#"{"kind": "reinforce++", "discount": 0.5}"#),
    );
    let mut expected = [0.125, 0.25, 0.5, 1.0, 0.0, 0.0];
    dart_core::advantage::whiten(&mut expected);
    let got: Vec<f64> = got.iter().flat_map(|(.., row)| row.to_vec()).collect();
    assert_eq!(got, expected);
}

/// Pixels decide what is the same observation, not the place of the step.
#[test]
fn gigpo_knows_a_screen_again() {
    let groups = [group(
        0,
        vec![
            trajectory(1, scored(1.0), &[1, 2], 1),
            trajectory(2, scored(0.0), &[3, 2], 1),
        ],
    )];
    let config = r#"{"kind": "gigpo", "divided": false, "weight": 2.0}"#;
    let got: Vec<f64> = advantages(&groups, &credit(config))
        .iter()
        .map(|(.., row)| row[0])
        .collect();
    assert_eq!(got, [0.5, 1.5, -0.5, -1.5]);
}

/// A long success is worth less, the outcome itself stays.
#[test]
fn overlong_trajectories_lose_reward() {
    let groups = [group(
        0,
        vec![
            trajectory(1, scored(1.0), &[1; 9], 1),
            trajectory(2, scored(1.0), &[2; 3], 1),
        ],
    )];
    let overlong = OverlongConfig {
        enabled: true,
        buffer: 0.2,
    };
    let credit = Credit {
        advantage: estimate(r#"{"kind": "dr-grpo"}"#),
        overlong,
    };
    let got = advantages(&groups, &credit);
    let of = |id| got.iter().find(|(t, ..)| *t == TrajectoryId(id)).unwrap().2[0];
    assert!((of(1) + 0.25).abs() < 1e-12 && (of(2) - 0.25).abs() < 1e-12);
    assert!(
        groups[0]
            .group
            .trajectories
            .iter()
            .all(|t| t.outcome.is_success())
    );
}

type Shape = Vec<Vec<(u8, Vec<u8>, usize)>>;

fn shapes() -> impl Strategy<Value = Shape> {
    let trajectory = (0u8..=4, prop::collection::vec(1u8..4, 1..5), 1usize..4);
    prop::collection::vec(prop::collection::vec(trajectory, 2..6), 1..4)
}

fn groups_of(shapes: &Shape) -> Vec<TrainingGroup> {
    let groups = shapes.iter().enumerate().map(|(g, rows)| {
        let rows = rows
            .iter()
            .enumerate()
            .map(|(n, (reward, shades, tokens))| {
                let id = (g * 100 + n) as u128;
                trajectory(id, scored(f64::from(*reward) / 4.0), shades, *tokens)
            });
        group(g as u64, rows.collect())
    });
    groups.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the order of groups and of their trajectories, each token keeps its advantage.
    #[test]
    fn order_changes_no_advantage(shapes in shapes(), turn in 0usize..6) {
        let groups = groups_of(&shapes);
        let mut turned = groups.clone();
        turned.reverse();
        for TrainingGroup { group, .. } in &mut turned {
            let turn = turn % group.trajectories.len();
            group.trajectories.rotate_left(turn);
        }
        for config in ALL {
            let mut before = advantages(&groups, &credit(config));
            let mut after = advantages(&turned, &credit(config));
            before.sort_by_key(|(trajectory, step, _)| (*trajectory, *step));
            after.sort_by_key(|(trajectory, step, _)| (*trajectory, *step));
            for ((a, i, before), (b, j, after)) in before.iter().zip(&after) {
                prop_assert_eq!((a, i), (b, j));
                for (before, after) in before.iter().zip(after.iter()) {
                    // Rounding of a deviation near 0 is enlarged by the division.
                    prop_assert!((before - after).abs() < 1e-6, "{}: {} {}", config, before, after);
                }
            }
        }
    }

    /// Each estimate sums to zero over what it compares: steps, trajectories, or the batch's tokens.
    #[test]
    fn advantages_sum_to_zero(shapes in shapes(), overlong in any::<bool>()) {
        let groups = groups_of(&shapes);
        for config in ALL {
            let mut credit = credit(config);
            credit.overlong.enabled = overlong;
            let all = advantages(&groups, &credit);
            if config.contains("reinforce") {
                let sum: f64 = all.iter().flat_map(|(.., row)| row.iter()).sum();
                prop_assert!(sum.abs() < 1e-6, "{}: {}", config, sum);
                continue;
            }
            let by_step = config.contains("step-wise") || config.contains("gigpo");
            for TrainingGroup { group, .. } in &groups {
                // GiGPO without its episode part sums to zero over steps.
                let episodes = dart_core::advantage::grpo_advantages(
                    &group.trajectories.iter().map(|t| {
                        let reward = t.outcome.reward().unwrap().value();
                        credit.overlong.shaped(reward, t.steps.len(), t.task.horizon)
                    }).collect::<Vec<_>>(),
                    1e-6,
                );
                let mut sum = 0.0;
                for (trajectory, episode) in group.trajectories.iter().zip(episodes) {
                    let rows = all.iter().filter(|(id, ..)| *id == trajectory.id);
                    let episode = if config.contains("gigpo") { episode } else { 0.0 };
                    let values = rows.map(|(.., row)| row[0] - episode);
                    sum += if by_step { values.sum::<f64>() } else { values.take(1).sum() };
                }
                prop_assert!(sum.abs() < 1e-6, "{}: {}", config, sum);
            }
        }
    }
}
