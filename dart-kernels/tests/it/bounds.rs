//! Token losses at their bounds and clamps, weights of empty sequences, and metrics.

use dart_kernels::{
    Clip, ClipSide, Counts, Importance, Kl, KlEstimate, LossMetrics, Sequences, Surrogate, Token,
    TokenLoss, TokenOutcome, WeightLevel, token_loss, token_losses,
};

use crate::{
    losses::AGGREGATIONS,
    support::{assert_close, token, total},
};

fn clipped(clip: Clip) -> TokenLoss {
    TokenLoss {
        surrogate: Surrogate::Clipped(clip),
        ..TokenLoss::LIKELIHOOD
    }
}

fn at_ratio(loss: &TokenLoss, advantage: f64, ratio: f64) -> TokenOutcome {
    let token = Token {
        old: Some(-1.0 - ratio.ln()),
        ..token(1.0, advantage)
    };
    token_loss(loss, &token, -1.0, 0.0)
}

#[test]
fn each_bound_says_which_it_was() {
    let capped = clipped(Clip {
        ratio_cap: Some(2.0),
        ..Clip::new(0.2, 0.28)
    });
    // Below the upper bound, the cap only acts where it makes the loss larger.
    let tight = clipped(Clip {
        ratio_cap: Some(1.2),
        ..Clip::new(0.2, 0.28)
    });
    let dual = clipped(Clip {
        dual: Some(3.0),
        ..Clip::new(0.2, 0.28)
    });
    for (loss, advantage, ratio, value, slope, side) in [
        (dual, 1.0, 1.2, -1.2, -1.2, ClipSide::None),
        (dual, 1.0, 1.5, -1.28, 0.0, ClipSide::High),
        (dual, 1.0, 0.5, -0.5, -0.5, ClipSide::None),
        (dual, -1.0, 0.5, 0.8, 0.0, ClipSide::Low),
        (dual, -1.0, 2.5, 2.5, 2.5, ClipSide::None),
        (dual, -1.0, 3.5, 3.0, 0.0, ClipSide::Dual),
        (capped, -1.0, 3.5, 2.0, 0.0, ClipSide::Dual),
        (capped, -1.0, 1.9, 1.9, 1.9, ClipSide::None),
        (capped, 1.0, 3.5, -1.28, 0.0, ClipSide::High),
        (tight, -1.0, 1.25, 1.25, 1.25, ClipSide::None),
        (tight, -1.0, 1.5, 1.28, 0.0, ClipSide::High),
        (tight, 1.0, 1.25, -1.2, 0.0, ClipSide::Dual),
    ] {
        let outcome = at_ratio(&loss, advantage, ratio);
        assert_eq!(outcome.clip, side, "{advantage} {ratio}");
        assert_close(outcome.loss, value, 1e-12, "value");
        assert_close(outcome.by_log_prob, slope, 1e-12, "slope");
    }
    let free = clipped(Clip::new(f64::INFINITY, f64::INFINITY));
    assert_close(
        at_ratio(&free, 2.0, 7.0).by_log_prob,
        -14.0,
        1e-12,
        "no clip",
    );
}

#[test]
fn clamped_terms_keep_their_value_and_lose_their_slope() {
    let kl = |times_ratio| TokenLoss {
        kl: Kl {
            times_ratio,
            ..Kl::k3(1.0)
        },
        ..TokenLoss::LIKELIHOOD
    };
    let far = Token {
        reference: Some(-0.01),
        ..token(1.0, 0.0)
    };
    let outcome = token_loss(&kl(false), &far, -60.0, 0.0);
    assert_eq!((outcome.kl, outcome.by_log_prob), (10.0, 0.0));
    let wild = Token {
        old: Some(-40.0),
        reference: Some(-1.5),
        ..far
    };
    let outcome = token_loss(&kl(true), &wild, -1.0, 0.0);
    let (k3, slope) = KlEstimate::K3.value_and_slope(-0.5);
    assert_close(outcome.kl, k3 * 20f64.exp(), 1e-12, "value");
    assert_close(outcome.by_log_prob, slope * 20f64.exp(), 1e-12, "slope");
    let sapo = TokenLoss {
        surrogate: Surrogate::Sapo {
            positive: 1.0,
            negative: 1.05,
        },
        ..TokenLoss::LIKELIHOOD
    };
    let outcome = at_ratio(&sapo, 1.0, (-30f64).exp());
    assert_eq!(outcome.by_log_prob, 0.0);
    assert!(at_ratio(&sapo, 1.0, (-19f64).exp()).by_log_prob != 0.0);
}

