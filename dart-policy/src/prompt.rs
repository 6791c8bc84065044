//! [`PromptBuilder`]: what the model is shown before it acts.
//!
//! `[images, oldest first] [instruction] [error?] [past] action … [past] action [begin]`. The
//! paper's agent keeps the last five images and 35 texts (ALGORITHM: UI-TARS 1.5); here both are
//! settings. The instruction always stays, whole.

use std::sync::Arc;

use dart_core::{Frame, ImageSpan, PolicyInput, Prompt};

use crate::{
    config::ModelConfig,
    tokenizer::{BEGIN, END, ERROR, IMAGE, PAST, Tokenizer},
};

/// Builds prompts.
#[derive(Clone, Debug)]
pub struct PromptBuilder {
    tokenizer: Tokenizer,
    image_tokens: usize,
    history_images: usize,
    history_actions: usize,
}

impl PromptBuilder {
    /// The builder for a model of this shape.
    pub fn new(config: &ModelConfig) -> Self {
        Self {
            tokenizer: Tokenizer::new(config),
            image_tokens: config.image_tokens(),
            history_images: config.history_images,
            history_actions: config.history_actions,
        }
    }

    /// The prompt for `input`. [`ImageSpan::image`] is the index of the step whose frame it is.
    pub fn build(&self, input: &PolicyInput) -> Prompt {
        let current = input.history.len();
        let oldest = (current + 1).saturating_sub(self.history_images);
        let mut tokens = Vec::new();
        let mut images = Vec::new();
        for image in oldest..=current {
            images.push(ImageSpan {
                image: image as u32,
                start: tokens.len() as u32,
                len: self.image_tokens as u32,
            });
            tokens.resize(tokens.len() + self.image_tokens, IMAGE);
        }
        tokens.extend(self.tokenizer.encode(&input.instruction));
        if input.observation.last_action_error.is_some() {
            tokens.push(ERROR);
        }
        let first = current.saturating_sub(self.history_actions);
        for step in &input.history[first..] {
            tokens.push(PAST);
            tokens.extend(step.response.iter().filter(|token| **token != END));
        }
        tokens.push(BEGIN);
        Prompt {
            token_ids: Arc::from(tokens),
            images,
        }
    }
}

/// The frame of step `image`.
pub(crate) fn frame_of(input: &PolicyInput, image: u32) -> Option<&Frame> {
    let index = image as usize;
    match index.cmp(&input.history.len()) {
        std::cmp::Ordering::Less => Some(&input.history[index].frame),
        std::cmp::Ordering::Equal => Some(&input.observation.frame),
        std::cmp::Ordering::Greater => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dart_core::{Observation, PastStep, Sampling, Size};

    fn input(steps: usize) -> PolicyInput {
        let frame = || Frame::new(Size::new(128, 96), vec![0; 128 * 96 * 3]).unwrap();
        PolicyInput {
            instruction: "click the button xyz".into(),
            history: (0..steps)
                .map(|i| PastStep {
                    frame: frame(),
                    response: vec![10 + i as u32, END].into(),
                })
                .collect(),
            observation: Observation::of(frame()),
            sampling: Sampling::GREEDY,
        }
    }

    #[test]
    fn the_instruction_stays_and_history_is_cut() {
        let config = ModelConfig {
            history_images: 2,
            history_actions: 3,
            ..ModelConfig::default()
        };
        let builder = PromptBuilder::new(&config);
        let words = Tokenizer::new(&config).encode("click the button xyz");
        let first = builder.build(&input(0));
        assert_eq!(first.images.len(), 1);
        assert_eq!(first.token_ids.len(), 48 + words.len() + 1);
        let later = builder.build(&input(9));
        later.validate().unwrap();
        assert_eq!(
            later.images.iter().map(|s| s.image).collect::<Vec<_>>(),
            [8, 9]
        );
        let mut want = words;
        want.extend([PAST, 16, PAST, 17, PAST, 18, BEGIN]);
        assert_eq!(later.token_ids[96..], want);
        assert!(frame_of(&input(2), 2).is_some() && frame_of(&input(2), 3).is_none());
    }
}
