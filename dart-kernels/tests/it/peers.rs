//! Numbers obtained by running other trainers' own functions in f64.
//!
//! `verl_token_k1_*` of the file is not matched: that rule acts on the inverse of the ratio.
//! Advantages are inputs here; they are made by the trainer.

use dart_kernels::{
    Aggregation, Clip, Counts, Drift, Importance, Kl, KlEstimate, KlGradient, RatioLevel,
    Rejection, RejectionLevel, RejectionTest, Sequences, Surrogate, Token, TokenLoss, WeightLevel,
    WeightRule, row_stats, select_tokens, token_loss, token_losses,
};
use serde_json::Value;

use crate::support::{assert_all_close, assert_close, flags, numbers, read, slopes, token, total};

/// What the file promises; its denominators have 1e-8 added.
const TOLERANCE: f64 = 2e-9;

struct Peers {
    inputs: Value,
    outputs: Value,
    sequences: Sequences,
    mask: Vec<bool>,
}

impl Peers {
    fn read() -> Self {
        let golden = read(include_str!("../data/peer_losses.json"));
        let inputs = golden["inputs"].clone();
        Self {
            mask: flags(&inputs["mask"]),
            sequences: Sequences::from_lengths(&[4; 4]),
            outputs: golden["outputs"].clone(),
            inputs,
        }
    }

    fn input(&self, name: &str) -> Vec<f64> {
        numbers(&self.inputs[name])
    }

    fn output(&self, name: &str) -> Vec<f64> {
        numbers(&self.outputs[name])
    }

    fn weights(&self, aggregation: Aggregation) -> Vec<f64> {
        let counts = Counts::of(&self.mask, &self.sequences).unwrap();
        let weights = aggregation.weights(&self.mask, &self.sequences, counts);
        weights.unwrap()
    }

    fn tokens(&self, weights: &[f64]) -> Vec<Token> {
        let (old, rollout) = (self.input("old"), self.input("beh"));
        let advantages = self.output("grpo_adv_seq");
        (0..16)
            .map(|t| Token {
                old: Some(old[t]),
                rollout: Some(rollout[t]),
                ..token(weights[t], advantages[t / 4])
            })
            .collect()
    }

    /// Loss and gradient of `loss` against the output `name`.
    fn check(&self, name: &str, loss: &TokenLoss, weights: &[f64], tolerance: f64) {
        let current: Vec<_> = self.input("lp").into_iter().map(|lp| (lp, 0.0)).collect();
        let outcomes = token_losses(loss, &self.tokens(weights), &self.sequences, &current);
        let expected = &self.outputs[name];
        assert_close(
            total(&outcomes),
            numbers(&expected["loss"])[0],
            tolerance,
            name,
        );
        assert_all_close(
            &slopes(&outcomes),
            &numbers(&expected["grad"]),
            tolerance,
            name,
        );
    }
}

fn with(surrogate: Surrogate) -> TokenLoss {
    TokenLoss {
        surrogate,
        ..TokenLoss::LIKELIHOOD
    }
}

fn clip(low: f64, high: f64) -> TokenLoss {
    with(Surrogate::Clipped(Clip::new(low, high)))
}

#[test]
fn clip_higher_under_every_aggregation() {
    let peers = Peers::read();
    let loss = with(Surrogate::Clipped(Clip {
        dual: Some(3.0),
        ..Clip::new(0.2, 0.28)
    }));
    let of = |aggregation| peers.weights(aggregation);
    let sum: Vec<f64> = peers.mask.iter().map(|m| f64::from(u8::from(*m))).collect();
    let norm = Aggregation::SequenceMeanTokenSumNorm { max_length: 4 };
    for (name, weights) in [
        ("token-mean", of(Aggregation::TokenMean)),
        ("token-sum", sum),
        ("seq-mean-token-sum", of(Aggregation::SequenceMeanTokenSum)),
        (
            "seq-mean-token-mean",
            of(Aggregation::SequenceMeanTokenMean),
        ),
        ("seq-mean-token-sum-norm", of(norm)),
    ] {
        let name = format!("verl_ppo_cliphigher_{name}");
        peers.check(&name, &loss, &weights, TOLERANCE);
    }
}

#[test]
fn sequence_ratios() {
    let peers = Peers::read();
    let loss = TokenLoss {
        ratio: RatioLevel::Sequence,
        ..clip(3e-4, 4e-4)
    };
    let by_sequence = peers.weights(Aggregation::SequenceMeanTokenMean);
    peers.check("verl_gspo", &loss, &by_sequence, TOLERANCE);
    let by_token = peers.weights(Aggregation::TokenMean);
    peers.check("areal_gspo", &loss, &by_token, TOLERANCE);
}