#[test]
fn bounds_of_weights_are_inside_and_clamps_act_on_whole_sequences() {
    let importance = |importance| TokenLoss {
        importance,
        ..TokenLoss::LIKELIHOOD
    };
    let masked = importance(Importance::Masked {
        level: WeightLevel::Token,
        low: 1.0,
        high: 1.0,
    });
    let same = Token {
        old: Some(-2.0),
        rollout: Some(-2.0),
        ..token(1.0, 1.0)
    };
    assert_eq!(token_loss(&masked, &same, -1.0, 0.0).importance, 1.0);
    // +15 and −14 would each pass a clamp of ±20; +30 and −29 only as a sum.
    let product = importance(Importance::Truncated {
        level: WeightLevel::SequenceSum,
        cap: 100.0,
    });
    let tokens = [-30.0, 29.0].map(|rollout| Token {
        old: Some(0.0),
        rollout: Some(rollout),
        ..token(1.0, 1.0)
    });
    let pair = Sequences::from_lengths(&[2]);
    let outcomes = token_losses(&product, &tokens, &pair, &[(-1.0, 0.0); 2]);
    assert_close(outcomes[0].importance, 1f64.exp(), 1e-12, "product");
}

#[test]
fn empty_and_masked_sequences_weigh_nothing() {
    let sequences = Sequences::from_lengths(&[0, 2, 2, 1]);
    let mask = [true, true, false, false, true];
    let counts = Counts::of(&mask, &sequences).unwrap();
    assert_eq!((counts.tokens, counts.sequences), (3, 2));
    for (aggregation, expected) in AGGREGATIONS.into_iter().zip([
        [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0],
        [0.5, 0.5, 0.5],
        [0.25, 0.25, 0.5],
        [0.5 / 7.0, 0.5 / 7.0, 0.5 / 7.0],
    ]) {
        let weights = aggregation.weights(&mask, &sequences, counts).unwrap();
        let [a, b, c] = expected;
        for (got, expected) in weights.iter().zip([a, b, 0.0, 0.0, c]) {
            assert_close(*got, expected, 1e-15, "weight");
        }
        let none = aggregation.weights(&[false; 5], &sequences, Counts::default());
        assert_eq!(none.unwrap(), [0.0; 5]);
        assert!(
            aggregation
                .weights(&mask, &sequences, Counts::default())
                .is_err()
        );
        assert!(aggregation.weights(&mask[..4], &sequences, counts).is_err());
    }
}

#[test]
fn metrics_are_means_over_what_was_read() {
    let loss = TokenLoss {
        entropy_bonus: 0.1,
        ..TokenLoss::PAPER
    };
    let count = 1000;
    let tokens: Vec<Token> = (0..count)
        .map(|i| Token {
            old: Some(-1.0 - f64::from(i % 7) * 0.1),
            rollout: Some(-1.2),
            reference: Some(-1.1),
            ..token(f64::from(u8::from(i % 5 != 0)), f64::from(i % 3) - 1.0)
        })
        .collect();
    let current: Vec<_> = (0..count).map(|i| (-1.0, f64::from(i % 11))).collect();
    let alone = Sequences::single_tokens(count as usize);
    let mut outcomes = token_losses(&loss, &tokens, &alone, &current);
    let metrics = LossMetrics::of(&loss, &tokens, &outcomes);
    let read: Vec<_> = (0..count as usize)
        .filter(|i| i % 5 != 0)
        .map(|i| outcomes[i])
        .collect();
    let mean = |value: &dyn Fn(&TokenOutcome) -> f64| {
        read.iter().map(value).sum::<f64>() / read.len() as f64
    };
    assert_eq!((metrics.tokens, metrics.bad_rows), (800, 0));
    let side = |side| move |o: &TokenOutcome| f64::from(u8::from(o.clip == side));
    let share = mean(&|o| f64::from(u8::from(o.importance == 1.0)));
    let ess = 800.0 * mean(&|o| o.importance).powi(2) * 800.0
        / (read.iter().map(|o| o.importance.powi(2)).sum::<f64>() * 800.0);
    for (got, expected) in [
        (metrics.loss, total(&outcomes)),
        (metrics.entropy, mean(&|o| o.entropy)),
        (metrics.kl, mean(&|o| o.kl)),
        (metrics.surrogate, mean(&|o| o.surrogate)),
        (metrics.clip_low, mean(&side(ClipSide::Low))),
        (metrics.clip_high, mean(&side(ClipSide::High))),
        (metrics.clip_dual, mean(&side(ClipSide::Dual))),
        (metrics.ratio_k1, mean(&|o| -o.log_ratio)),
        (
            metrics.ratio_k3,
            mean(&|o| o.log_ratio.exp() - 1.0 - o.log_ratio),
        ),
        (metrics.importance_mean, mean(&|o| o.importance)),
        (metrics.importance_max, 1.0),
        (metrics.importance_ess, ess),
        (metrics.importance_bound, share),
    ] {
        assert_close(got, expected, 1e-12, "metric");
    }
    assert!(metrics.clip_high > 0.0 && metrics.importance_bound > 0.0);
    outcomes[1].log_prob = f64::NEG_INFINITY;
    let broken = LossMetrics::of(&loss, &tokens, &outcomes);
    assert_eq!((broken.tokens, broken.bad_rows), (799, 1));
    assert!(broken.loss.is_nan() && broken.entropy.is_finite());
}
