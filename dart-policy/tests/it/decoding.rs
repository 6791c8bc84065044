//! What was sampled is what the learner computes; images belong to their spans.

use std::sync::Arc;

use dart_core::{ErrorKind, PolicyInput, PolicyVersion, Sampling};
use dart_policy::{Decoder, TrainableModel};

use crate::common::{batch, input, log_prob, model};

fn inputs() -> Vec<PolicyInput> {
    let model = model();
    let wait = model.grammar().encode(
        &dart_core::Action::Wait { millis: 1 },
        dart_core::Viewport::new(dart_core::Size::new(48, 32), dart_core::Size::new(48, 32)),
    );
    let wait = wait.unwrap();
    (0..12u32)
        .map(|i| {
            let past: Vec<&[u32]> = (0..i as usize % 3).map(|_| wait.as_slice()).collect();
            let sampling = Sampling {
                temperature: 0.5 + 0.25 * (i % 4) as f32,
                seed: u64::from(i),
            };
            input(i % 4, &past, sampling)
        })
        .collect()
}

#[test]
fn sampled_log_probs_are_those_of_teacher_forcing() {
    let model = model();
    let mut decoder = Decoder::new(&model, PolicyVersion(4), 1 << 20).unwrap();
    let inputs = inputs();
    let decisions = decoder.decide(&inputs.iter().collect::<Vec<_>>());
    let decided: Vec<_> = inputs
        .into_iter()
        .zip(decisions)
        .map(|(input, decision)| (input, decision.unwrap()))
        .collect();
    let batch = batch(&decided);
    let all: Vec<usize> = (0..decided.len()).collect();
    let forward = model.forward(&batch, &all, false).unwrap();
    let mut rows = forward.logits.to_vec2::<f32>().unwrap().into_iter();
    let mut longest = 0;
    for (_, decision) in &decided {
        decision.validate().unwrap();
        assert_eq!(decision.version, PolicyVersion(4));
        longest = longest.max(decision.token_ids.len());
        let entropies = decision.entropies.as_ref().unwrap();
        for (index, token) in decision.token_ids.iter().enumerate() {
            let scaled: Vec<f32> = rows
                .next()
                .unwrap()
                .iter()
                .map(|z| z / decision.temperature)
                .collect();
            let (want, entropy) = log_prob(&scaled, *token);
            let got = f64::from(decision.rollout_log_probs[index]);
            assert!((got - want).abs() < 1e-4, "{got} {want}");
            assert!((f64::from(entropies[index]) - entropy).abs() < 1e-3);
        }
    }
    assert!(rows.next().is_none());
    assert!(longest > 3, "no long response among the samples: weak test");
}

#[test]
fn the_cache_is_bounded_and_changes_nothing() {
    let model = model();
    let inputs = inputs();
    let mut without = Decoder::new(&model, PolicyVersion(0), 0).unwrap();
    let mut with = Decoder::new(&model, PolicyVersion(0), 40_000).unwrap();
    for _ in 0..2 {
        for input in &inputs {
            let a = without.decide(&[input]).pop().unwrap().unwrap();
            let b = with.decide(&[input]).pop().unwrap().unwrap();
            assert_eq!(a.token_ids, b.token_ids);
            assert_eq!(without.cache_bytes(), 0);
            assert!((1..=40_000).contains(&with.cache_bytes()));
        }
    }
}

#[test]
fn an_image_that_does_not_fit_its_span_is_an_error() {
    let model = model();
    let mut decoder = Decoder::new(&model, PolicyVersion(0), 0).unwrap();
    let input = input(1, &[], Sampling::GREEDY);
    let decision = decoder.decide(&[&input]).pop().unwrap().unwrap();
    let good = batch(&[(input, decision)]);
    assert!(model.forward(&good, &[0], false).is_ok());
    let faults: [fn(&mut dart_core::Sample); 5] = [
        |s| s.prompt.images[0].len -= 1,
        |s| s.prompt.images[0].start += 1,
        |s| s.prompt.images[0].image = 7,
        |s| s.prompt.images.clear(),
        |s| {
            let mut tokens = s.prompt.token_ids.to_vec();
            tokens[2] = 60;
            s.prompt.token_ids = tokens.into();
        },
    ];
    for (index, break_it) in faults.iter().enumerate() {
        let mut broken = good.clone();
        break_it(&mut broken.samples[0]);
        let fault = model.forward(&broken, &[0], false).unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::Internal, "case {index}: {fault}");
    }
    let mut broken = good.clone();
    let mut response = broken.samples[0].response.to_vec();
    response.pop();
    broken.samples[0].response = Arc::from(response);
    let fault = model.forward(&broken, &[0], false).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::Protocol);
}
