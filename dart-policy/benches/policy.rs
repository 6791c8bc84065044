//! What a policy costs on one CPU thread, per 128 observations: prompts, training, sampling.
//!
//! The yardstick is a torch prototype of the same shape on the same kind of machine
//! (ms per 128 observations): prompts 147, forward and backward 379, sampling 177.

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use dart_core::{
    Action, Batch, BatchId, BatchImage, DemonstrationEncoder as _, Frame, GroupId, LogProbKind,
    Objective, Observation, PolicyInput, PolicyVersion, Sample, SampleOrigin, Sampling, ScreenPx,
    TrajectoryId,
};
use dart_policy::{Decoder, Encoder, ModelConfig, TrainableModel, Upstream, VlmModel};

const OBSERVATIONS: u32 = 128;

/// A light screen with a dozen dark boxes of stripes at places that depend on `salt`.
fn frame(config: &ModelConfig, salt: u32) -> Frame {
    let size = config.image();
    let mut rgb = vec![230; size.area() * 3];
    for box_index in 0..12 {
        let mixed = (salt * 12 + box_index).wrapping_mul(2_654_435_761);
        let (left, top) = (
            (mixed >> 8) % (size.width - 30),
            (mixed >> 20) % (size.height - 8),
        );
        for y in 0..8 {
            for x in (0..30).filter(|x| (mixed >> (x % 13)) & 1 == 1) {
                let at = (((top + y) * size.width + left + x) * 3) as usize;
                rgb[at..at + 3].fill(20);
            }
        }
    }
    Frame::new(size, rgb).expect("the size fits")
}

fn inputs(config: &ModelConfig) -> Vec<PolicyInput> {
    (0..OBSERVATIONS)
        .map(|salt| PolicyInput {
            instruction: "check \"abcd\" type \"efgh\" choose \"ijkl\"".into(),
            history: Vec::new(),
            observation: Observation::of(frame(config, salt)),
            sampling: Sampling {
                temperature: 1.0,
                seed: u64::from(salt),
            },
        })
        .collect()
}

fn batch(model: &VlmModel, inputs: &[PolicyInput]) -> Batch {
    let encoder = Encoder::new(model);
    let images = inputs.iter().map(|input| BatchImage {
        frame: input.observation.frame.clone(),
        ui: None,
    });
    let samples = inputs.iter().enumerate().map(|(index, input)| {
        let at = ScreenPx::new(index as i32, 50);
        let decision = encoder
            .encode(input, &Action::click(at))
            .expect("a click can be said");
        let mut prompt = decision.prompt;
        prompt.images[0].image = index as u32;
        Sample {
            trajectory: TrajectoryId(0),
            step: 0,
            group: GroupId(0),
            origin: SampleOrigin::Expert,
            prompt,
            response: decision.token_ids,
            rollout_log_probs: Arc::new([]),
            log_prob_kind: LogProbKind::AfterTemperature,
            temperature: 1.0,
            version: PolicyVersion(0),
            advantages: Arc::new([]),
        }
    });
    Batch {
        id: BatchId(0),
        objective: Objective::Imitation,
        images: images.collect(),
        samples: samples.collect(),
    }
}

fn policy(criterion: &mut Criterion) {
    let config = ModelConfig::default();
    let model = VlmModel::new(&config, 0).expect("the default is valid");
    let inputs = inputs(&config);
    let batch = batch(&model, &inputs);
    let all: Vec<usize> = (0..inputs.len()).collect();
    let mut group = criterion.benchmark_group("128 observations");
    group.sample_size(10);
    group.bench_function("forward", |b| {
        b.iter(|| black_box(model.forward(&batch, &all, false)));
    });
    group.bench_function("forward and backward", |b| {
        b.iter(|| {
            let forward = model
                .forward(&batch, &all, false)
                .expect("the batch is sound");
            let by = Upstream {
                logits: &forward.logits,
                reading: 0.0,
            };
            black_box(model.backward(forward.tape, by).expect("it has a gradient"))
        });
    });
    group.bench_function("sampling", |b| {
        let refs: Vec<&PolicyInput> = inputs.iter().collect();
        let mut decoder = Decoder::new(&model, PolicyVersion(0), 0).expect("weights can be read");
        b.iter(|| black_box(decoder.decide(&refs)));
    });
    group.finish();
}

criterion_group!(benches, policy);
criterion_main!(benches);
