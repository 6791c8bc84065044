//! What a policy puts out at one step, and what it was shown.
//!
//! Token in, token out: prompts and responses are stored as the token ids that the model consumed
//! and produced; text is for people. History is never tokenised again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Action, Error, ErrorKind, PolicyVersion, Result};

/// The tokens of one image inside a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSpan {
    /// Which image: the step whose observation it is (in a trajectory), or an index into
    /// [`Batch::images`](crate::Batch::images) (in a batch).
    pub image: u32,
    /// First token of the span.
    pub start: u32,
    /// Number of tokens: what the model's patch grid gives for this image.
    pub len: u32,
}

/// What the model consumed: token ids, some of which stand for patches of images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// All token ids, image placeholders included.
    pub token_ids: Arc<[u32]>,
    /// The images, in order of their spans.
    pub images: Vec<ImageSpan>,
}

impl Prompt {
    /// Checks that spans lie inside the prompt, in order, without overlap.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`]: images and tokens do not belong together, which would silently
    /// train on the wrong picture.
    pub fn validate(&self) -> Result<()> {
        let mut free = 0u64;
        for span in &self.images {
            let (start, len) = (u64::from(span.start), u64::from(span.len));
            if len == 0 || start < free || start + len > self.token_ids.len() as u64 {
                return Err(Error::new(
                    ErrorKind::Internal,
                    "dart-core",
                    "prompt",
                    "image spans do not fit the tokens",
                )
                .with("image", span.image)
                .with("start", span.start)
                .with("len", span.len)
                .with("tokens", self.token_ids.len()));
            }
            free = start + len;
        }
        Ok(())
    }
}

/// The policy's output read as an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParsedAction {
    /// It is this action.
    Valid(Action),
    /// It is none, for this reason.
    Invalid(String),
}

impl ParsedAction {
    /// The action, if it is one.
    pub const fn valid(&self) -> Option<&Action> {
        match self {
            Self::Valid(action) => Some(action),
            Self::Invalid(_) => None,
        }
    }
}

/// Which distribution the recorded log-probs belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogProbKind {
    /// Softmax of the logits after temperature (and grammar mask): what was really sampled from.
    #[default]
    AfterTemperature,
    /// Softmax of the raw logits.
    Raw,
}

/// How to draw tokens. There is no top-p and no top-k: with them the recorded log-probs would
/// belong to another distribution than the learner's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 takes the most likely token.
    pub temperature: f32,
    /// Seeds the draw of this one decision.
    pub seed: u64,
}

impl Sampling {
    /// Always the most likely token.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        seed: 0,
    };
}

/// A policy's output for one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The output read as an action.
    pub action: ParsedAction,
    /// The output as text, for people.
    pub text: String,
    /// What the model was shown.
    pub prompt: Prompt,
    /// What the model produced, end token included.
    pub token_ids: Arc<[u32]>,
    /// Log-probability of each produced token under the policy that acted; all ≤ 0.
    pub rollout_log_probs: Arc<[f32]>,
    /// Full-vocabulary entropy at each produced token, in nats, if the policy computes it.
    pub entropies: Option<Arc<[f32]>>,
    /// Which distribution the log-probs belong to.
    pub log_prob_kind: LogProbKind,
    /// Temperature at which the tokens were drawn; 0 is greedy.
    pub temperature: f32,
    /// The weights that produced it. All tokens of one decision come from the same weights.
    pub version: PolicyVersion,
    /// Whether the token limit cut the output.
    pub truncated: bool,
}

impl Decision {
    /// Checks lengths, signs and spans. Called wherever a decision enters from outside.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if log-probs or entropies do not match the tokens, or are not
    /// finite or of the wrong sign; [`ErrorKind::Internal`] if image spans do not fit.
    pub fn validate(&self) -> Result<()> {
        let fault = |message: &'static str| {
            Err(
                Error::new(ErrorKind::Protocol, "dart-core", "decision", message)
                    .with("tokens", self.token_ids.len())
                    .with("log_probs", self.rollout_log_probs.len()),
            )
        };
        if self.token_ids.is_empty() || self.token_ids.len() != self.rollout_log_probs.len() {
            return fault("one log-prob for each of at least one token is needed");
        }
        if self
            .rollout_log_probs
            .iter()
            .any(|lp| !lp.is_finite() || *lp > 0.0)
        {
            return fault("log-probs are finite and not positive");
        }
        if let Some(entropies) = &self.entropies {
            if entropies.len() != self.token_ids.len() {
                return fault("one entropy for each token is needed");
            }
            if entropies.iter().any(|h| !h.is_finite() || *h < 0.0) {
                return fault("entropies are finite and not negative");
            }
        }
        self.prompt.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision() -> Decision {
        Decision {
            action: ParsedAction::Valid(Action::Done),
            text: "finished()".into(),
            prompt: Prompt {
                token_ids: vec![1, 9, 9, 2].into(),
                images: vec![ImageSpan {
                    image: 0,
                    start: 1,
                    len: 2,
                }],
            },
            token_ids: vec![3, 4].into(),
            rollout_log_probs: vec![-0.5, 0.0].into(),
            entropies: Some(vec![0.1, 0.0].into()),
            log_prob_kind: LogProbKind::AfterTemperature,
            temperature: 1.0,
            version: PolicyVersion(0),
            truncated: false,
        }
    }

    #[test]
    fn mismatches_are_refused() {
        assert!(decision().validate().is_ok());
        let cases: [fn(&mut Decision); 6] = [
            |d| d.rollout_log_probs = vec![-0.5].into(),
            |d| d.rollout_log_probs = vec![-0.5, 0.1].into(),
            |d| d.rollout_log_probs = vec![-0.5, f32::NAN].into(),
            |d| d.entropies = Some(vec![0.1].into()),
            |d| d.token_ids = Vec::new().into(),
            |d| d.prompt.images[0].len = 4,
        ];
        for (index, break_it) in cases.iter().enumerate() {
            let mut broken = decision();
            break_it(&mut broken);
            assert!(broken.validate().is_err(), "case {index}");
        }
    }
}