#[test]
fn soft_and_detached_clips() {
    let peers = Peers::read();
    let weights = peers.weights(Aggregation::TokenMean);
    let cispo = |low, high| with(Surrogate::Cispo { low, high });
    peers.check("verl_cispo", &cispo(Some(0.2), 0.28), &weights, TOLERANCE);
    peers.check("areal_cispo", &cispo(Some(1.0), 4.0), &weights, TOLERANCE);
    let capped = with(Surrogate::cispo_capped(5.0));
    peers.check("areal_cispo", &capped, &weights, TOLERANCE);
    let sapo = with(Surrogate::Sapo {
        positive: 1.0,
        negative: 1.05,
    });
    peers.check("areal_sapo_tau1.0_1.05", &sapo, &weights, TOLERANCE);
    peers.check(
        "prime_default",
        &with(Surrogate::PRIME),
        &weights,
        TOLERANCE,
    );
}

#[test]
fn decoupled_ppo() {
    let peers = Peers::read();
    let weights = peers.weights(Aggregation::TokenMean);
    let decoupled = |importance| TokenLoss {
        importance,
        ..clip(0.2, 0.28)
    };
    let clamped = Importance::Truncated {
        level: WeightLevel::Token,
        cap: 1.2,
    };
    let masked = |level, low, high| Importance::Masked { level, low, high };
    let by_token = masked(WeightLevel::Token, 0.9, 1.2);
    let by_sequence = masked(WeightLevel::SequenceMean, 0.97, 1.03);
    for (name, importance, tolerance) in [
        ("clamp_token_upper1.2", clamped, 5e-9),
        ("mask_token_0.9_1.2", by_token, 5e-9),
        ("mask_seq_geo_0.97_1.03", by_sequence, TOLERANCE),
    ] {
        let name = format!("areal_decoupled_{name}");
        peers.check(&name, &decoupled(importance), &weights, tolerance);
    }
}

#[test]
fn importance_weights() {
    let peers = Peers::read();
    let (old, rollout) = (peers.input("old"), peers.input("beh"));
    let drift = Drift::new((&old, &rollout), &peers.mask, &peers.sequences).unwrap();
    let cap = |level| WeightRule {
        level,
        cap: Some(1.2),
        ..WeightRule::default()
    };
    for (name, level) in [
        ("token", WeightLevel::Token),
        ("sequence", WeightLevel::SequenceSum),
    ] {
        let weights = drift.weights(&cap(level));
        let expected = peers.output(&format!("verl_tis_{name}_C1.2"));
        assert_all_close(&weights, &expected, TOLERANCE, name);
        let expected = peers.output(&format!("verl_tis_{name}_ess"))[0];
        assert_close(drift.effective_sample_size(&weights), expected, 2e-8, name);
    }
    let masked = WeightRule {
        bounds: Some((0.9, 1.2)),
        ..WeightRule::default()
    };
    let expected = peers.output("verl_icepop_0.9_1.2");
    assert_all_close(&drift.weights(&masked), &expected, TOLERANCE, "icepop");
}

#[test]
fn normalised_weights_and_their_mask() {
    let peers = Peers::read();
    let (old, rollout) = (peers.input("old"), peers.input("beh"));
    let drift = Drift::new((&old, &rollout), &peers.mask, &peers.sequences).unwrap();
    let of_read = |values: &[f64]| -> Vec<f64> {
        let pairs = values.iter().zip(&peers.mask);
        pairs
            .filter_map(|(value, read)| read.then_some(*value))
            .collect()
    };
    // Its defaults: tokens, cap 2, divided by their mean; tokens outside 1/2 to 2 go.
    let rule = WeightRule {
        cap: Some(2.0),
        normalise: true,
        ..WeightRule::default()
    };
    let expected = peers.output("slime_mis_default_w");
    assert_all_close(
        &of_read(&drift.weights(&rule)),
        &expected,
        TOLERANCE,
        "weight",
    );
    let kept = drift.keep(&[Rejection {
        level: RejectionLevel::Token,
        test: RejectionTest::K1 {
            low: 0.5,
            high: 2.0,
        },
    }]);
    let mask: Vec<f64> = kept.mask.iter().map(|k| f64::from(u8::from(*k))).collect();
    assert_eq!(of_read(&mask), peers.output("slime_mis_default_mask"));
}

#[test]
fn rejection_rules() {
    use RejectionLevel::{SequenceMax, SequenceMean, SequenceSum, Token};
    let peers = Peers::read();
    let (old, rollout) = (peers.input("old"), peers.input("beh"));
    let drift = Drift::new((&old, &rollout), &peers.mask, &peers.sequences).unwrap();
    let k1 = |low, high| RejectionTest::K1 { low, high };
    for (name, level, test) in [
        ("token_k1_0.8_1.2", Token, k1(0.8, 1.2)),
        ("seq_sum_k1_0.9_1.2", SequenceSum, k1(0.9, 1.2)),
        ("seq_mean_k1_0.97_1.03", SequenceMean, k1(0.97, 1.03)),
        (
            "seq_mean_k3_0.002",
            SequenceMean,
            RejectionTest::K3 { max: 0.002 },
        ),
        (
            "seq_max_k2_0.05",
            SequenceMax,
            RejectionTest::K2 { max: 0.05 },
        ),
        ("token_k3_0.01", Token, RejectionTest::K3 { max: 0.01 }),
    ] {
        let kept = drift.keep(&[Rejection { level, test }]);
        let expected = flags(&peers.outputs[format!("verl_rs_{name}")]);
        assert_eq!(kept.mask, expected, "{name}");
    }
}

