//! Trajectories as flat arrays in one safetensors file, for Python.
//!
//! N trajectories have S steps in all; those of trajectory `i` are `step_offsets[i]` to
//! `step_offsets[i + 1]`, the tokens of step `s` are `token_offsets[s]` to `token_offsets[s + 1]`.
//!
//! | array | shape, type | what |
//! |---|---|---|
//! | `reward` | N, f64 | NaN where the episode was aborted |
//! | `step_offsets` | N + 1, i64 | |
//! | `version` | S, i64 | the weights that acted |
//! | `temperature` | S, f32 | |
//! | `token_offsets`, `prompt_offsets` | S + 1, i64 | |
//! | `tokens`, `prompt_tokens` | i64 | |
//! | `log_probs` | as `tokens`, f32 | under the policy that acted |
//! | `entropies` | as `tokens`, f32 | NaN where the policy gave none |
//!
//! The metadata has JSON lists: `ids`, `tasks` (N each), `images` (S, file names), `texts` (S).

use std::collections::HashMap;

use anyhow::Result;
use dart_core::Trajectory;
use safetensors::{Dtype, tensor::TensorView};

use super::format::image_name;

/// The arrays, as they grow.
#[derive(Debug, Default)]
pub struct Arrays {
    rewards: Vec<f64>,
    step_offsets: Vec<i64>,
    versions: Vec<i64>,
    temperatures: Vec<f32>,
    token_offsets: Vec<i64>,
    prompt_offsets: Vec<i64>,
    tokens: Vec<i64>,
    prompt_tokens: Vec<i64>,
    log_probs: Vec<f32>,
    entropies: Vec<f32>,
    ids: Vec<String>,
    tasks: Vec<String>,
    images: Vec<String>,
    texts: Vec<String>,
}

impl Arrays {
    /// Adds a trajectory.
    pub fn push(&mut self, trajectory: &Trajectory) {
        let reward = trajectory.outcome.reward();
        self.rewards
            .push(reward.map_or(f64::NAN, dart_core::Reward::value));
        self.step_offsets.push(self.versions.len() as i64);
        self.ids.push(trajectory.id.to_string());
        self.tasks.push(trajectory.task.id.to_string());
        for step in &trajectory.steps {
            let decision = &step.decision;
            self.versions.push(decision.version.0 as i64);
            self.temperatures.push(decision.temperature);
            self.token_offsets.push(self.tokens.len() as i64);
            self.prompt_offsets.push(self.prompt_tokens.len() as i64);
            self.tokens
                .extend(decision.token_ids.iter().map(|token| i64::from(*token)));
            let prompt = decision.prompt.token_ids.iter();
            self.prompt_tokens
                .extend(prompt.map(|token| i64::from(*token)));
            self.log_probs.extend(decision.rollout_log_probs.iter());
            self.entropies.resize(self.tokens.len(), f32::NAN);
            if let Some(entropies) = &decision.entropies {
                let at = self.tokens.len() - entropies.len();
                self.entropies[at..].copy_from_slice(entropies);
            }
            self.images.push(image_name(&step.observation.frame));
            self.texts.push(decision.text.clone());
        }
    }

    /// The file.
    ///
    /// # Errors
    /// If the arrays cannot be written, which would be a bug.
    pub fn encode(mut self) -> Result<Vec<u8>> {
        self.step_offsets.push(self.versions.len() as i64);
        self.token_offsets.push(self.tokens.len() as i64);
        self.prompt_offsets.push(self.prompt_tokens.len() as i64);
        let whole = |values: &[i64]| (Dtype::I64, values.len(), bytes(values, i64::to_le_bytes));
        let single = |values: &[f32]| (Dtype::F32, values.len(), bytes(values, f32::to_le_bytes));
        let rewards = bytes(&self.rewards, f64::to_le_bytes);
        let arrays = [
            ("reward", (Dtype::F64, self.rewards.len(), rewards)),
            ("step_offsets", whole(&self.step_offsets)),
            ("version", whole(&self.versions)),
            ("temperature", single(&self.temperatures)),
            ("token_offsets", whole(&self.token_offsets)),
            ("prompt_offsets", whole(&self.prompt_offsets)),
            ("tokens", whole(&self.tokens)),
            ("prompt_tokens", whole(&self.prompt_tokens)),
            ("log_probs", single(&self.log_probs)),
            ("entropies", single(&self.entropies)),
        ];
        let views = arrays
            .iter()
            .map(|(name, (dtype, length, bytes))| {
                Ok((*name, TensorView::new(*dtype, vec![*length], bytes)?))
            })
            .collect::<Result<Vec<_>>>()?;
        let lists = [
            ("ids", &self.ids),
            ("tasks", &self.tasks),
            ("images", &self.images),
            ("texts", &self.texts),
        ];
        let metadata = lists
            .into_iter()
            .map(|(name, list)| Ok((name.to_owned(), serde_json::to_string(list)?)))
            .collect::<Result<HashMap<_, _>>>()?;
        Ok(safetensors::serialize(views, Some(metadata))?)
    }
}

fn bytes<T: Copy, const N: usize>(values: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| to_bytes(*value)).collect()
}
