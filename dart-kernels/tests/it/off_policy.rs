//! Properties of importance weights and rejection rules.

use dart_kernels::{
    Drift, Error, Rejection, RejectionLevel, RejectionTest, Sequences, WeightLevel, WeightRule,
    effective_sample_size,
};
use proptest::prelude::*;

use crate::support::{assert_all_close, assert_close};

/// Old log-probs that have these ratios to rollout log-probs of −1.
fn old(ratios: &[f64]) -> Vec<f64> {
    ratios.iter().map(|ratio| ratio.ln() - 1.0).collect()
}

fn kept(ratios: &[f64], rule: Rejection) -> Vec<bool> {
    let (old, rollout) = (old(ratios), vec![-1.0; ratios.len()]);
    let (mask, one) = (
        vec![true; ratios.len()],
        Sequences::from_lengths(&[ratios.len()]),
    );
    let drift = Drift::new((&old, &rollout), &mask, &one).unwrap();
    drift.keep(&[rule]).mask
}

#[test]
fn bounds_are_on_the_learner_over_the_sampler() {
    let rule = Rejection {
        level: RejectionLevel::Token,
        test: RejectionTest::K1 {
            low: 0.6,
            high: 1.4,
        },
    };
    // The inverse would keep 0.72 to 1.66.
    let ratios = [0.55, 0.65, 0.72, 1.35, 1.45, 1.6];
    assert_eq!(kept(&ratios, rule), [false, true, true, true, false, false]);
}

#[test]
fn one_token_vetoes_its_sequence_and_no_other() {
    let (old, rollout) = (old(&[1.0, 1e-5, 1.0, 2e-4, 1e-5]), [-1.0; 5]);
    let mask = [true, true, true, true, false];
    let sequences = Sequences::from_lengths(&[2, 0, 3]);
    let drift = Drift::new((&old, &rollout), &mask, &sequences).unwrap();
    let kept = drift.keep(&[Rejection::veto(1e-4)]);
    assert_eq!(kept.mask, [false, false, true, true, false]);
    assert_eq!((kept.tokens, kept.rejected), ((4, 2), vec![2]));
}

#[test]
fn both_truncation_and_mask() {
    let (old, rollout) = (old(&[0.1, 0.9, 3.0, 9.0]), [-1.0; 4]);
    let sequences = Sequences::from_lengths(&[4]);
    let drift = Drift::new((&old, &rollout), &[true; 4], &sequences).unwrap();
    let rule = WeightRule {
        bounds: Some((0.5, 5.0)),
        cap: Some(2.0),
        ..WeightRule::default()
    };
    assert_all_close(
        &drift.weights(&rule),
        &[0.0, 0.9, 2.0, 0.0],
        1e-12,
        "weight",
    );
}

#[test]
fn normalisation_counts_sequences_once_and_survives_zeros() {
    let (old, rollout) = (old(&[2.0, 2.0, 2.0, 4.0]), [-1.0; 4]);
    let sequences = Sequences::from_lengths(&[3, 0, 1]);
    let drift = Drift::new((&old, &rollout), &[true; 4], &sequences).unwrap();
    let rule = |level| WeightRule {
        level,
        normalise: true,
        ..WeightRule::default()
    };
    let third = 2.0 / 3.0;
    let by_sequence = drift.weights(&rule(WeightLevel::SequenceMean));
    assert_all_close(
        &by_sequence,
        &[third, third, third, 2.0 * third],
        1e-12,
        "sequence",
    );
    let by_token = drift.weights(&rule(WeightLevel::Token));
    assert_all_close(&by_token, &[0.8, 0.8, 0.8, 1.6], 1e-12, "token");
    let nothing = WeightRule {
        bounds: Some((5.0, 6.0)),
        ..rule(WeightLevel::Token)
    };
    assert_eq!(drift.weights(&nothing), [0.0; 4]);
}

