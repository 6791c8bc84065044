//! Golden numbers through everything but the model: the loss of preset `paper`, choice of tokens.

use dart_core::{
    Batch, BatchId, GroupId, LogProbKind, Objective, PolicyVersion, Prompt, Sample, SampleOrigin,
    TrajectoryId,
};
use dart_kernels::{RowStats, TokenLoss, row_stats, token_loss};
use serde_json::Value;

use crate::{
    TrainerConfig,
    choice::{choose, select},
    tokens::{Known, Shares},
};

fn numbers(value: &Value) -> Vec<f64> {
    let values = value.as_array().unwrap().iter();
    values.map(|v| v.as_f64().unwrap()).collect()
}

fn row(log_prob: f64, entropy: f64) -> RowStats {
    RowStats {
        log_prob,
        entropy,
        ..row_stats(&[0.0], 0, 1.0)
    }
}

fn sample(step: &Value, advantage: f64) -> Sample {
    let single = |name: &str| numbers(&step[name]).iter().map(|x| *x as f32).collect();
    Sample {
        trajectory: TrajectoryId(0),
        step: 0,
        group: GroupId(0),
        origin: SampleOrigin::Rollout,
        prompt: Prompt::default(),
        response: numbers(&step["targets"])
            .iter()
            .map(|x| *x as u32)
            .collect(),
        rollout_log_probs: single("rollout"),
        log_prob_kind: LogProbKind::AfterTemperature,
        temperature: 1.0,
        version: PolicyVersion(0),
        advantages: vec![advantage; numbers(&step["targets"]).len()].into(),
    }
}

#[test]
fn rounding_does_not_break_ties() {
    let step = serde_json::json!({"targets": [1], "rollout": [-0.5]});
    let batch = Batch {
        id: BatchId(0),
        objective: Objective::PolicyGradient,
        images: Vec::new(),
        samples: vec![sample(&step, 1.0); 4],
    };
    let kept = |entropies: [f64; 4]| {
        let statistics = entropies.map(|entropy| vec![row(-0.5, entropy)]);
        select(&batch, &statistics.to_vec(), 0.2)
    };
    assert_eq!(kept([0.5, 0.500_000_1, 0.7, 0.9]), [true; 4]);
    assert_eq!(kept([0.5, 0.51, 0.7, 0.9]), [false, true, true, true]);
    let broken = kept([f64::NAN, 0.51, 0.7, 0.9]);
    assert_eq!(broken, [true, false, true, true], "it stays, to be noticed");
}

/// The whole path of preset `paper` but for the model: entropies, selection, weights, loss.
#[test]
fn golden_selection_and_loss() {
    let golden: Value =
        serde_json::from_str(include_str!("../tests/data/dart_paper.json")).unwrap();
    let steps = golden["steps"].as_array().unwrap();
    let advantages = numbers(&golden["advantage_paper_per_step"]);
    let batch = Batch {
        id: BatchId(0),
        objective: Objective::PolicyGradient,
        images: Vec::new(),
        samples: steps
            .iter()
            .zip(&advantages)
            .map(|(s, a)| sample(s, *a))
            .collect(),
    };
    let statistics = |log_probs: &str, step: &Value| -> Vec<RowStats> {
        let logits = step["old_logits"].as_array().unwrap().iter();
        let given = numbers(&step[log_probs]);
        logits
            .zip(given)
            .map(|(x, lp)| row(lp, row_stats(&numbers(x), 0, 1.0).entropy))
            .collect()
    };
    let of_all =
        |name: &str| -> Vec<Vec<RowStats>> { steps.iter().map(|s| statistics(name, s)).collect() };
    let config = TrainerConfig::default();
    let old = of_all("old");
    let kept = select(&batch, &old, config.entropy_drop);
    let expected: Vec<bool> = steps.iter().map(|s| s["kept"] == true).collect();
    assert_eq!(kept, expected);
    let known = Known {
        chosen: choose(&batch, Some(&old), &config).unwrap(),
        statistics: Some(old),
        reference: Some(of_all("reference")),
    };
    let all: Vec<usize> = (0..steps.len()).collect();
    let shares = Shares::of((&batch, &known), &config, &all).unwrap();
    let mut tokens = shares.tokens(&all).unwrap().into_iter();
    let (mut loss, mut seen) = (0.0, 0);
    for (step, sample) in steps.iter().zip(&batch.samples) {
        let gradient = numbers(&step["grad_current"]);
        for (t, current) in numbers(&step["current"]).iter().enumerate() {
            let mut token = tokens.next().unwrap();
            // Batches hold f32 log-probs; the golden numbers are f64.
            assert!(
                (token.rollout.unwrap() - f64::from(sample.rollout_log_probs[t])).abs() < 1e-12
            );
            token.rollout = Some(numbers(&step["rollout"])[t]);
            let outcome = token_loss(&config.token_loss(), &token, *current, 0.0);
            let (got, expected) = (outcome.by_log_prob, gradient[t]);
            assert!((got - expected).abs() <= 1e-9 * expected.abs().max(1.0));
            loss += outcome.loss;
            seen += 1;
        }
    }
    let expected = golden["loss"].as_f64().unwrap();
    assert!((loss - expected).abs() < 1e-9, "{loss} is not {expected}");
    assert!(seen > steps.len() && tokens.next().is_none());
    assert_eq!(config.token_loss(), TokenLoss::PAPER);
}

/// The tokens of highest entropy of a batch, as another trainer chooses them.
#[test]
fn golden_token_selection() {
    let golden: Value =
        serde_json::from_str(include_str!("../tests/data/peer_losses.json")).unwrap();
    let flat = |value: &Value| -> Vec<f64> {
        let rows = value.as_array().unwrap().iter();
        rows.flat_map(numbers).collect()
    };
    let inputs = &golden["inputs"];
    let masks = inputs["trl_top20_mask"].as_array().unwrap();
    let entropies = inputs["trl_top20_entropy"].as_array().unwrap();
    // Samples hold the tokens that exist; the file's rows are padded.
    let statistics: Vec<Vec<RowStats>> = masks
        .iter()
        .zip(entropies)
        .map(|(mask, entropies)| {
            let pairs = numbers(mask).into_iter().zip(numbers(entropies));
            let read = pairs.filter(|(read, _)| *read != 0.0);
            read.map(|(_, entropy)| row(-1.0, entropy)).collect()
        })
        .collect();
    let samples = statistics.iter().map(|rows| {
        let step = serde_json::json!({
            "targets": vec![0; rows.len()], "rollout": vec![-1.0; rows.len()],
        });
        sample(&step, 1.0)
    });
    let batch = Batch {
        id: BatchId(0),
        objective: Objective::PolicyGradient,
        images: Vec::new(),
        samples: samples.collect(),
    };
    let config = TrainerConfig {
        entropy_drop: 0.0,
        token_entropy_drop: 0.8,
        ..TrainerConfig::default()
    };
    let chosen = choose(&batch, Some(&statistics), &config).unwrap();
    let expected = numbers(&golden["outputs"]["trl_top20"]["mask"]);
    let read = flat(&inputs["trl_top20_mask"]);
    let expected: Vec<bool> = expected
        .iter()
        .zip(read)
        .filter_map(|(kept, read)| (read != 0.0).then_some(*kept != 0.0))
        .collect();
    assert!(expected.contains(&true) && expected.contains(&false));
    assert_eq!(chosen.trained.concat(), expected);
    assert!(chosen.counted.concat().iter().all(|counted| *counted));
}