#[test]
fn drift_metrics() {
    let peers = Peers::read();
    let (old, rollout) = (peers.input("old"), peers.input("beh"));
    let drift = Drift::new((&old, &rollout), &peers.mask, &peers.sequences).unwrap();
    let got = drift.metrics();
    assert_eq!((got.tokens, got.sequences), (13, 4));
    let expected = &peers.outputs["verl_offpolicy"];
    for (name, value) in [
        ("training_ppl", got.old_perplexity),
        ("training_log_ppl", got.old_log_perplexity),
        ("kl", got.kl_k1),
        ("k3_kl", got.kl_k3),
        ("rollout_ppl", got.rollout_perplexity),
        ("rollout_log_ppl", got.rollout_log_perplexity),
        ("log_ppl_diff", got.log_perplexity_difference),
        ("log_ppl_abs_diff", got.log_perplexity_distance),
        ("log_ppl_diff_min", got.log_perplexity_range.0),
        ("log_ppl_diff_max", got.log_perplexity_range.1),
        ("ppl_ratio", got.perplexity_ratio),
        ("chi2_token", got.chi_squared_token),
        ("chi2_seq", got.chi_squared_sequence),
    ] {
        assert_close(value, numbers(&expected[name])[0], 7e-9, name);
    }
}

#[test]
fn entropies_and_the_tokens_they_keep() {
    let peers = Peers::read();
    let rows = peers.inputs["entropy_logits"].as_array().unwrap().iter();
    let entropies: Vec<f64> = rows
        .map(|row| row_stats(&numbers(row), 0, 1.0).entropy)
        .collect();
    let expected = peers.output("entropy_from_logits");
    assert_all_close(&entropies, &expected, TOLERANCE, "entropy");
    let mask = flags(&peers.inputs["trl_top20_mask"]);
    let kept = select_tokens(&peers.input("trl_top20_entropy"), &mask, 0.8).unwrap();
    assert_eq!(kept.kept, flags(&peers.outputs["trl_top20"]["mask"]));
}

#[test]
fn kl_estimates() {
    let peers = Peers::read();
    let pairs = |a: &str, b: &str| peers.input(a).into_iter().zip(peers.input(b));
    for (name, estimate) in [
        ("k1", KlEstimate::K1),
        ("k2", KlEstimate::K2),
        ("k3", KlEstimate::K3),
    ] {
        let values: Vec<f64> = pairs("lp", "old")
            .map(|(now, reference)| estimate.value_and_slope(reference - now).0)
            .collect();
        let expected = peers.output(&format!("kl_{name}_token"));
        assert_all_close(&values, &expected, TOLERANCE, name);
        for (suffix, gradient) in [("", KlGradient::Own), ("+", KlGradient::K2)] {
            // The file has no "k2+": it would be k2.
            let Some(expected) =
                peers.outputs["kl_value_and_grad"].get(format!("kl_{name}{suffix}"))
            else {
                assert_eq!((name, suffix), ("k2", "+"));
                continue;
            };
            let loss = TokenLoss {
                kl: Kl {
                    beta: 1.0,
                    estimate,
                    gradient,
                    times_ratio: false,
                },
                ..TokenLoss::LIKELIHOOD
            };
            let (values, grads): (Vec<f64>, Vec<f64>) = pairs("kl_grad_logprob", "kl_grad_ref")
                .map(|(now, reference)| {
                    let token = Token {
                        reference: Some(reference),
                        ..token(1.0, 0.0)
                    };
                    let outcome = token_loss(&loss, &token, now, 0.0);
                    (outcome.loss, outcome.by_log_prob)
                })
                .unzip();
            assert_all_close(&values, &numbers(&expected["val"]), TOLERANCE, name);
            assert_all_close(&grads, &numbers(&expected["grad"]), TOLERANCE, name);
        }
    }
    let extreme: Vec<f64> = pairs("kl_k3_extreme_lp", "kl_k3_extreme_ref")
        .map(|(now, reference)| KlEstimate::K3.value_and_slope(reference - now).0)
        .collect();
    assert_all_close(
        &extreme,
        &peers.output("kl_k3_extreme"),
        TOLERANCE,
        "extreme k3",
    );
}