#[test]
fn nan_is_kept_so_that_it_shows() {
    let (old, rollout) = ([f64::NAN, -1.0], [-1.0; 2]);
    let sequences = Sequences::from_lengths(&[2]);
    let drift = Drift::new((&old, &rollout), &[true; 2], &sequences).unwrap();
    let rule = WeightRule {
        bounds: Some((0.5, 2.0)),
        cap: Some(1.0),
        ..WeightRule::default()
    };
    assert!(drift.weights(&rule)[0].is_nan());
    for level in [RejectionLevel::Token, RejectionLevel::SequenceMean] {
        let test = RejectionTest::K3 { max: 0.1 };
        assert_eq!(drift.keep(&[Rejection { level, test }]).mask, [true; 2]);
    }
    let metrics = drift.metrics();
    assert!(metrics.kl_k1.is_nan() && metrics.log_perplexity_range.0.is_nan());
    // Where the mask is false nothing is read.
    let unread = Drift::new((&old, &rollout), &[false, true], &sequences).unwrap();
    assert!(unread.metrics().kl_k3 == 0.0 && unread.weights(&rule) == [0.0, 1.0]);
}

#[test]
fn nothing_has_no_mean_and_wrong_lengths_are_errors() {
    let none = Sequences::single_tokens(0);
    let drift = Drift::new((&[], &[]), &[], &none).unwrap();
    assert!(drift.metrics().kl_k3.is_nan() && drift.weights(&WeightRule::default()).is_empty());
    assert_eq!(drift.keep(&[Rejection::veto(0.5)]).share_rejected(), 0.0);
    let one = Sequences::single_tokens(1);
    let short = Drift::new((&[], &[-1.0]), &[true], &one).unwrap_err();
    assert!(matches!(short, Error::Length { .. }), "{short}");
    let other = Drift::new((&[], &[]), &[], &one).unwrap_err();
    assert!(matches!(other, Error::Sequences(_)), "{other}");
    assert!(effective_sample_size(&[]).is_nan() && effective_sample_size(&[0.0]).is_nan());
}

#[test]
fn wild_ratios_stay_finite() {
    let (old, rollout) = ([0.0, -1.0], [-900.0, -1.0]);
    let sequences = Sequences::from_lengths(&[2]);
    let drift = Drift::new((&old, &rollout), &[true; 2], &sequences).unwrap();
    let metrics = drift.metrics();
    assert_close(
        metrics.chi_squared_sequence,
        40f64.exp() - 1.0,
        1e-12,
        "clamped",
    );
    assert!(metrics.kl_k3.is_finite() && metrics.perplexity_ratio.is_finite());
}

prop_compose! {
    fn rules()(level in 0usize..4, test in 0usize..3, bound in 0.01f64..0.5) -> Rejection {
        Rejection {
            level: [
                RejectionLevel::Token, RejectionLevel::SequenceSum,
                RejectionLevel::SequenceMean, RejectionLevel::SequenceMax,
            ][level],
            test: [
                RejectionTest::K1 { low: 1.0 - bound, high: 1.0 + bound },
                RejectionTest::K2 { max: bound },
                RejectionTest::K3 { max: bound },
            ][test],
        }
    }
}

proptest! {
    #[test]
    fn a_chain_is_what_every_rule_keeps(
        tokens in prop::collection::vec((-1.0f64..1.0, any::<bool>()), 0..20),
        chain in prop::collection::vec(rules(), 0..4), cut in 0usize..20,
    ) {
        let (old, mask): (Vec<f64>, Vec<bool>) = tokens.into_iter().unzip();
        let rollout = vec![0.0; old.len()];
        let cut = cut.min(old.len());
        let sequences = Sequences::from_lengths(&[cut, old.len() - cut]);
        let drift = Drift::new((&old, &rollout), &mask, &sequences).unwrap();
        let kept = drift.keep(&chain);
        let mut expected = mask.clone();
        for (rule, rejected) in chain.iter().zip(&kept.rejected) {
            let alone = drift.keep(&[*rule]);
            expected.iter_mut().zip(&alone.mask).for_each(|(all, one)| *all &= one);
            prop_assert_eq!(alone.tokens.0 - alone.tokens.1, *rejected);
        }
        prop_assert_eq!(&kept.mask, &expected);
        let turned: Vec<_> = chain.iter().rev().copied().collect();
        prop_assert_eq!(drift.keep(&turned).mask, expected);
    }
}
