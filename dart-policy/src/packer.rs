//! Samples of a batch to one pass of the network; what samples share is packed once.

use std::{collections::HashMap, sync::Arc};

use dart_core::{Batch, Frame, ImageSpan, Prompt, Sample};

use crate::{
    assemble::{Assembler, Seen, push_response},
    error::{PolicyError, Result},
    images::hash,
    model::VlmModel,
    network_pass::{NetworkPass, Packed, Target},
    nn::response::ResponseInput,
};

/// The pass that scores `batch.samples[i]` for each `i` of `samples`, in that order; with
/// `reading`, also the reading loss.
pub(crate) fn pack(
    model: &VlmModel,
    batch: &Batch,
    samples: &[usize],
    reading: bool,
) -> Result<NetworkPass> {
    let mut packer = Packer::new(model, reading);
    for &index in samples {
        let sample = batch
            .samples
            .get(index)
            .ok_or_else(|| PolicyError::Mismatch(format!("the batch has no sample {index}")))?;
        packer.push(batch, sample)?;
    }
    Ok(packer.finish())
}

/// Packs samples; the same prompt, picture or window is packed once.
struct Packer<'a> {
    model: &'a VlmModel,
    assembler: Assembler<'a>,
    images: HashMap<usize, usize>,
    frames: HashMap<u64, Vec<(Frame, usize)>>,
    seen: Vec<Seen>,
    prompts: HashMap<u64, Vec<(Vec<u64>, usize)>>,
    responses: ResponseInput,
    targets: Vec<Target>,
}

impl<'a> Packer<'a> {
    fn new(model: &'a VlmModel, reading: bool) -> Self {
        Self {
            model,
            assembler: Assembler::new(&model.net, model.tokenizer(), reading),
            images: HashMap::new(),
            frames: HashMap::new(),
            seen: Vec::new(),
            prompts: HashMap::new(),
            responses: ResponseInput::default(),
            targets: Vec::new(),
        }
    }

    fn push(&mut self, batch: &Batch, sample: &Sample) -> Result<()> {
        let prompt = self.prompt(batch, &sample.prompt)?;
        let grammar = &self.model.grammar;
        let states = grammar.walk(&sample.response)?;
        let first_row = self.responses.parts.len();
        let mut rows = 0;
        for (index, state) in states.into_iter().enumerate() {
            self.targets
                .push(if let Some(token) = grammar.forced(state) {
                    Target::Forced(token)
                } else {
                    rows = index + 1;
                    Target::Row(first_row + index, state)
                });
        }
        let model = (&*self.model.net, self.model.tokenizer());
        push_response(model, &mut self.responses, prompt, &sample.response, rows);
        Ok(())
    }

    /// The number of a prompt, packed if it is new.
    fn prompt(&mut self, batch: &Batch, prompt: &Prompt) -> Result<usize> {
        let mut key: Vec<u64> = prompt.token_ids.iter().map(|t| u64::from(*t)).collect();
        let mut pictures = Vec::with_capacity(prompt.images.len());
        for span in &prompt.images {
            let seen = self.seen(batch, span)?;
            key.extend([u64::from(span.start), u64::from(span.len), seen as u64]);
            pictures.push((span.image, seen));
        }
        let bytes: Vec<u8> = key.iter().flat_map(|word| word.to_le_bytes()).collect();
        let same = self.prompts.entry(hash(&bytes)).or_default();
        if let Some((_, number)) = same.iter().find(|(known, _)| *known == key) {
            return Ok(*number);
        }
        let find = |image: u32| {
            let found = pictures.iter().find(|(index, _)| *index == image);
            found.map(|(_, seen)| &self.seen[*seen])
        };
        let number = self
            .assembler
            .prompt(&prompt.token_ids, &prompt.images, find)?;
        same.push((key, number));
        Ok(number)
    }

    /// The number of a span's picture, prepared if it is new.
    fn seen(&mut self, batch: &Batch, span: &ImageSpan) -> Result<usize> {
        let index = span.image as usize;
        if let Some(seen) = self.images.get(&index) {
            return Ok(*seen);
        }
        let image = batch
            .images
            .get(index)
            .ok_or_else(|| PolicyError::Mismatch(format!("the batch has no image {index}")))?;
        let same = self.frames.entry(hash(image.frame.rgb())).or_default();
        let known = same.iter().find(|(frame, _)| *frame == image.frame);
        let seen = if let Some((_, seen)) = known {
            *seen
        } else {
            let ui = image.ui.as_deref();
            self.seen.push(Seen::new(&self.model.net, &image.frame, ui));
            same.push((image.frame.clone(), self.seen.len() - 1));
            self.seen.len() - 1
        };
        self.images.insert(index, seen);
        Ok(seen)
    }

    fn finish(self) -> NetworkPass {
        let packed = Packed {
            prefix_input: self.assembler.finish(),
            response_input: self.responses,
            targets: self.targets,
        };
        let (net, grammar) = (&self.model.net, &self.model.grammar);
        NetworkPass::new(Arc::clone(net), Arc::clone(grammar), packed)
    }
}
