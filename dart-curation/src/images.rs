//! The images of a batch, each once.

use std::{collections::BTreeMap, sync::Arc};

use dart_core::{BatchImage, ImageSpan, Observation, Prompt, Size, Trajectory, UiElement};

use crate::error::{CurationError, Result};

/// Collects the images that samples refer to. Equal pixels are kept once, wherever they come from.
#[derive(Debug, Default)]
pub(crate) struct Images {
    collected: Vec<BatchImage>,
    by_content: BTreeMap<(u32, u32, [u8; 32]), u32>,
    // Frames are shared by clones: most repetitions are found by address, without hashing. The
    // trajectories outlive the collector, so no address is used for two frames.
    by_address: BTreeMap<(usize, u32, u32), u32>,
}

impl Images {
    /// The prompt of step `step`, its images renumbered from steps of the trajectory to images of
    /// the batch.
    pub(crate) fn remap(&mut self, trajectory: &Trajectory, step: usize) -> Result<Prompt> {
        let prompt = &trajectory.steps[step].decision.prompt;
        let images = prompt
            .images
            .iter()
            .map(|span| {
                let image = span.image as usize;
                // A prompt shows nothing later than its own step.
                let source = trajectory
                    .steps
                    .get(image)
                    .filter(|_| image <= step)
                    .ok_or(CurationError::NoSuchImage {
                        trajectory: trajectory.id,
                        step,
                        image: span.image,
                    })?;
                let image = self.insert(&source.observation);
                Ok(ImageSpan { image, ..*span })
            })
            .collect::<Result<_>>()?;
        Ok(Prompt {
            token_ids: prompt.token_ids.clone(),
            images,
        })
    }

    /// The collected images.
    pub(crate) fn into_vec(self) -> Vec<BatchImage> {
        self.collected
    }

    fn insert(&mut self, observation: &Observation) -> u32 {
        let Size { width, height } = observation.frame.size();
        let rgb = observation.frame.rgb();
        let address = (rgb.as_ptr() as usize, width, height);
        let known = self.by_address.get(&address).copied();
        let index = known.unwrap_or_else(|| self.insert_content(observation));
        self.by_address.insert(address, index);
        self.add_ui(index, observation.ui.as_ref());
        index
    }

    fn insert_content(&mut self, observation: &Observation) -> u32 {
        let Size { width, height } = observation.frame.size();
        let hash = *blake3::hash(observation.frame.rgb()).as_bytes();
        let next = self.collected.len() as u32;
        let index = *self.by_content.entry((width, height, hash)).or_insert(next);
        if index == next {
            self.collected.push(BatchImage {
                frame: observation.frame.clone(),
                ui: None,
            });
        }
        index
    }

    fn add_ui(&mut self, index: u32, ui: Option<&Arc<[UiElement]>>) {
        let image = &mut self.collected[index as usize];
        if image.ui.is_none() {
            image.ui = ui.cloned();
        }
    }
}
