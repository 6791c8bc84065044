//! The paper's loss and that of its public code, made by automatic differentiation in f64.

use dart_kernels::{
    Aggregation, ClipSide, Counts, LossMetrics, RatioLevel, Selection, Sequences, Token, TokenLoss,
    TokenOutcome, row_stats, segment_means, select_steps, token_losses, token_mask,
};
use serde_json::Value;

use crate::support::{assert_all_close, assert_close, numbers, read, slopes, token, total};

const TOLERANCE: f64 = 1e-9;

/// The steps of the paper's golden group.
struct Paper {
    golden: Value,
    steps: Sequences,
    kept: Vec<bool>,
}

impl Paper {
    fn read() -> Self {
        let golden = read(include_str!("../data/dart_paper.json"));
        let list = golden["steps"].as_array().unwrap();
        let length = |step: &Value| step["current"].as_array().unwrap().len();
        let lengths: Vec<usize> = list.iter().map(length).collect();
        let kept = list.iter().map(|step| step["kept"] == true).collect();
        Self {
            steps: Sequences::from_lengths(&lengths),
            kept,
            golden,
        }
    }

    fn all(&self, name: &str) -> Vec<f64> {
        let steps = self.golden["steps"].as_array().unwrap();
        steps.iter().flat_map(|step| numbers(&step[name])).collect()
    }

    fn tokens(&self, weights: &[f64]) -> Vec<Token> {
        let advantages = numbers(&self.golden["advantage_paper_per_step"]);
        let (old, rollout) = (self.all("old"), self.all("rollout"));
        let reference = self.all("reference");
        let of_step = self.steps.ranges().zip(advantages);
        let advantages = of_step.flat_map(|(range, advantage)| range.map(move |_| advantage));
        advantages
            .enumerate()
            .map(|(t, advantage)| Token {
                old: Some(old[t]),
                rollout: Some(rollout[t]),
                reference: Some(reference[t]),
                ..token(weights[t], advantage)
            })
            .collect()
    }

    fn outcomes(&self, weights: &[f64]) -> Vec<TokenOutcome> {
        let current: Vec<_> = self
            .all("current")
            .into_iter()
            .map(|lp| (lp, 0.0))
            .collect();
        token_losses(
            &TokenLoss::PAPER,
            &self.tokens(weights),
            &self.steps,
            &current,
        )
    }

    /// Each step's mean over its tokens, and the mean over the steps that `kept` keeps.
    fn weights(&self, kept: &[bool]) -> Vec<f64> {
        let mask = token_mask(kept, &vec![true; self.steps.tokens()], &self.steps).unwrap();
        let counts = Counts::of(&mask, &self.steps).unwrap();
        let mean = Aggregation::SequenceMeanTokenMean;
        mean.weights(&mask, &self.steps, counts).unwrap()
    }
}

#[test]
fn paper_entropies_and_the_steps_they_keep() {
    let paper = Paper::read();
    let mut entropies = Vec::new();
    for step in paper.golden["steps"].as_array().unwrap() {
        let targets = numbers(&step["targets"]);
        let rows = step["old_logits"].as_array().unwrap().iter();
        entropies.extend(
            rows.zip(targets)
                .map(|(row, target)| row_stats(&numbers(row), target as usize, 1.0).entropy),
        );
    }
    assert_all_close(
        &entropies,
        &paper.all("token_entropy"),
        TOLERANCE,
        "entropy",
    );
    let all = vec![true; entropies.len()];
    let segments = segment_means(&entropies, &all, &paper.steps).unwrap();
    let means: Vec<f64> = segments.iter().map(|segment| segment.mean).collect();
    assert_all_close(
        &means,
        &paper.all("mean_entropy"),
        TOLERANCE,
        "mean entropy",
    );
    let group = vec![7; means.len()];
    let selected = select_steps(&means, &group, Selection::Quantile(0.2)).unwrap();
    assert_eq!(selected.kept, paper.kept);
    let threshold = numbers(&paper.golden["entropy_quantile_20"])[0];
    let reach: Vec<bool> = means.iter().map(|mean| *mean >= threshold).collect();
    assert_eq!(selected.kept, reach);
}

#[test]
fn paper_loss_and_gradient() {
    let paper = Paper::read();
    let outcomes = paper.outcomes(&paper.weights(&paper.kept));
    let loss = numbers(&paper.golden["loss"])[0];
    assert_close(total(&outcomes), loss, TOLERANCE, "loss");
    assert_all_close(
        &slopes(&outcomes),
        &paper.all("grad_current"),
        TOLERANCE,
        "gradient",
    );
    for side in [ClipSide::Low, ClipSide::High, ClipSide::Dual] {
        assert!(
            outcomes.iter().any(|o| o.clip == side),
            "{side:?} is active somewhere"
        );
    }
}

#[test]
fn paper_losses_of_all_steps() {
    let paper = Paper::read();
    let every = vec![true; paper.steps.len()];
    let outcomes = paper.outcomes(&paper.weights(&every));
    let weights: Vec<f64> = outcomes.iter().map(|outcome| outcome.importance).collect();
    assert_all_close(
        &weights,
        &paper.all("is_weight"),
        TOLERANCE,
        "importance weight",
    );
    let count = paper.steps.len() as f64;
    let samples: Vec<f64> = paper
        .steps
        .ranges()
        .map(|range| total(&outcomes[range]) * count)
        .collect();
    assert_all_close(
        &samples,
        &paper.all("sample_loss"),
        TOLERANCE,
        "sample loss",
    );
}

