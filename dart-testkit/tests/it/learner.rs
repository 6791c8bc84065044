//! The learner suite on the fake learner.

use dart_core::{Batch, Objective, Rect, Result, Size};
use dart_testkit::{
    fakes::{FakeLearner, FakeWeights},
    learner::LearnerHarness,
    learner_conformance, records,
};

const CELLS: u32 = 12;

pub(crate) fn blank() -> FakeWeights {
    FakeWeights::blank(4, 3)
}

/// Samples on frames whose square is under, or is not under, the chosen cell.
pub(crate) fn batch(objective: Objective, advantages: &[f64]) -> Batch {
    let size = Size::new(32, 24);
    let frames = (0..advantages.len() as i32)
        .map(|index| records::frame(size, Rect::new(index % 4 * 8, 0, 6, 6)))
        .collect();
    let samples = advantages
        .iter()
        .zip(0..)
        .map(|(advantage, index)| records::sample(index, index * 2 % CELLS, CELLS, *advantage))
        .collect();
    records::batch(objective, frames, samples)
}

pub(crate) struct Toy;

impl LearnerHarness for Toy {
    type Learner = FakeLearner;

    fn make(&self, micro_batch: usize) -> Result<FakeLearner> {
        Ok(FakeLearner::new(blank(), 0.5).with_micro_batch(micro_batch))
    }

    fn imitation(&self) -> Batch {
        batch(Objective::Imitation, &[0.0])
    }

    fn on_policy(&self, learner: &mut FakeLearner, advantages: &[f64]) -> Result<Batch> {
        let mut batch = batch(Objective::PolicyGradient, advantages);
        let scores = learner.log_likelihood(&batch)?;
        for (sample, score) in batch.samples.iter_mut().zip(scores) {
            sample.rollout_log_probs = vec![score as f32, 0.0].into();
        }
        Ok(batch)
    }

    fn log_likelihood(&self, learner: &mut FakeLearner, batch: &Batch) -> Result<Vec<f64>> {
        learner.log_likelihood(batch)
    }
}

learner_conformance!(Toy);
