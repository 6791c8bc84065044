//! Golden numbers and properties of the estimates.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// What is computed here against the peers' own functions; their counts have 1e-8 added.
const PEERS: f64 = 2e-9;

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The one copy of each file is dart-kernels'.
fn peers() -> Value {
    read(include_str!(
        "../../../dart-kernels/tests/data/peer_losses.json"
    ))
}

fn numbers(value: &Value) -> Vec<f64> {
    let values = value.as_array().unwrap().iter();
    values.map(|v| v.as_f64().unwrap()).collect()
}

#[track_caller]
fn assert_close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < tolerance, "{got}, not {expected}");
    }
}

/// Outcomes of the peers' two groups, in order.
fn groups(golden: &Value) -> [Vec<f64>; 2] {
    let rewards = numbers(&golden["inputs"]["outcome_reward"]);
    assert_eq!(
        golden["inputs"]["group"],
        serde_json::json!(["a", "a", "b", "b"])
    );
    [rewards[..2].to_vec(), rewards[2..].to_vec()]
}

/// The valid tokens of a padded 4 × 4 array, row by row.
fn rows(golden: &Value, padded: &[f64]) -> Vec<Vec<f64>> {
    let masks = golden["inputs"]["mask"].as_array().unwrap().iter();
    masks
        .zip(padded.chunks(4))
        .map(|(mask, row)| {
            let valid = numbers(mask).into_iter().zip(row);
            valid.filter(|(m, _)| *m == 1.0).map(|(_, v)| *v).collect()
        })
        .collect()
}

fn of_groups(golden: &Value, estimate: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    groups(golden)
        .iter()
        .flat_map(|rewards| estimate(rewards))
        .collect()
}

#[test]
fn step_wise_of_paper_and_released_code() {
    let golden = read(include_str!(
        "../../../dart-kernels/tests/data/dart_paper.json"
    ));
    let field = |name: &str| -> Vec<f64> {
        let all = golden["trajectories"].as_array().unwrap().iter();
        all.map(|t| t[name].as_f64().unwrap()).collect()
    };
    let lengths: Vec<usize> = field("length").iter().map(|l| *l as usize).collect();
    for (deviation, name) in [
        (Deviation::Population, "advantage_paper_per_step"),
        (Deviation::Sample, "advantage_released_per_step"),
    ] {
        let advantages = step_wise_advantages(&field("reward"), &lengths, deviation);
        let by_step: Vec<f64> = advantages
            .iter()
            .zip(&lengths)
            .flat_map(|(advantage, length)| vec![*advantage; *length])
            .collect();
        assert_close(&by_step, &numbers(&golden[name]), 1e-9);
    }
}

#[test]
fn three_readings_of_one_group() {
    let golden = read(include_str!(
        "../../../dart-kernels/tests/data/dart_reference.json"
    ));
    let golden = &golden["grpo"];
    let rewards = numbers(&golden["rewards"]);
    let lengths: Vec<usize> = numbers(&golden["steps"])
        .iter()
        .map(|s| *s as usize)
        .collect();
    let population = step_wise_advantages(&rewards, &lengths, Deviation::Population);
    assert_close(&population, &numbers(&golden["paper_population_adv"]), 1e-9);
    let sample = step_wise_advantages(&rewards, &lengths, Deviation::Sample);
    assert_close(&sample, &numbers(&golden["code_adv"]), 1e-9);
    let by_trajectory = grpo_advantages(&rewards, 1e-6);
    assert_close(
        &by_trajectory,
        &numbers(&golden["trajectory_level_adv"]),
        1e-9,
    );
}

#[test]
fn grpo_by_trajectory() {
    let golden = peers();
    let got = of_groups(&golden, |rewards| grpo_advantages(rewards, 1e-6));
    assert_close(&got, &numbers(&golden["outputs"]["grpo_adv_seq"]), PEERS);
    let equal = numbers(&golden["outputs"]["grpo_all_equal"]);
    assert_eq!(grpo_advantages(&[0.5; 4], 1e-6), equal);
}

/// The peer gives a trajectory without companions its raw reward (in single precision). Here it has
/// nothing to be compared with and gets 0.
#[test]
fn grpo_of_one_alone_is_nothing() {
    let golden = peers();
    let expected = numbers(&golden["outputs"]["grpo_1000_plus_singleton_0.5"]);
    let got = grpo_advantages(&[1.0, 0.0, 0.0, 0.0], 1e-6);
    assert_close(&got, &expected[..4], PEERS);
    assert!((expected[4] - 0.5 / (1.0 + 1e-6)).abs() < 1e-7);
    assert_eq!(grpo_advantages(&[0.5], 1e-6), [0.0]);
    assert_eq!(leave_one_out_advantages(&[0.5]), [0.0]);
    assert_eq!(grpo_advantages(&[], 1e-6), [0.0; 0]);
}

