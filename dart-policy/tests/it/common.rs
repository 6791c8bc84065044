//! A tiny model, screens with something on them, and batches.

use std::sync::Arc;

use dart_core::{
    Batch, BatchId, BatchImage, Decision, Frame, GroupId, Objective, Observation, PastStep,
    PolicyInput, PolicyVersion, Rect, Sample, SampleOrigin, Sampling, Size, TrajectoryId,
    UiElement, UiRole,
};
use dart_policy::{ModelConfig, VlmModel};

/// Small enough for finite differences; two images and past actions are in use.
pub(crate) fn tiny() -> ModelConfig {
    ModelConfig {
        image_width: 48,
        image_height: 32,
        width: 16,
        heads: 2,
        layers: 2,
        mlp_width: 12,
        stem_width: 12,
        pointer_width: 8,
        history_images: 2,
        ..ModelConfig::default()
    }
}

pub(crate) fn model() -> VlmModel {
    VlmModel::new(&tiny(), 3).unwrap()
}

/// A screen with blocks of colour that depend on `salt`.
pub(crate) fn frame(salt: u32) -> Frame {
    let size = Size::new(48, 32);
    let rgb: Vec<u8> = (0..size.area() as u32)
        .flat_map(|i| {
            let (x, y) = (i % 48 / 3, i / 48 / 2);
            let value = (x * 37 + y * 91 + salt * 53) % 251;
            [value as u8, (value * 3 % 256) as u8, 90]
        })
        .collect();
    Frame::new(size, rgb).unwrap()
}

/// An input with `steps` past steps whose responses are `past`.
pub(crate) fn input(salt: u32, past: &[&[u32]], sampling: Sampling) -> PolicyInput {
    PolicyInput {
        instruction: format!("click the button \"ab{salt}\" zq").into(),
        history: past
            .iter()
            .enumerate()
            .map(|(i, response)| PastStep {
                frame: frame(salt + 100 + i as u32),
                response: Arc::from(*response),
            })
            .collect(),
        observation: Observation::of(frame(salt)),
        sampling,
    }
}

/// Texts on every screen, for the reading loss.
pub(crate) fn ui() -> Arc<[UiElement]> {
    [
        ("Ab", 4, 4, 12, 8),
        ("xyz q", 14, 20, 30, 8),
        ("n1", 30, 2, 12, 8),
    ]
    .map(|(text, x, y, width, height)| UiElement {
        role: UiRole::Button,
        text: text.to_owned(),
        bounds: Rect::new(x, y, width, height),
    })
    .into()
}

/// The decisions as one batch.
pub(crate) fn batch(decided: &[(PolicyInput, Decision)]) -> Batch {
    let mut images = Vec::new();
    let samples = decided
        .iter()
        .map(|(input, decision)| {
            let mut prompt = decision.prompt.clone();
            for span in &mut prompt.images {
                let step = span.image as usize;
                let past = input.history.get(step).map(|past| &past.frame);
                let frame = past.unwrap_or(&input.observation.frame).clone();
                span.image = images.len() as u32;
                images.push(BatchImage {
                    frame,
                    ui: Some(ui()),
                });
            }
            Sample {
                trajectory: TrajectoryId(0),
                step: 0,
                group: GroupId(0),
                origin: SampleOrigin::Rollout,
                prompt,
                response: Arc::clone(&decision.token_ids),
                rollout_log_probs: Arc::clone(&decision.rollout_log_probs),
                log_prob_kind: decision.log_prob_kind,
                temperature: decision.temperature,
                version: PolicyVersion(0),
                advantages: Arc::new([]),
            }
        })
        .collect();
    Batch {
        id: BatchId(0),
        objective: Objective::PolicyGradient,
        images,
        samples,
    }
}

/// ln softmax of one row at `target` and the entropy of the row, in f64.
pub(crate) fn log_prob(row: &[f32], target: u32) -> (f64, f64) {
    let peak = row.iter().copied().fold(f32::MIN, f32::max);
    let shifted: Vec<f64> = row
        .iter()
        .map(|z| f64::from(*z) - f64::from(peak))
        .collect();
    let log_sum = shifted.iter().map(|z| z.exp()).sum::<f64>().ln();
    let entropy = shifted
        .iter()
        .map(|z| z - log_sum)
        .map(|lp| -lp * lp.exp())
        .sum();
    (shifted[target as usize] - log_sum, entropy)
}
