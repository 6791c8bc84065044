//! [`FakeLearner`]: the policy gradient of [`FakeWeights`], by hand.

use std::{collections::BTreeMap, fs, path::Path};

use dart_core::{
    Batch, Error, ErrorKind, Frame, Learner, LearnerReport, Objective, PolicyVersion, Result,
    Sample, WeightsHandle,
};
use serde::{Deserialize, Serialize};

use super::weights::FakeWeights;

const FILE: &str = "fake.json";
const MOMENTUM: f64 = 0.5;

/// What is saved.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: PolicyVersion,
    weights: FakeWeights,
    #[serde(with = "super::weights::bits::many")]
    velocity: Vec<f64>,
}

/// Gradient ascent with momentum on the mean over the batch of advantage times log-likelihood
/// (imitation: advantage 1). Its samples are those that [`FakePolicy`](super::FakePolicy) makes.
#[derive(Clone, Debug)]
pub struct FakeLearner {
    state: State,
    learning_rate: f64,
    micro_batch: usize,
}

impl FakeLearner {
    /// A learner that starts from these weights.
    pub fn new(weights: FakeWeights, learning_rate: f64) -> Self {
        let velocity = vec![0.0; weights.bias.len() + 1];
        Self {
            state: State {
                version: PolicyVersion(0),
                weights,
                velocity,
            },
            learning_rate,
            micro_batch: usize::MAX,
        }
    }

    /// Adds gradients up over at most this many samples at a time.
    pub const fn with_micro_batch(mut self, samples: usize) -> Self {
        self.micro_batch = samples;
        self
    }

    /// Sets the momentum to zero, as after a restart that saved none.
    pub fn forget_momentum(&mut self) {
        self.state.velocity.fill(0.0);
    }

    /// The weights of now.
    pub const fn weights(&self) -> &FakeWeights {
        &self.state.weights
    }

    /// Log-likelihood of each response.
    pub fn log_likelihood(&self, batch: &Batch) -> Result<Vec<f64>> {
        let of = |sample| {
            let (frame, cell) = self.seen_and_done(batch, sample)?;
            let log_probs = self.state.weights.log_probs(frame, temperature(sample));
            Ok(log_probs[cell])
        };
        batch.samples.iter().map(of).collect()
    }

    /// The image that the decision was taken on, and the chosen cell.
    fn seen_and_done<'b>(&self, batch: &'b Batch, sample: &Sample) -> Result<(&'b Frame, usize)> {
        let span = sample.prompt.images.last();
        let image = span.and_then(|span| batch.images.get(span.image as usize));
        let cells = self.state.weights.cells();
        let cell = sample
            .response
            .first()
            .copied()
            .filter(|cell| *cell < cells);
        match (image, cell) {
            (Some(image), Some(cell)) => Ok((&image.frame, cell as usize)),
            _ => Err(fault(
                ErrorKind::Protocol,
                "step",
                "a sample that no fake policy made",
            )),
        }
    }

    /// Gradient of one sample's log-likelihood: the gain first, then the biases.
    fn gradient(&self, batch: &Batch, sample: &Sample) -> Result<Vec<f64>> {
        let (frame, cell) = self.seen_and_done(batch, sample)?;
        let temperature = temperature(sample);
        let redness = self.state.weights.redness(frame);
        let log_probs = self.state.weights.log_probs(frame, temperature);
        let pull = |index: usize| f64::from(u8::from(index == cell)) - log_probs[index].exp();
        let bias: Vec<_> = (0..log_probs.len())
            .map(|i| pull(i) / temperature)
            .collect();
        let gain = bias.iter().zip(&redness).map(|(b, r)| b * r).sum();
        Ok([vec![gain], bias].concat())
    }

    /// Sum over the batch, divided by the size of the whole batch whatever the micro-batch.
    fn batch_gradient(&self, batch: &Batch) -> Result<Vec<f64>> {
        let mut sum = vec![0.0; self.state.velocity.len()];
        for micro in batch.samples.chunks(self.micro_batch) {
            for sample in micro {
                let weight = match batch.objective {
                    Objective::Imitation => 1.0,
                    Objective::PolicyGradient => advantage(sample),
                };
                let gradient = self.gradient(batch, sample)?;
                for (sum, part) in sum.iter_mut().zip(gradient) {
                    *sum += weight * part / batch.samples.len() as f64;
                }
            }
        }
        Ok(sum)
    }

    fn ascend(&mut self, gradient: &[f64]) {
        let State {
            weights, velocity, ..
        } = &mut self.state;
        let parameters = std::iter::once(&mut weights.gain).chain(&mut weights.bias);
        for ((parameter, speed), slope) in parameters.zip(velocity).zip(gradient) {
            *speed = MOMENTUM * *speed + slope;
            *parameter += self.learning_rate * *speed;
        }
    }
}

/// That of the first token, which names the cell; the end token is certain.
fn advantage(sample: &Sample) -> f64 {
    sample.advantages.first().copied().unwrap_or_default()
}

/// Greedy decisions are scored at temperature 1.
fn temperature(sample: &Sample) -> f64 {
    if sample.temperature > 0.0 {
        f64::from(sample.temperature)
    } else {
        1.0
    }
}

fn fault(kind: ErrorKind, operation: &'static str, message: impl std::fmt::Display) -> Error {
    Error::new(kind, "fake learner", operation, message.to_string())
}

fn check(batch: &Batch) -> Result<()> {
    let mismatched = batch.objective == Objective::PolicyGradient
        && batch.samples.iter().any(|sample| {
            let tokens = sample.response.len();
            sample.rollout_log_probs.len() != tokens || sample.advantages.len() != tokens
        });
    if mismatched {
        let message = "one log-prob and one advantage for each token are needed";
        return Err(fault(ErrorKind::Protocol, "step", message));
    }
    Ok(())
}

impl Learner for FakeLearner {
    fn step(&mut self, batch: &Batch) -> Result<LearnerReport> {
        check(batch)?;
        let skipped = batch.samples.is_empty()
            || batch.objective == Objective::PolicyGradient
                && batch.samples.iter().all(|sample| advantage(sample) == 0.0);
        let mut metrics = BTreeMap::new();
        if !skipped {
            let gradient = self.batch_gradient(batch)?;
            let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            metrics.insert("grad_norm", norm);
            self.ascend(&gradient);
        }
        self.state.version = self.state.version.next();
        Ok(LearnerReport {
            version: self.state.version,
            skipped,
            metrics,
        })
    }

    fn version(&self) -> PolicyVersion {
        self.state.version
    }

    fn export(&self) -> Result<WeightsHandle> {
        self.state.weights.handle(self.state.version)
    }

    fn save(&self, dir: &Path) -> Result<()> {
        let bytes = serde_json::to_vec(&self.state)
            .map_err(|error| fault(ErrorKind::Internal, "save", error))?;
        fs::write(dir.join(FILE), bytes).map_err(|error| fault(ErrorKind::Storage, "save", error))
    }

    fn restore(&mut self, dir: &Path) -> Result<()> {
        let bytes = fs::read(dir.join(FILE))
            .map_err(|error| fault(ErrorKind::Storage, "restore", error))?;
        self.state = serde_json::from_slice(&bytes)
            .map_err(|error| fault(ErrorKind::Protocol, "restore", error))?;
        Ok(())
    }
}