#[test]
fn dr_grpo_and_rloo() {
    let golden = peers();
    let got = of_groups(&golden, centred_advantages);
    assert_close(&got, &numbers(&golden["outputs"]["drgrpo_adv_seq"]), PEERS);
    let got = of_groups(&golden, leave_one_out_advantages);
    assert_close(&got, &numbers(&golden["outputs"]["rloo_adv_seq"]), PEERS);
}

fn whitened(rows: &[Vec<f64>]) -> Vec<f64> {
    let mut all = rows.concat();
    whiten(&mut all);
    all
}

#[test]
fn reinforce_plus_plus_with_and_without_baseline() {
    let golden = peers();
    let lengths: Vec<usize> = rows(&golden, &[0.0; 16]).iter().map(Vec::len).collect();
    let rewards = numbers(&golden["inputs"]["outcome_reward"]);
    let returns = rewards.iter().zip(&lengths);
    let returns = returns.map(|(reward, length)| discounted_outcome(*reward, *length, 1.0));
    let returns: Vec<_> = returns.collect();
    let expected = rows(&golden, &numbers(&golden["outputs"]["rfpp_adv"])).concat();
    assert_close(&whitened(&returns), &expected, PEERS);
    let centred = of_groups(&golden, centred_advantages);
    let centred = centred.iter().zip(&lengths);
    let centred = centred.map(|(advantage, length)| vec![*advantage; *length]);
    let centred: Vec<_> = centred.collect();
    let expected = rows(&golden, &numbers(&golden["outputs"]["rfpp_base_adv"])).concat();
    assert_close(&whitened(&centred), &expected, PEERS);
}

#[test]
fn generalised_advantages_and_returns() {
    let golden = peers();
    let values: Vec<f64> = golden["inputs"]["gae_values"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(numbers)
        .collect();
    let rewards = numbers(&golden["inputs"]["outcome_reward"]);
    let estimates: Vec<Gae> = rows(&golden, &values)
        .iter()
        .zip(rewards)
        .map(|(values, reward)| {
            let mut by_token = vec![0.0; values.len()];
            *by_token.last_mut().unwrap() = reward;
            generalised_advantages(&by_token, values, 0.99, 0.95)
        })
        .collect();
    let returns: Vec<f64> = estimates.iter().flat_map(|e| e.returns.clone()).collect();
    let expected = numbers(&golden["outputs"]["verl_gae_returns"]);
    assert_close(&returns, &rows(&golden, &expected).concat(), PEERS);
    let advantages: Vec<_> = estimates.into_iter().map(|e| e.advantages).collect();
    let expected = numbers(&golden["outputs"]["verl_gae_g0.99_l0.95_whitened_adv"]);
    assert_close(
        &whitened(&advantages),
        &rows(&golden, &expected).concat(),
        PEERS,
    );
}

#[test]
fn discounted_returns_fall_towards_the_beginning() {
    assert_close(
        &discounted_outcome(2.0, 3, 0.5),
        &[0.5, 1.0, 2.0],
        f64::MIN_POSITIVE,
    );
    assert_eq!(discounted_returns(&[1.0, 0.0, 4.0], 0.5), [2.0, 2.0, 4.0]);
    assert_eq!(discounted_outcome(1.0, 0, 0.9), [0.0; 0]);
}

/// Two trajectories begin with the same screen; a third step is seen twice within one of them.
#[test]
fn gigpo_compares_steps_with_the_same_observation() {
    let seen = [vec!['a', 'b', 'a'], vec!['a', 'c']];
    let rule = Gigpo {
        weight: 0.5,
        discount: 0.9,
        epsilon: None,
    };
    let got = gigpo_advantages(&[1.0, 0.0], &seen, rule);
    // Returns at 'a': .81, 1 and 0; b and c are seen once.
    let mean = 1.81 / 3.0;
    let expected = [
        [0.5 + 0.5 * (0.81 - mean), 0.5, 0.5 + 0.5 * (1.0 - mean)].to_vec(),
        [-0.5 - 0.5 * mean, -0.5].to_vec(),
    ];
    for (got, expected) in got.iter().zip(&expected) {
        assert_close(got, expected, 1e-12);
    }
    let divided = Gigpo {
        weight: 0.0,
        epsilon: Some(1e-6),
        ..rule
    };
    let got = gigpo_advantages(&[1.0, 0.0], &seen, divided).concat();
    let by_trajectory = grpo_advantages(&[1.0, 0.0], 1e-6);
    let [high, low] = [by_trajectory[0], by_trajectory[1]];
    assert_eq!(got, [high, high, high, low, low]);
}

fn rewards() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-1.0f64..=1.0, 1..12)
}

