//! [`Encoder`]: an expert's actions as the policy would have said them.

use std::sync::Arc;

use dart_core::{
    Action, Decision, DemonstrationEncoder, LogProbKind, PolicyInput, PolicyVersion, Result,
    Viewport,
};

use crate::{config::ModelConfig, grammar::ActionGrammar, model::VlmModel, prompt::PromptBuilder};

/// Writes demonstrations in the policy's tokens.
#[derive(Clone, Debug)]
pub struct Encoder {
    config: ModelConfig,
    grammar: Arc<ActionGrammar>,
    builder: PromptBuilder,
}

impl Encoder {
    /// The encoder for `model`.
    pub fn new(model: &VlmModel) -> Self {
        Self {
            config: model.config().clone(),
            grammar: Arc::clone(&model.grammar),
            builder: PromptBuilder::new(model.config()),
        }
    }
}

impl DemonstrationEncoder for Encoder {
    /// Points move to the middle of their cell, so the decision's action is what the policy would
    /// do, which may be a few pixels beside the expert's.
    fn encode(&self, input: &PolicyInput, action: &Action) -> Result<Decision> {
        let viewport = Viewport::new(input.observation.frame.size(), self.config.image());
        let tokens = self.grammar.encode(action, viewport)?;
        let (parsed, text) = self.grammar.decode(&tokens, viewport);
        Ok(Decision {
            action: parsed,
            text,
            prompt: self.builder.build(input),
            rollout_log_probs: tokens.iter().map(|_| 0.0).collect(),
            token_ids: tokens.into(),
            entropies: None,
            log_prob_kind: LogProbKind::AfterTemperature,
            temperature: 1.0,
            version: PolicyVersion(0),
            truncated: false,
        })
    }
}
