//! The conformance suite of learners.

use dart_core::{Batch, Objective, Result};
use dart_testkit::{learner::LearnerHarness, learner_conformance};
use dart_trainer::{GrpoLearner, TrainerConfig};

use crate::toy::{self, Toy};

struct Harness {
    threads: usize,
    entropy_drop: f64,
    epochs: usize,
}

/// One pass whose graph is kept until the steps of high entropy are known; two threads.
const ONE_PASS: Harness = Harness {
    threads: 2,
    entropy_drop: 0.2,
    epochs: 1,
};

/// Nothing has to be known ahead.
const DIRECT: Harness = Harness {
    threads: 1,
    entropy_drop: 0.0,
    epochs: 1,
};

/// Old log-probs from a pass of their own.
const EPOCHS: Harness = Harness {
    threads: 1,
    entropy_drop: 0.2,
    epochs: 2,
};

impl LearnerHarness for Harness {
    type Learner = GrpoLearner<Toy>;

    fn make(&self, micro_batch: usize) -> Result<Self::Learner> {
        let config = TrainerConfig {
            threads: self.threads,
            entropy_drop: self.entropy_drop,
            epochs: self.epochs,
            micro_batch_samples: micro_batch,
            ..toy::config()
        };
        GrpoLearner::new(Toy::new(), config)
    }

    fn imitation(&self) -> Batch {
        let mut sample = toy::sample(1, &[0, 2, 4], 0.0);
        sample.rollout_log_probs = Vec::new().into();
        toy::batch(Objective::Imitation, vec![sample])
    }

    fn on_policy(&self, learner: &mut Self::Learner, advantages: &[f64]) -> Result<Batch> {
        let samples = advantages.iter().zip(0u32..).map(|(advantage, i)| {
            let response: Vec<u32> = (0..=i % 3).map(|t| (2 * i + t) % 6).collect();
            toy::sample(i % 4, &response, *advantage)
        });
        let mut batch = toy::batch(Objective::PolicyGradient, samples.collect());
        let scores = learner.score(&batch)?;
        for (sample, scores) in batch.samples.iter_mut().zip(scores) {
            sample.rollout_log_probs = scores.into();
        }
        Ok(batch)
    }

    fn log_likelihood(&self, learner: &mut Self::Learner, batch: &Batch) -> Result<Vec<f64>> {
        let sum = |scores: Vec<f32>| scores.into_iter().map(f64::from).sum();
        Ok(learner.score(batch)?.into_iter().map(sum).collect())
    }
}

learner_conformance!(mod in_one_pass, crate::conformance::ONE_PASS);
learner_conformance!(mod direct, crate::conformance::DIRECT);
learner_conformance!(mod with_epochs, crate::conformance::EPOCHS);