proptest! {
    #[test]
    fn step_wise_advantages_sum_to_zero_over_steps(
        group in prop::collection::vec((0.0f64..=1.0, 1usize..30), 1..12),
    ) {
        let (rewards, lengths): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        for deviation in [Deviation::Population, Deviation::Sample] {
            let advantages = step_wise_advantages(&rewards, &lengths, deviation);
            let sum: f64 = advantages.iter().zip(&lengths).map(|(a, l)| a * *l as f64).sum();
            prop_assert!(sum.abs() < 1e-6, "sum {}", sum);
        }
    }

    #[test]
    fn advantages_by_trajectory_sum_to_zero(rewards in rewards(), epsilon in 1e-6f64..1e-3) {
        for advantages in [
            grpo_advantages(&rewards, epsilon),
            centred_advantages(&rewards),
            leave_one_out_advantages(&rewards),
        ] {
            prop_assert!(advantages.iter().sum::<f64>().abs() < 1e-6);
        }
    }

    #[test]
    fn leave_one_out_is_what_it_says(rewards in prop::collection::vec(-1.0f64..=1.0, 2..12)) {
        let sum: f64 = rewards.iter().sum();
        for (reward, advantage) in rewards.iter().zip(leave_one_out_advantages(&rewards)) {
            let others = (sum - reward) / (rewards.len() - 1) as f64;
            prop_assert!((advantage - (reward - others)).abs() < 1e-12);
        }
    }

    #[test]
    fn whitening_gives_mean_zero_and_variance_one(
        mut values in prop::collection::vec(-9.0f64..9.0, 2..50),
    ) {
        let spread = variance(&values) > 1e-2;
        whiten(&mut values);
        prop_assert!(mean(&values).abs() < 1e-9);
        prop_assert!(!spread || (variance(&values) - 1.0).abs() < 1e-5);
    }

    /// An advantage belongs to its trajectory, not to its place.
    #[test]
    fn order_does_not_matter(
        group in prop::collection::vec((0.0f64..=1.0, prop::collection::vec(0u8..3, 1..6)), 2..8),
        turn in 0usize..8,
    ) {
        let estimates = |group: &[(f64, Vec<u8>)]| {
            let (rewards, seen): (Vec<f64>, Vec<Vec<u8>>) = group.iter().cloned().unzip();
            let lengths: Vec<usize> = seen.iter().map(Vec::len).collect();
            let rule = Gigpo { weight: 1.0, discount: 0.95, epsilon: None };
            let mut all = vec![
                step_wise_advantages(&rewards, &lengths, Deviation::Population),
                grpo_advantages(&rewards, 1e-4),
                leave_one_out_advantages(&rewards),
            ];
            let steps = gigpo_advantages(&rewards, &seen, rule);
            all.push(steps.into_iter().map(|row| row.iter().sum()).collect());
            all
        };
        let turn = turn % group.len();
        let mut turned = group.clone();
        turned.rotate_left(turn);
        for (mut before, after) in estimates(&group).into_iter().zip(estimates(&turned)) {
            before.rotate_left(turn);
            for (before, after) in before.iter().zip(&after) {
                // Rounding of a deviation near 0 is enlarged by the division.
                prop_assert!((before - after).abs() < 1e-6, "{} {}", before, after);
            }
        }
    }

    /// With λ = γ = 1 an advantage is the return less the value, whatever the values are.
    #[test]
    fn generalised_advantages_telescope(
        tokens in prop::collection::vec((-1.0f64..1.0, -1.0f64..1.0), 1..20),
    ) {
        let (rewards, values): (Vec<f64>, Vec<f64>) = tokens.into_iter().unzip();
        let gae = generalised_advantages(&rewards, &values, 1.0, 1.0);
        for (got, expected) in gae.returns.iter().zip(discounted_returns(&rewards, 1.0)) {
            prop_assert!((got - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn gigpo_advantages_sum_to_zero_per_group(
        group in prop::collection::vec((0.0f64..=1.0, prop::collection::vec(0u8..4, 1..6)), 1..8),
    ) {
        let (rewards, seen): (Vec<f64>, Vec<Vec<u8>>) = group.into_iter().unzip();
        let rule = Gigpo { weight: 1.0, discount: 0.95, epsilon: None };
        let all = gigpo_advantages(&rewards, &seen, rule);
        let episodes = centred_advantages(&rewards);
        let mut by_observation: BTreeMap<u8, f64> = BTreeMap::new();
        for ((row, advantages), episode) in seen.iter().zip(&all).zip(&episodes) {
            for (seen, advantage) in row.iter().zip(advantages) {
                *by_observation.entry(*seen).or_default() += advantage - episode;
            }
        }
        for sum in by_observation.values() {
            prop_assert!(sum.abs() < 1e-9);
        }
    }
}
