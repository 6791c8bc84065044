//! Properties of the token losses: every surrogate, ratio, importance weight and KL term.

use dart_kernels::{
    Aggregation, Clip, ClipSide, Counts, Importance, Kl, KlEstimate, KlGradient, LossMetrics,
    LossSums, RatioLevel, Sequences, Surrogate, Token, TokenLoss, TokenOutcome, WeightLevel,
    token_loss, token_losses,
};
use proptest::prelude::*;

use crate::{
    oracle::oracle,
    support::{assert_close, slopes, token, total},
};

/// Finite differences are taken over this.
const STEP: f64 = 1e-6;

/// Tokens of a few sequences, with log-prob and entropy of each.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    tokens: Vec<Token>,
    lengths: Vec<usize>,
    current: Vec<(f64, f64)>,
}

impl Batch {
    fn sequences(&self) -> Sequences {
        Sequences::from_lengths(&self.lengths)
    }

    fn outcomes(&self, loss: &TokenLoss) -> Vec<TokenOutcome> {
        token_losses(loss, &self.tokens, &self.sequences(), &self.current)
    }

    fn log_probs(&self) -> Vec<f64> {
        self.current.iter().map(|(log_prob, _)| *log_prob).collect()
    }
}

fn surrogates() -> impl Strategy<Value = Surrogate> {
    let clip = |dual, ratio_cap| {
        Surrogate::Clipped(Clip {
            dual,
            ratio_cap,
            ..Clip::new(0.2, 0.28)
        })
    };
    prop_oneof![
        Just(clip(None, None)),
        Just(clip(Some(1.6), None)),
        Just(clip(None, Some(1.5))),
        Just(clip(Some(3.0), Some(1.2))),
        Just(Surrogate::LogLikelihood),
        Just(Surrogate::Cispo {
            low: Some(0.2),
            high: 0.28
        }),
        Just(Surrogate::cispo_capped(1.3)),
        Just(Surrogate::Sapo {
            positive: 1.0,
            negative: 1.05
        }),
        Just(Surrogate::Prime {
            low: 0.05,
            high: 0.05,
            penalty: 0.1
        }),
    ]
}

fn importances() -> impl Strategy<Value = Importance> {
    let levels = prop_oneof![
        Just(WeightLevel::Token),
        Just(WeightLevel::SequenceSum),
        Just(WeightLevel::SequenceMean)
    ];
    levels.prop_flat_map(|level| {
        prop_oneof![
            Just(Importance::Off),
            Just(Importance::Truncated { level, cap: 1.1 }),
            Just(Importance::Masked {
                level,
                low: 0.6,
                high: 1.5
            }),
        ]
    })
}

fn kls() -> impl Strategy<Value = Kl> {
    let estimates = prop_oneof![
        Just(KlEstimate::K1),
        Just(KlEstimate::K2),
        Just(KlEstimate::K3)
    ];
    let gradients = prop_oneof![Just(KlGradient::Own), Just(KlGradient::K2)];
    let betas = prop_oneof![Just(0.0), 0.01f64..1.0];
    (betas, estimates, gradients, any::<bool>()).prop_map(
        |(beta, estimate, gradient, times_ratio)| Kl {
            beta,
            estimate,
            gradient,
            times_ratio,
        },
    )
}

prop_compose! {
    fn losses()(
        surrogate in surrogates(), importance in importances(), kl in kls(),
        sequence in any::<bool>(), entropy_bonus in prop_oneof![Just(0.0), Just(0.03)],
    ) -> TokenLoss {
        let ratio = if sequence { RatioLevel::Sequence } else { RatioLevel::Token };
        TokenLoss { surrogate, ratio, importance, kl, entropy_bonus }
    }
}

prop_compose! {
    fn tokens()(
        advantage in -3.0f64..3.0, weight in prop_oneof![1 => Just(0.0), 4 => 0.01f64..1.0],
        offsets in prop::array::uniform4(-0.7f64..0.7), entropy in 0.0f64..3.0,
        known in prop::array::uniform3(prop::bool::weighted(0.9)),
    ) -> (Token, (f64, f64)) {
        let near = |index: usize| known[index].then_some(-1.5 + offsets[index]);
        let token = Token { old: near(0), rollout: near(1), reference: near(2), ..token(weight, advantage) };
        (token, (-1.5 + offsets[3], entropy))
    }
}

