//! [`Decoder`]: decisions for many observations at once.
//!
//! Each distinct prompt goes through the network once and is kept, as long as the weights stay
//! and the cache has room; then all responses are decoded side by side, one token a time.

use std::{collections::VecDeque, sync::Arc};

use dart_core::{
    Decision, Frame, LogProbKind, PolicyInput, PolicyVersion, Prompt, Sampling, Viewport,
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::{
    assemble::{Assembler, Seen, response_parts},
    error::{PolicyError, Result},
    grammar::{ActionGrammar, State},
    images::hash,
    model::VlmModel,
    nn::{
        Net,
        attention::KeyValues,
        prefix::Prefix,
        response::{Decoded, Prompts, ResponseInput, ResponseRows},
    },
    prompt::{PromptBuilder, frame_of},
    sampler::{self, Draw, Rule},
    tokenizer::BEGIN,
};

/// Prompts computed together: few enough for their activations to stay in the CPU's cache.
const CHUNK: usize = 8;

/// A prompt after its pass through the network.
#[derive(Debug)]
struct KeptPrompt {
    hash: u64,
    prompt: Prompt,
    frames: Vec<Frame>,
    tokens: usize,
    /// For each block, keys and values `[tokens, 2 width]`.
    layers: Vec<Vec<f32>>,
    pointer_keys: Vec<f32>,
}

impl KeptPrompt {
    fn bytes(&self) -> usize {
        let numbers: usize = self.layers.iter().map(Vec::len).sum();
        (numbers + self.pointer_keys.len()) * size_of::<f32>()
    }
}

/// Decides for many observations at once, with one set of weights at a time.
#[derive(Debug)]
pub struct Decoder {
    net: Arc<Net>,
    grammar: Arc<ActionGrammar>,
    builder: PromptBuilder,
    params: Vec<f32>,
    version: PolicyVersion,
    cache: VecDeque<Arc<KeptPrompt>>,
    cache_bytes: usize,
    max_cache_bytes: usize,
    /// See [`PolicyConfig::logit_step`](crate::PolicyConfig::logit_step).
    logit_step: f32,
}

impl Decoder {
    /// A decoder with the weights of `model`, called version `version`, that keeps prompts in at
    /// most `max_cache_bytes`.
    ///
    /// # Errors
    /// [`Internal`](dart_core::ErrorKind::Internal) if the weights cannot be read.
    pub fn new(
        model: &VlmModel,
        version: PolicyVersion,
        max_cache_bytes: usize,
    ) -> dart_core::Result<Self> {
        Ok(Self {
            net: Arc::clone(&model.net),
            grammar: Arc::clone(&model.grammar),
            builder: PromptBuilder::new(model.config()),
            params: model.flat()?,
            version,
            cache: VecDeque::new(),
            cache_bytes: 0,
            max_cache_bytes,
            logit_step: 0.0,
        })
    }

    /// Rounds logits before tokens are drawn, to multiples of `step`; 0 leaves them.
    pub(crate) fn round_logits(&mut self, step: f32) {
        self.logit_step = step;
    }

    /// The weights in use.
    pub const fn version(&self) -> PolicyVersion {
        self.version
    }

    /// Bytes of kept prompts.
    pub const fn cache_bytes(&self) -> usize {
        self.cache_bytes
    }

    /// Takes other weights; nothing computed with the old ones is used again.
    pub(crate) fn replace(&mut self, params: Vec<f32>, version: PolicyVersion) {
        self.params = params;
        self.version = version;
        self.cache.clear();
        self.cache_bytes = 0;
    }

    /// Decides for each input, in order.
    pub fn decide(&mut self, inputs: &[&PolicyInput]) -> Vec<dart_core::Result<Decision>> {
        let prompts = match self.prompts(inputs) {
            Ok(prompts) => prompts,
            Err(error) => {
                let text = error.to_string();
                let each = |_| Err(PolicyError::Mismatch(text.clone()).into());
                return inputs.iter().map(each).collect();
            }
        };
        let mut running: Vec<Running> = inputs
            .iter()
            .enumerate()
            .map(|(index, input)| {
                Running::new(index, input.sampling, &self.grammar, self.net.config.layers)
            })
            .collect();
        let mut faults: Vec<Option<PolicyError>> = inputs.iter().map(|_| None).collect();
        loop {
            for request in &mut running {
                request.take_forced(&self.grammar);
            }
            let mut open: Vec<&mut Running> = running
                .iter_mut()
                .filter(|r| !self.grammar.is_complete(r.state) && faults[r.prompt].is_none())
                .collect();
            if open.is_empty() {
                break;
            }
            self.next_tokens(&prompts, &mut open, &mut faults);
        }
        running
            .into_iter()
            .zip(inputs.iter().zip(faults))
            .map(|(request, (input, fault))| match fault {
                Some(fault) => Err(fault.into()),
                None => Ok(self.decision(&request, input, &prompts)),
            })
            .collect()
    }

    /// One more token for each open request.
    fn next_tokens(
        &self,
        prompts: &[Arc<KeptPrompt>],
        open: &mut [&mut Running],
        faults: &mut [Option<PolicyError>],
    ) {
        let mut input = ResponseInput::default();
        let mut decoded = Vec::with_capacity(open.len());
        for request in open.iter_mut() {
            let start = input.parts.len();
            for token in std::mem::take(&mut request.pending) {
                let at = (request.position, token);
                let tokenizer = self.grammar.tokenizer();
                let parts = response_parts(&self.net, tokenizer, at, &mut request.place);
                input.parts.push(parts);
                request.position += 1;
            }
            input.responses.push(ResponseRows {
                prompt: request.prompt,
                start,
                len: input.parts.len() - start,
            });
            decoded.push(std::mem::take(&mut request.decoded));
        }
        let kept = Kept {
            net: &self.net,
            prompts,
        };
        let response = self
            .net
            .response_forward(&self.params, &input, &kept, Some(&mut decoded));
        let vocabulary = self.net.vocabulary;
        for ((request, rows), decoded) in open.iter_mut().zip(&input.responses).zip(decoded) {
            request.decoded = decoded;
            let last = rows.start + rows.len - 1;
            let logits = &response.logits[last * vocabulary..(last + 1) * vocabulary];
            if let Err(fault) = request.draw(logits, &self.grammar, self.logit_step) {
                faults[request.prompt] = Some(fault);
            }
        }
    }

    fn decision(
        &self,
        request: &Running,
        input: &PolicyInput,
        prompts: &[Arc<KeptPrompt>],
    ) -> Decision {
        let tokens: Vec<u32> = request.draws.iter().map(|draw| draw.token).collect();
        let screen = input.observation.frame.size();
        let viewport = Viewport::new(screen, self.net.config.image());
        let (action, text) = self.grammar.decode(&tokens, viewport);
        Decision {
            action,
            text,
            prompt: prompts[request.prompt].prompt.clone(),
            token_ids: tokens.into(),
            rollout_log_probs: request.draws.iter().map(|draw| draw.log_prob).collect(),
            entropies: Some(request.draws.iter().map(|draw| draw.entropy).collect()),
            log_prob_kind: LogProbKind::AfterTemperature,
            temperature: request.sampling.temperature.max(0.0),
            version: self.version,
            truncated: false,
        }
    }

    /// The prompt of each input, computed where it is not kept.
    fn prompts(&mut self, inputs: &[&PolicyInput]) -> Result<Vec<Arc<KeptPrompt>>> {
        let mut found: Vec<Option<Arc<KeptPrompt>>> = Vec::with_capacity(inputs.len());
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut places = Vec::with_capacity(inputs.len());
        for input in inputs {
            let new = Wanted::new(&self.builder, input)?;
            let kept = self.cache.iter().find(|kept| new.is(kept)).cloned();
            let place = if kept.is_some() {
                None
            } else if let Some(same) = wanted.iter().position(|other| new.same(other)) {
                Some(same)
            } else {
                wanted.push(new);
                Some(wanted.len() - 1)
            };
            found.push(kept);
            places.push(place);
        }
        let mut computed = Vec::with_capacity(wanted.len());
        let mut wanted = wanted.into_iter().peekable();
        while wanted.peek().is_some() {
            let chunk: Vec<Wanted> = wanted.by_ref().take(CHUNK).collect();
            computed.extend(self.compute(chunk)?);
        }
        for prompt in &computed {
            self.keep(Arc::clone(prompt));
        }
        Ok(found
            .into_iter()
            .zip(places)
            .filter_map(|(kept, place)| kept.or_else(|| place.map(|i| Arc::clone(&computed[i]))))
            .collect())
    }

    fn compute(&self, chunk: Vec<Wanted>) -> Result<Vec<Arc<KeptPrompt>>> {
        let mut assembler = Assembler::new(&self.net, self.grammar.tokenizer(), false);
        for wanted in &chunk {
            let spans = &wanted.prompt.images;
            let seen: Vec<Seen> = wanted
                .frames
                .iter()
                .map(|frame| Seen::new(&self.net, frame, None))
                .collect();
            let find = |image: u32| {
                let place = spans.iter().position(|span| span.image == image)?;
                seen.get(place)
            };
            assembler.prompt(&wanted.prompt.token_ids, spans, find)?;
        }
        let input = assembler.finish();
        let prefix = self.net.prefix_forward(&self.params, &input);
        let chunk = chunk.into_iter().enumerate();
        Ok(chunk
            .map(|(index, wanted)| {
                let sequence = input.sequences[index];
                let layers = self.layers(&prefix, sequence);
                let numbers = self.net.config.cells() * self.net.config.pointer_width;
                let keys = &prefix.keys[index * numbers..(index + 1) * numbers];
                Arc::new(KeptPrompt {
                    hash: wanted.hash,
                    prompt: wanted.prompt,
                    frames: wanted.frames,
                    tokens: sequence.len,
                    layers,
                    pointer_keys: keys.to_vec(),
                })
            })
            .collect())
    }

    fn layers(&self, prefix: &Prefix, sequence: crate::nn::attention::Sequence) -> Vec<Vec<f32>> {
        let width = self.net.config.width;
        (0..self.net.config.layers)
            .map(|layer| {
                let rows = prefix.key_values(layer, sequence, width);
                let mut kept = Vec::with_capacity(rows.len * 2 * width);
                for row in 0..rows.len {
                    let at = row * rows.stride + rows.key;
                    kept.extend_from_slice(&rows.data[at..at + 2 * width]);
                }
                kept
            })
            .collect()
    }

    fn keep(&mut self, prompt: Arc<KeptPrompt>) {
        self.cache_bytes += prompt.bytes();
        self.cache.push_back(prompt);
        while self.cache_bytes > self.max_cache_bytes {
            match self.cache.pop_front() {
                Some(oldest) => self.cache_bytes -= oldest.bytes(),
                None => break,
            }
        }
    }
}

/// A prompt that is asked for.
struct Wanted {
    hash: u64,
    prompt: Prompt,
    frames: Vec<Frame>,
}

impl Wanted {
    fn new(builder: &PromptBuilder, input: &PolicyInput) -> Result<Self> {
        let prompt = builder.build(input);
        let frames: Vec<Frame> = prompt
            .images
            .iter()
            .map(|span| frame_of(input, span.image).cloned())
            .collect::<Option<_>>()
            .ok_or_else(|| PolicyError::Mismatch("a span names no step".to_owned()))?;
        let mut bytes: Vec<u8> = Vec::with_capacity(prompt.token_ids.len() * 4);
        bytes.extend(prompt.token_ids.iter().flat_map(|t| t.to_le_bytes()));
        for frame in &frames {
            bytes.extend(hash(frame.rgb()).to_le_bytes());
        }
        Ok(Self {
            hash: hash(&bytes),
            prompt,
            frames,
        })
    }

    /// The same content; the numbers of the steps do not matter.
    fn equals(&self, hash: u64, prompt: &Prompt, frames: &[Frame]) -> bool {
        self.hash == hash && self.prompt == *prompt && self.frames == frames
    }

    fn is(&self, kept: &KeptPrompt) -> bool {
        self.equals(kept.hash, &kept.prompt, &kept.frames)
    }

    fn same(&self, other: &Self) -> bool {
        self.equals(other.hash, &other.prompt, &other.frames)
    }
}

/// Prompts out of the cache.
struct Kept<'a> {
    net: &'a Net,
    prompts: &'a [Arc<KeptPrompt>],
}

