//! The learner with the project's own policy network.

use dart_core::{
    Action, Batch, BatchId, BatchImage, DemonstrationEncoder, Frame, GroupId, Learner, LogProbKind,
    Objective, Observation, PolicyInput, PolicyVersion, Rect, Result, Sample, SampleOrigin,
    Sampling, ScreenPx, Size, TrajectoryId, UiElement, UiRole, WeightsSource,
};
use dart_policy::{Encoder, ModelConfig, TrainableModel, VlmModel};
use dart_testkit::{learner::LearnerHarness, learner_conformance};
use dart_trainer::{GrpoLearner, ImitationConfig, Schedule, TrainerConfig};

const SCREEN: Size = Size::new(64, 48);

fn model() -> VlmModel {
    let config = ModelConfig {
        image_width: SCREEN.width,
        image_height: SCREEN.height,
        width: 24,
        heads: 2,
        layers: 2,
        mlp_width: 32,
        stem_width: 32,
        pointer_width: 16,
        ..ModelConfig::default()
    };
    VlmModel::new(&config, 7).unwrap()
}

fn config(micro_batch_samples: usize) -> TrainerConfig {
    TrainerConfig {
        learning_rate: 1e-3,
        kl_beta: 0.0,
        micro_batch_samples,
        imitation: ImitationConfig {
            learning_rate: 2e-3,
            schedule: Schedule {
                warmup_steps: 0,
                ..ImitationConfig::default().schedule
            },
            micro_batch_samples,
            ..ImitationConfig::default()
        },
        ..TrainerConfig::default()
    }
}

/// A picture that differs with `index`, and a label on it.
fn image(index: u32) -> BatchImage {
    let pixels = (0..SCREEN.area() as u32 * 3).map(|i| (i * (index * 2 + 7) % 251) as u8);
    let label = UiElement {
        role: UiRole::Button,
        text: ["red", "green", "blue"][index as usize % 3].into(),
        bounds: Rect::new(8, 8, 30, 10),
    };
    BatchImage {
        frame: Frame::new(SCREEN, pixels.collect::<Vec<u8>>()).unwrap(),
        ui: Some(vec![label].into()),
    }
}

fn action(index: u32) -> Action {
    match index % 4 {
        0 => Action::Type {
            text: "ab".repeat(1 + index as usize),
        },
        1 => Action::Done,
        2 => Action::click(ScreenPx::new(4 + 8 * index as i32 % 48, 20)),
        // The only action whose point is read again: when its second one is chosen.
        _ => Action::DragTo {
            from: Some(ScreenPx::new(12, 20)),
            to: ScreenPx::new(36, 28),
        },
    }
}

fn sample(encoder: &Encoder, index: u32, advantage: f64) -> (Sample, BatchImage) {
    let image = image(index % 3);
    let input = PolicyInput {
        instruction: "click the red button".into(),
        history: Vec::new(),
        observation: Observation::of(image.frame.clone()),
        sampling: Sampling::GREEDY,
    };
    let mut decision = encoder.encode(&input, &action(index)).unwrap();
    for span in &mut decision.prompt.images {
        span.image = index;
    }
    let advantages = vec![advantage; decision.token_ids.len()].into();
    let sample = Sample {
        trajectory: TrajectoryId(u128::from(index)),
        step: 0,
        group: GroupId(0),
        origin: SampleOrigin::Rollout,
        prompt: decision.prompt,
        response: decision.token_ids,
        rollout_log_probs: Vec::new().into(),
        log_prob_kind: LogProbKind::AfterTemperature,
        temperature: 1.0,
        version: PolicyVersion(0),
        advantages,
    };
    (sample, image)
}

fn batch(model: &VlmModel, objective: Objective, advantages: &[f64]) -> Batch {
    let encoder = Encoder::new(model);
    let indices = 0..advantages.len() as u32;
    let (samples, images) = indices
        .map(|i| sample(&encoder, i, advantages[i as usize]))
        .unzip();
    Batch {
        id: BatchId(0),
        objective,
        images,
        samples,
    }
}

fn on_policy(learner: &GrpoLearner<VlmModel>, advantages: &[f64]) -> Result<Batch> {
    let mut batch = batch(learner.model(), Objective::PolicyGradient, advantages);
    let scores = learner.score(&batch)?;
    for (sample, scores) in batch.samples.iter_mut().zip(scores) {
        sample.rollout_log_probs = scores.into();
    }
    Ok(batch)
}

struct Harness;

impl LearnerHarness for Harness {
    type Learner = GrpoLearner<VlmModel>;

    fn make(&self, micro_batch: usize) -> Result<Self::Learner> {
        GrpoLearner::new(model(), config(micro_batch))
    }

    fn imitation(&self) -> Batch {
        batch(&model(), Objective::Imitation, &[0.0])
    }

    fn on_policy(&self, learner: &mut Self::Learner, advantages: &[f64]) -> Result<Batch> {
        on_policy(learner, advantages)
    }

    fn log_likelihood(&self, learner: &mut Self::Learner, batch: &Batch) -> Result<Vec<f64>> {
        let sum = |scores: Vec<f32>| scores.into_iter().map(f64::from).sum();
        Ok(learner.score(batch)?.into_iter().map(sum).collect())
    }
}

learner_conformance!(crate::vlm::Harness);

#[test]
fn imitation_reaches_every_parameter() {
    let model = model();
    let batch = batch(&model, Objective::Imitation, &[0.0; 6]);
    let before = model.deep_copy().unwrap();
    let mut learner = GrpoLearner::new(model, config(128)).unwrap();
    let first = learner.step(&batch).unwrap().metrics;
    let now = learner.model().parameters();
    for ((name, old), (_, new)) in before.parameters().iter().zip(now.iter()) {
        let values = |var: &candle_core::Var| var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_ne!(values(old), values(new), "{name} has not moved");
    }
    assert_eq!(first["parameters_without_gradient"], 0.0);
    for _ in 0..60 {
        learner.step(&batch).unwrap();
    }
    let last = learner.step(&batch).unwrap().metrics;
    assert!(last["nll"] < 0.5 * first["nll"], "{first:?} {last:?}");
    assert!(
        last["reading_loss"] < 0.5 * first["reading_loss"],
        "{last:?}"
    );
}

#[test]
fn policies_can_load_what_is_exported() {
    let mut learner = GrpoLearner::new(model(), config(128)).unwrap();
    let batch = on_policy(&learner, &[1.0, -1.0, 0.5]).unwrap();
    let report = learner.step(&batch).unwrap();
    assert!((report.metrics["is_ess"] - 1.0).abs() < 1e-5, "{report:?}");
    assert!(report.metrics["rollout_kl_k3"].abs() < 1e-9, "{report:?}");
    let handle = learner.export().unwrap();
    let WeightsSource::Memory(bytes) = &handle.source else {
        panic!("weights are in memory");
    };
    let loaded = VlmModel::from_weights(bytes).unwrap();
    let again = loaded.weights(handle.version).unwrap();
    assert_eq!(again.digest, handle.digest, "the same file from both sides");
    let copy = GrpoLearner::new(loaded, config(128)).unwrap();
    assert_eq!(copy.score(&batch).unwrap(), learner.score(&batch).unwrap());
}