fn batches() -> impl Strategy<Value = Batch> {
    prop::collection::vec(prop::collection::vec(tokens(), 0..5), 1..5).prop_map(|rows| {
        let lengths = rows.iter().map(Vec::len).collect();
        let (tokens, current) = rows.into_iter().flatten().unzip();
        Batch {
            tokens,
            lengths,
            current,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The oracle is written from the definitions; what carries no gradient stays at the base.
    #[test]
    fn losses_and_gradients_are_those_of_the_definition(loss in losses(), batch in batches()) {
        let outcomes = batch.outcomes(&loss);
        let base = batch.log_probs();
        let sequences = batch.sequences();
        let at = |now: &[f64]| oracle(&loss, (&batch.tokens, &sequences), &batch.current, now);
        prop_assert!((total(&outcomes) - at(&base)).abs() < 1e-12 * at(&base).abs().max(1.0));
        for (index, outcome) in outcomes.iter().enumerate() {
            let shifted = |by: f64| {
                let mut now = base.clone();
                now[index] += by;
                at(&now)
            };
            let (above, below, here) = (shifted(STEP), shifted(-STEP), at(&base));
            let (right, left) = ((above - here) / STEP, (here - below) / STEP);
            let near = |slope: f64| (slope - outcome.by_log_prob).abs() < 1e-4;
            // Within a step of a kink only one side is smooth.
            prop_assert!(near(left) || near(right), "{} {} {:?}", left, right, outcome);
            prop_assert_eq!(outcome.by_entropy, -batch.tokens[index].weight * loss.entropy_bonus);
        }
    }

    /// With one weight for all tokens of a sequence, a token's gradient is that of the loss as a
    /// function of all log-probs, nothing held back.
    #[test]
    fn gradients_of_sequence_ratios_are_true(
        mut batch in batches(), clip in any::<bool>(), low in 0.01f64..0.3,
    ) {
        let surrogate = if clip {
            Surrogate::Clipped(Clip::new(low, low))
        } else {
            Surrogate::Sapo { positive: 1.0, negative: 1.05 }
        };
        let loss = TokenLoss {
            surrogate,
            ratio: RatioLevel::Sequence,
            ..TokenLoss::LIKELIHOOD
        };
        let sequences = batch.sequences();
        let mask: Vec<bool> = batch.tokens.iter().map(|t| t.weight != 0.0).collect();
        let counts = Counts::of(&mask, &sequences).unwrap();
        let weights = Aggregation::SequenceMeanTokenMean.weights(&mask, &sequences, counts).unwrap();
        for (range, advantage) in sequences.ranges().zip([1.3, -0.8, 0.4, -2.0]) {
            for index in range {
                let token = &mut batch.tokens[index];
                *token = Token { weight: weights[index], advantage, old: token.old.or(Some(-1.5)), ..*token };
            }
        }
        let outcomes = batch.outcomes(&loss);
        for (index, slope) in slopes(&outcomes).into_iter().enumerate() {
            let at = |by: f64| {
                let mut moved = batch.clone();
                moved.current[index].0 += by;
                total(&moved.outcomes(&loss))
            };
            let (right, left) = ((at(STEP) - at(0.0)) / STEP, (at(0.0) - at(-STEP)) / STEP);
            let near = |side: f64| (side - slope).abs() < 1e-5;
            prop_assert!(near(left) || near(right), "{} {} {}", left, right, slope);
        }
    }
}

const AGGREGATIONS: [Aggregation; 4] = [
    Aggregation::TokenMean,
    Aggregation::SequenceMeanTokenSum,
    Aggregation::SequenceMeanTokenMean,
    Aggregation::SequenceMeanTokenSumNorm { max_length: 7 },
];

fn mask_of(batch: &Batch) -> Vec<bool> {
    batch.tokens.iter().map(|t| t.weight != 0.0).collect()
}

fn weigh(batch: &mut Batch, aggregation: Aggregation, counts: Counts) {
    let weights = aggregation
        .weights(&mask_of(batch), &batch.sequences(), counts)
        .unwrap();
    for (token, weight) in batch.tokens.iter_mut().zip(weights) {
        token.weight = weight;
    }
}

fn split(batch: &Batch, sequences: usize) -> [Batch; 2] {
    let cut: usize = batch.lengths[..sequences].iter().sum();
    let part = |lengths: &[usize], range: std::ops::Range<usize>| Batch {
        tokens: batch.tokens[range.clone()].to_vec(),
        lengths: lengths.to_vec(),
        current: batch.current[range].to_vec(),
    };
    [
        part(&batch.lengths[..sequences], 0..cut),
        part(&batch.lengths[sequences..], cut..batch.tokens.len()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn micro_batches_change_nothing(
        loss in losses(), batch in batches(), cut in 0usize..5, kind in 0usize..4,
    ) {
        let aggregation = AGGREGATIONS[kind];
        let mut whole = batch.clone();
        let counts = Counts::of(&mask_of(&batch), &batch.sequences()).unwrap();
        weigh(&mut whole, aggregation, counts);
        let outcomes = whole.outcomes(&loss);
        let mut parts = split(&batch, cut.min(batch.lengths.len()));
        let of_parts = parts.iter().map(|part| Counts::of(&mask_of(part), &part.sequences()).unwrap());
        prop_assert_eq!(of_parts.fold(Counts::default(), |a, b| a + b), counts);
        for part in &mut parts {
            weigh(part, aggregation, counts);
        }
        let split: Vec<_> = parts.iter().flat_map(|part| part.outcomes(&loss)).collect();
        prop_assert_eq!(&split, &outcomes);
        prop_assert!((total(&split) - total(&outcomes)).abs() < 1e-12);
        let sums = parts.iter().map(|part| LossSums::of(&loss, &part.tokens, &part.outcomes(&loss)));
        let merged = sums.fold(LossSums::default(), |all, part| all.merge(&part));
        let whole = LossSums::of(&loss, &whole.tokens, &outcomes);
        prop_assert!((merged.loss - whole.loss).abs() < 1e-12);
        prop_assert!((merged.importance_squared - whole.importance_squared).abs() < 1e-9);
        prop_assert_eq!(merged.importance_max, whole.importance_max);
        prop_assert_eq!(merged.tokens, whole.tokens);
    }

    /// Tokens of a sequence and sequences of a batch may come in any order.
    #[test]
    fn order_does_not_matter(loss in losses(), batch in batches()) {
        let mut turned = batch.clone();
        turned.tokens.reverse();
        turned.current.reverse();
        turned.lengths.reverse();
        let mut back = turned.outcomes(&loss);
        back.reverse();
        for (got, expected) in back.iter().zip(batch.outcomes(&loss)) {
            prop_assert!((got.loss - expected.loss).abs() < 1e-12);
            prop_assert!((got.by_log_prob - expected.by_log_prob).abs() < 1e-12);
        }
    }

    #[test]
    fn tokens_that_stand_alone_are_sequences_of_one(loss in losses(), batch in batches()) {
        let alone = Sequences::single_tokens(batch.tokens.len());
        let outcomes = token_losses(&loss, &batch.tokens, &alone, &batch.current);
        let level = loss.is_token_level();
        for (index, (token, current)) in batch.tokens.iter().zip(&batch.current).enumerate() {
            if token.weight != 0.0 {
                let one = token_loss(&loss, token, current.0, current.1);
                prop_assert_eq!(outcomes[index], one);
                prop_assert!(!level || batch.outcomes(&loss)[index] == one);
            } else {
                prop_assert_eq!(outcomes[index], TokenOutcome::default());
            }
        }
    }

    /// A number that is not one shows in the loss of its token, wherever it is used.
    #[test]
    fn nan_is_never_hidden(loss in losses(), batch in batches(), pick in 0usize..20, field in 0usize..6) {
        prop_assume!(batch.tokens.iter().any(|t| t.weight != 0.0));
        let read: Vec<usize> = (0..batch.tokens.len()).filter(|i| batch.tokens[*i].weight != 0.0).collect();
        let index = read[pick % read.len()];
        let mut broken = batch.clone();
        let nan = f64::NAN;
        let weighted = loss.importance != Importance::Off;
        let prime = matches!(loss.surrogate, Surrogate::Prime { .. });
        let token = &mut broken.tokens[index];
        let used = match field {
            0 => { broken.current[index].0 = nan; true }
            1 => { broken.current[index].1 = nan; true }
            2 => { token.advantage = nan; true }
            3 => { token.reference = Some(nan); true }
            4 => { token.rollout = Some(nan); prime || weighted }
            _ => {
                token.old = Some(nan);
                weighted && token.rollout.is_some() || !prime && loss.surrogate != Surrogate::LogLikelihood
            }
        };
        prop_assert!(!used || broken.outcomes(&loss)[index].loss.is_nan(), "{:?}", broken.outcomes(&loss)[index]);
    }
}

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