/// The batch of the public code: tokens, their sequences, and log-prob and entropy of each.
fn released() -> (Value, Vec<Token>, Sequences, Vec<(f64, f64)>) {
    let golden = read(include_str!("../data/dart_reference.json"));
    let width = golden["T"].as_u64().unwrap() as usize;
    let lengths: Vec<usize> = numbers(&golden["lens"])
        .iter()
        .map(|l| *l as usize)
        .collect();
    let padded = Sequences::from_lengths(&vec![width; lengths.len()]);
    let mask: Vec<bool> = lengths
        .iter()
        .flat_map(|length| (0..width).map(move |t| t < *length))
        .collect();
    let counts = Counts::of(&mask, &padded).unwrap();
    let weights = Aggregation::SequenceMeanTokenMean
        .weights(&mask, &padded, counts)
        .unwrap();
    let row = |name: &str, b: usize| numbers(&golden[name][b]);
    let mut tokens = Vec::new();
    let mut current = Vec::new();
    for b in 0..lengths.len() {
        // The public code takes a weight of 1 where rollout log-probs are missing.
        let missing = row("rollout_logp", b).iter().all(|lp| *lp == 0.0);
        for t in 0..width {
            tokens.push(Token {
                target: row("targets", b)[t] as u32,
                old: Some(row("old_logp", b)[t]),
                rollout: (!missing).then_some(row("rollout_logp", b)[t]),
                reference: Some(row("ref_logp", b)[t]),
                ..token(weights[b * width + t], numbers(&golden["adv"])[b])
            });
            let logits = numbers(&golden["logits"][b][t]);
            let stats = row_stats(&logits, tokens[b * width + t].target as usize, 1.0);
            current.push((stats.log_prob, stats.entropy));
        }
    }
    (golden, tokens, padded, current)
}

#[test]
fn released_log_probs_and_entropies() {
    let (golden, tokens, sequences, current) = released();
    let expected = numbers(&golden["logp"])
        .into_iter()
        .zip(numbers(&golden["entropy"]));
    let read = tokens.iter().zip(&current).zip(expected);
    for ((_, got), expected) in read.filter(|((token, _), _)| token.weight != 0.0) {
        assert_close(got.0, expected.0, TOLERANCE, "log-prob");
        assert_close(got.1, expected.1, TOLERANCE, "entropy");
    }
    let mask: Vec<bool> = tokens.iter().map(|token| token.weight != 0.0).collect();
    let entropies: Vec<f64> = current.iter().map(|(_, entropy)| *entropy).collect();
    let segments = segment_means(&entropies, &mask, &sequences).unwrap();
    let means: Vec<f64> = segments.iter().map(|segment| segment.mean).collect();
    assert_all_close(
        &means,
        &numbers(&golden["step_entropy_mean"]),
        TOLERANCE,
        "mean entropy",
    );
}

fn assert_loss_and_gradient(outcomes: &[TokenOutcome], expected: &Value) {
    let loss = numbers(&expected["loss"])[0];
    assert_close(total(outcomes), loss, TOLERANCE, "loss");
    let gradient = numbers(&expected["dloss_dlogp"]);
    assert_all_close(&slopes(outcomes), &gradient, TOLERANCE, "gradient");
}

#[test]
fn released_loss_and_gradient() {
    let (golden, tokens, sequences, current) = released();
    let expected = &golden["vanilla"];
    let outcomes = token_losses(&TokenLoss::RELEASED, &tokens, &sequences, &current);
    assert_loss_and_gradient(&outcomes, expected);
    let weights: Vec<f64> = outcomes.iter().map(|outcome| outcome.importance).collect();
    assert_all_close(
        &weights,
        &numbers(&expected["tis_w"]),
        TOLERANCE,
        "importance weight",
    );
    let metrics = LossMetrics::of(&TokenLoss::RELEASED, &tokens, &outcomes);
    // The public code counts every token cut by the upper or lower bound together.
    let clipped = metrics.clip_low + metrics.clip_high;
    assert_close(
        clipped,
        numbers(&expected["clipfrac"])[0],
        TOLERANCE,
        "clip fraction",
    );
    assert_eq!(metrics.clip_dual, numbers(&expected["clipfrac_lower"])[0]);
}

#[test]
fn released_loss_with_the_ratio_of_sequences() {
    let (golden, tokens, sequences, current) = released();
    let expected = &golden["gspo"];
    let loss = TokenLoss {
        ratio: RatioLevel::Sequence,
        ..TokenLoss::RELEASED
    };
    assert!(!loss.is_token_level() && TokenLoss::RELEASED.is_token_level());
    let outcomes = token_losses(&loss, &tokens, &sequences, &current);
    assert_loss_and_gradient(&outcomes, expected);
    let ratios: Vec<f64> = sequences
        .ranges()
        .map(|range| outcomes[range.start].log_ratio.exp())
        .collect();
    assert_all_close(
        &ratios,
        &numbers(&expected["seq_ratio"]),
        TOLERANCE,
        "ratio",
    );
}
