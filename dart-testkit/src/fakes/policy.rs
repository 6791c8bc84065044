//! Policies without a network: one that draws cells of a grid, one that follows a script.

use std::{
    sync::{PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use dart_core::{
    Action, Decision, ImageSpan, LogProbKind, ParsedAction, Policy, PolicyInput, PolicyVersion,
    Prompt, Result, WeightsHandle,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::weights::{FakeWeights, checked_bytes};

/// Clicks a cell of a grid, drawn from [`FakeWeights`]. A response is two tokens: the cell and an
/// end token.
#[derive(Debug)]
pub struct FakePolicy {
    weights: RwLock<(PolicyVersion, FakeWeights)>,
    latency_ms: (u64, u64),
}

impl FakePolicy {
    /// A policy with these weights as version 0.
    pub const fn new(weights: FakeWeights) -> Self {
        Self {
            weights: RwLock::new((PolicyVersion(0), weights)),
            latency_ms: (0, 0),
        }
    }

    /// Takes between `shortest` and `longest` milliseconds for a decision, drawn from its seed.
    pub const fn with_latency_ms(mut self, shortest: u64, longest: u64) -> Self {
        self.latency_ms = (shortest, longest);
        self
    }

    fn weights(&self) -> (PolicyVersion, FakeWeights) {
        let weights = self.weights.read();
        weights.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The prompt of every fake: the length of the instruction, then one token for each of the last two
/// images.
pub(super) fn prompt(input: &PolicyInput) -> Prompt {
    let current = input.history.len() as u32;
    let first = current.saturating_sub(1);
    let images: Vec<_> = (first..=current)
        .map(|image| ImageSpan {
            image,
            start: 1 + image - first,
            len: 1,
        })
        .collect();
    let tokens = 1 + images.len();
    Prompt {
        token_ids: vec![input.instruction.len() as u32; tokens].into(),
        images,
    }
}

/// A decision of two tokens, the second of which is certain.
fn decision(input: &PolicyInput, version: PolicyVersion, action: Action, said: Said) -> Decision {
    Decision {
        text: format!("{action:?}"),
        action: ParsedAction::Valid(action),
        prompt: prompt(input),
        token_ids: vec![said.token, said.end].into(),
        rollout_log_probs: vec![said.log_prob as f32, 0.0].into(),
        entropies: Some(vec![said.entropy as f32, 0.0].into()),
        log_prob_kind: LogProbKind::AfterTemperature,
        temperature: input.sampling.temperature,
        version,
        truncated: false,
    }
}

/// The token that says the action, and how likely it was.
#[derive(Clone, Copy)]
struct Said {
    token: u32,
    end: u32,
    log_prob: f64,
    entropy: f64,
}

/// Index of the largest number; the first of equals.
fn largest(values: &[f64]) -> usize {
    let better = |best: usize, (index, value): (usize, &f64)| {
        if *value > values[best] { index } else { best }
    };
    values.iter().enumerate().fold(0, better)
}

/// Index drawn with these log-probs.
fn draw(log_probs: &[f64], rng: &mut ChaCha8Rng) -> usize {
    let mut left: f64 = rng.random();
    for (index, log_prob) in log_probs.iter().enumerate() {
        left -= log_prob.exp();
        if left < 0.0 {
            return index;
        }
    }
    log_probs.len() - 1
}

#[async_trait]
impl Policy for FakePolicy {
    async fn act(&self, input: PolicyInput) -> Result<Decision> {
        let (version, weights) = self.weights();
        let mut rng = ChaCha8Rng::seed_from_u64(input.sampling.seed);
        let (shortest, longest) = self.latency_ms;
        if longest > 0 {
            let millis = rng.random_range(shortest..=longest);
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        let frame = &input.observation.frame;
        let greedy = input.sampling.temperature <= 0.0;
        let temperature = if greedy {
            1.0
        } else {
            f64::from(input.sampling.temperature)
        };
        let log_probs = weights.log_probs(frame, temperature);
        let cell = if greedy {
            largest(&log_probs)
        } else {
            draw(&log_probs, &mut rng)
        };
        let said = Said {
            token: cell as u32,
            end: weights.cells(),
            // Adding 0 makes -0 of a certain cell 0.
            log_prob: log_probs[cell].min(0.0),
            entropy: log_probs
                .iter()
                .map(|lp| -lp.exp() * lp)
                .sum::<f64>()
                .max(0.0),
        };
        let action = Action::click(weights.cell(said.token, frame).center());
        Ok(decision(&input, version, action, said))
    }

    fn version(&self) -> PolicyVersion {
        self.weights().0
    }

    async fn load(&self, handle: &WeightsHandle) -> Result<()> {
        let loaded = FakeWeights::from_handle(handle)?;
        let mut weights = self.weights.write().unwrap_or_else(PoisonError::into_inner);
        *weights = (handle.version, loaded);
        Ok(())
    }
}

/// Follows a script: the n-th step of an episode gets the n-th action, and after the last one
/// [`Action::Done`]. Weights change its version and nothing else.
#[derive(Debug)]
pub struct ScriptedPolicy {
    script: Vec<Action>,
    version: RwLock<PolicyVersion>,
}

impl ScriptedPolicy {
    /// A policy that takes these actions in every episode.
    pub const fn new(script: Vec<Action>) -> Self {
        Self {
            script,
            version: RwLock::new(PolicyVersion(0)),
        }
    }
}

#[async_trait]
impl Policy for ScriptedPolicy {
    async fn act(&self, input: PolicyInput) -> Result<Decision> {
        let step = input.history.len();
        let said = Said {
            token: step.min(self.script.len()) as u32,
            end: self.script.len() as u32 + 1,
            log_prob: -0.5,
            entropy: 0.5,
        };
        let action = self.script.get(step).cloned().unwrap_or(Action::Done);
        Ok(decision(&input, self.version(), action, said))
    }

    fn version(&self) -> PolicyVersion {
        *self.version.read().unwrap_or_else(PoisonError::into_inner)
    }

    async fn load(&self, handle: &WeightsHandle) -> Result<()> {
        checked_bytes(handle)?;
        *self.version.write().unwrap_or_else(PoisonError::into_inner) = handle.version;
        Ok(())
    }
}