impl Prompts for Kept<'_> {
    fn key_values(&self, layer: usize, prompt: usize) -> KeyValues<'_> {
        let kept = &self.prompts[prompt];
        let width = self.net.config.width;
        KeyValues {
            data: &kept.layers[layer],
            stride: 2 * width,
            key: 0,
            value: width,
            len: kept.tokens,
        }
    }

    fn pointer_keys(&self, prompt: usize) -> &[f32] {
        &self.prompts[prompt].pointer_keys
    }
}

/// One request on its way.
struct Running {
    prompt: usize,
    sampling: Sampling,
    random: ChaCha8Rng,
    state: State,
    /// Tokens whose keys and values are still missing.
    pending: Vec<u32>,
    position: usize,
    place: usize,
    decoded: Decoded,
    draws: Vec<Draw>,
}

impl Running {
    fn new(prompt: usize, sampling: Sampling, grammar: &ActionGrammar, layers: usize) -> Self {
        Self {
            prompt,
            sampling,
            random: ChaCha8Rng::seed_from_u64(sampling.seed),
            state: grammar.start(),
            pending: vec![BEGIN],
            position: 0,
            place: 0,
            decoded: Decoded::new(layers),
            draws: Vec::new(),
        }
    }

    fn push(&mut self, draw: Draw, grammar: &ActionGrammar) {
        // A token that the grammar allows always leads on.
        if let Some(state) = grammar.advance(self.state, draw.token) {
            self.state = state;
            self.pending.push(draw.token);
            self.draws.push(draw);
        }
    }

    fn take_forced(&mut self, grammar: &ActionGrammar) {
        while let Some(token) = grammar.forced(self.state) {
            self.push(sampler::forced(token), grammar);
        }
    }

    fn draw(&mut self, logits: &[f32], grammar: &ActionGrammar, logit_step: f32) -> Result<()> {
        let allowed = grammar.allowed(self.state);
        let rule = Rule {
            temperature: self.sampling.temperature,
            logit_step,
        };
        let draw = sampler::draw(logits, allowed, rule, &mut self.random)?;
        self.push(draw, grammar);
        Ok(())
    }
}
