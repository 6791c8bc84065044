//! Properties of the token losses: every surrogate, ratio, importance weight and KL term.

use dart_kernels::{
    Aggregation, Clip, Counts, Importance, Kl, KlEstimate, KlGradient, LossSums, RatioLevel,
    Sequences, Surrogate, Token, TokenLoss, TokenOutcome, WeightLevel, token_loss, token_losses,
};
use proptest::prelude::*;

use crate::{
    oracle::oracle,
    support::{slopes, token, total},
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

pub(crate) const AGGREGATIONS: [Aggregation; 4] = [
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
            if token.weight == 0.0 {
                prop_assert_eq!(outcomes[index], TokenOutcome::default());
            } else {
                let one = token_loss(&loss, token, current.0, current.1);
                prop_assert_eq!(outcomes[index], one);
                prop_assert!(!level || batch.outcomes(&loss)[index] == one);
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
