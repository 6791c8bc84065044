//! [`VlmModel`]: parameters and network together; trainable, copyable, saved as safetensors.
//!
//! To candle the whole network is one custom operation on the flat array of all parameters: its
//! forward pass runs prompts and responses, its backward pass gives every gradient at once. Of
//! candle's own operations only concatenation, narrowing and reshaping are used, which are among
//! those whose gradients are right; `candle-nn`, whose fused layers cut gradients silently, is not
//! even a dependency, so there is nothing to ban.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Shape, Tensor, Var};
use dart_core::{Batch, Frame, ImageSpan, PolicyVersion, WeightsHandle, WeightsSource};
use safetensors::{SafeTensors, tensor::TensorView};

use crate::{
    assemble::{Assembler, Seen, push_response},
    config::ModelConfig,
    error::{PolicyError, Result},
    grammar::ActionGrammar,
    images::hash,
    nn::{
        Net,
        prefix::{Prefix, PrefixInput},
        response::{Fresh, Response, ResponseInput},
    },
    tokenizer::Tokenizer,
    trainable::{Forward, Parameters, TrainableModel},
};

/// The logit of a token that the grammar forbids: its probability is exactly 0 in f32.
pub const MASKED: f32 = -1.0e9;

/// Key of the model's shape in the metadata of its weights.
const CONFIG_KEY: &str = "dart.model_config";

/// A vision-language policy network with its weights.
#[derive(Clone, Debug)]
pub struct VlmModel {
    pub(crate) net: Arc<Net>,
    pub(crate) grammar: Arc<ActionGrammar>,
    parameters: Parameters,
    device: Device,
}

impl VlmModel {
    /// A model with fresh weights; the same seed gives the same weights.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if a setting is out of bounds.
    pub fn new(config: &ModelConfig, seed: u64) -> dart_core::Result<Self> {
        config.validate()?;
        let grammar = ActionGrammar::new(config);
        let net = Net::new(config, grammar.tokenizer());
        let values = net.layout.initial(seed);
        Ok(Self::from_flat(Arc::new(net), Arc::new(grammar), &values)?)
    }

    fn from_flat(net: Arc<Net>, grammar: Arc<ActionGrammar>, values: &[f32]) -> Result<Self> {
        let mut parameters = Parameters::default();
        for entry in &net.layout.entries {
            let data = entry.span.of(values).to_vec();
            let tensor = Tensor::from_vec(data, entry.shape.as_slice(), &Device::Cpu)?;
            parameters.insert(entry.name.as_str(), Var::from_tensor(&tensor)?);
        }
        Ok(Self {
            net,
            grammar,
            parameters,
            device: Device::Cpu,
        })
    }

    /// The model that [`Self::to_bytes`] wrote, shape included.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) if the bytes are no weights of ours, a tensor
    /// is missing or superfluous, has another shape, or holds a number that is not finite.
    pub fn from_weights(bytes: &[u8]) -> dart_core::Result<Self> {
        let config = stored_config(bytes)?;
        config.validate()?;
        let grammar = ActionGrammar::new(&config);
        let net = Net::new(&config, grammar.tokenizer());
        let values = stored_values(&net, bytes)?;
        Ok(Self::from_flat(Arc::new(net), Arc::new(grammar), &values)?)
    }

    /// Replaces the weights in place by those of `bytes`, which must be of the same shape.
    ///
    /// # Errors
    /// As [`Self::from_weights`]; nothing has changed then.
    pub fn load_bytes(&self, bytes: &[u8]) -> dart_core::Result<()> {
        let values = self.checked_values(bytes)?;
        for entry in &self.net.layout.entries {
            let data = entry.span.of(&values).to_vec();
            let set = || -> Result<()> {
                let tensor = Tensor::from_vec(data, entry.shape.as_slice(), &Device::Cpu)?;
                if let Some(var) = self.parameters.get(&entry.name) {
                    var.set(&tensor)?;
                }
                Ok(())
            };
            set()?;
        }
        Ok(())
    }

    pub(crate) fn checked_values(&self, bytes: &[u8]) -> Result<Vec<f32>> {
        let config = stored_config(bytes)?;
        if config != self.net.config {
            return Err(PolicyError::Weights(
                "they are of another model shape".into(),
            ));
        }
        stored_values(&self.net, bytes)
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.net.config
    }

    /// What it can say.
    pub fn grammar(&self) -> &ActionGrammar {
        &self.grammar
    }

    /// Its tokens.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.grammar.tokenizer()
    }

    /// All parameters, one after another in the order of their names.
    pub(crate) fn flat(&self) -> Result<Vec<f32>> {
        let mut values = Vec::with_capacity(self.net.layout.total);
        for (_, var) in self.parameters.iter() {
            values.extend(var.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(values)
    }

    /// The weights and the model's shape as one safetensors file.
    ///
    /// # Errors
    /// [`Internal`](dart_core::ErrorKind::Internal) if the tensors cannot be read.
    pub fn to_bytes(&self) -> dart_core::Result<Vec<u8>> {
        Ok(self.serialize()?)
    }

    fn serialize(&self) -> Result<Vec<u8>> {
        let weights = |error: &dyn std::fmt::Display| PolicyError::Weights(error.to_string());
        let values = self.flat()?;
        let bytes: Vec<Vec<u8>> = self
            .net
            .layout
            .entries
            .iter()
            .map(|e| {
                e.span
                    .of(&values)
                    .iter()
                    .flat_map(|v| v.to_le_bytes())
                    .collect()
            })
            .collect();
        let mut views = Vec::with_capacity(bytes.len());
        for (entry, bytes) in self.net.layout.entries.iter().zip(&bytes) {
            let view = TensorView::new(safetensors::Dtype::F32, entry.shape.clone(), bytes)
                .map_err(|e| weights(&e))?;
            views.push((entry.name.as_str(), view));
        }
        let config = serde_json::to_string(&self.net.config).map_err(|e| weights(&e))?;
        let metadata = HashMap::from([(CONFIG_KEY.to_owned(), config)]);
        safetensors::serialize(views, Some(metadata)).map_err(|e| weights(&e))
    }

    /// The weights as version `version`, in memory.
    ///
    /// # Errors
    /// [`Internal`](dart_core::ErrorKind::Internal) if the tensors cannot be read.
    pub fn weights(&self, version: PolicyVersion) -> dart_core::Result<WeightsHandle> {
        let bytes = self.to_bytes()?;
        Ok(WeightsHandle {
            version,
            digest: blake3::hash(&bytes).to_hex().as_str().into(),
            source: WeightsSource::Memory(bytes.into()),
        })
    }

    fn pass(&self, batch: &Batch, samples: &[usize], reading: bool) -> Result<NetworkPass> {
        let mut packer = Packer::new(self, reading);
        for &index in samples {
            let sample = batch
                .samples
                .get(index)
                .ok_or_else(|| PolicyError::Mismatch(format!("the batch has no sample {index}")))?;
            packer.push(batch, sample)?;
        }
        Ok(packer.finish())
    }
}

impl TrainableModel for VlmModel {
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn weights_metadata(&self) -> dart_core::Result<Option<(String, String)>> {
        let config = serde_json::to_string(&self.net.config)
            .map_err(|error| PolicyError::Weights(error.to_string()))?;
        Ok(Some((CONFIG_KEY.to_owned(), config)))
    }

    fn forward(
        &self,
        batch: &Batch,
        samples: &[usize],
        reading: bool,
    ) -> dart_core::Result<Forward> {
        let pass = self.pass(batch, samples, reading)?;
        let (tokens, vocabulary) = (pass.targets.len(), self.net.vocabulary);
        let has_reading = pass.prefix_input.reading.is_some();
        let run = || -> candle_core::Result<Forward> {
            let flat: Vec<Tensor> = self
                .parameters
                .iter()
                .map(|(_, var)| var.flatten_all())
                .collect::<candle_core::Result<_>>()?;
            let out = Tensor::cat(&flat, 0)?.apply_op1(pass)?;
            let logits = out.narrow(0, 0, tokens * vocabulary)?;
            let reading_loss = if has_reading {
                Some(out.narrow(0, tokens * vocabulary, 1)?.reshape(())?)
            } else {
                None
            };
            Ok(Forward {
                logits: logits.reshape((tokens, vocabulary))?,
                reading_loss,
            })
        };
        Ok(run().map_err(PolicyError::from)?)
    }

    fn deep_copy(&self) -> dart_core::Result<Self> {
        let values = self.flat()?;
        Ok(Self::from_flat(
            Arc::clone(&self.net),
            Arc::clone(&self.grammar),
            &values,
        )?)
    }
}

fn stored_config(bytes: &[u8]) -> Result<ModelConfig> {
    let fault = |error: &dyn std::fmt::Display| PolicyError::Weights(error.to_string());
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| fault(&e))?;
    let config = metadata
        .metadata()
        .as_ref()
        .and_then(|map| map.get(CONFIG_KEY))
        .ok_or_else(|| fault(&"they do not say the model's shape"))?;
    serde_json::from_str(config).map_err(|e| fault(&e))
}

fn stored_values(net: &Net, bytes: &[u8]) -> Result<Vec<f32>> {
    let fault = |text: String| PolicyError::Weights(text);
    let tensors = SafeTensors::deserialize(bytes).map_err(|e| fault(e.to_string()))?;
    if tensors.len() != net.layout.entries.len() {
        return Err(fault(format!("{} tensors", tensors.len())));
    }
    let mut values = vec![0.0; net.layout.total];
    for entry in &net.layout.entries {
        let name = &entry.name;
        let tensor = tensors.tensor(name).map_err(|e| fault(e.to_string()))?;
        if tensor.dtype() != safetensors::Dtype::F32 || tensor.shape() != entry.shape {
            return Err(fault(format!("{name} has another type or shape")));
        }
        let numbers = tensor.data().chunks_exact(4);
        for (value, number) in entry.span.of_mut(&mut values).iter_mut().zip(numbers) {
            let mut word = [0; 4];
            word.copy_from_slice(number);
            *value = f32::from_le_bytes(word);
        }
        if entry.span.of(&values).iter().any(|v| !v.is_finite()) {
            return Err(fault(format!("{name} is not finite")));
        }
    }
    Ok(values)
}

/// What the network is to score at one response token.
#[derive(Clone, Debug)]
enum Target {
    /// The grammar allows only this token.
    Forced(u32),
    /// Response row `row`, under the allowed tokens of a grammar state.
    Row(usize, crate::grammar::State),
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

    fn push(&mut self, batch: &Batch, sample: &dart_core::Sample) -> Result<()> {
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
    fn prompt(&mut self, batch: &Batch, prompt: &dart_core::Prompt) -> Result<usize> {
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
        NetworkPass {
            net: Arc::clone(&self.model.net),
            grammar: Arc::clone(&self.model.grammar),
            prefix_input: self.assembler.finish(),
            response_input: self.responses,
            targets: self.targets,
            saved: Mutex::new(None),
        }
    }
}

/// The network as one operation: flat parameters to `[tokens · vocabulary + 1]`, the last number
/// being the reading loss.
struct NetworkPass {
    net: Arc<Net>,
    grammar: Arc<ActionGrammar>,
    prefix_input: PrefixInput,
    response_input: ResponseInput,
    targets: Vec<Target>,
    saved: Mutex<Option<(Prefix, Response)>>,
}

impl NetworkPass {
    fn run(&self, params: &[f32]) -> Vec<f32> {
        let prefix = self.net.prefix_forward(params, &self.prefix_input);
        let fresh = Fresh {
            net: &self.net,
            input: &self.prefix_input,
            prefix: &prefix,
        };
        let response = self
            .net
            .response_forward(params, &self.response_input, &fresh, None);
        let vocabulary = self.net.vocabulary;
        let mut out = vec![MASKED; self.targets.len() * vocabulary + 1];
        for (target, row) in self.targets.iter().zip(out.chunks_exact_mut(vocabulary)) {
            match target {
                Target::Forced(token) => row[*token as usize] = 0.0,
                Target::Row(index, state) => {
                    let logits = &response.logits[index * vocabulary..(index + 1) * vocabulary];
                    for &token in self.grammar.allowed(*state) {
                        row[token as usize] = logits[token as usize];
                    }
                }
            }
        }
        let last = out.len() - 1;
        out[last] = prefix.reading.as_ref().map_or(0.0, |reading| reading.loss);
        *self.saved.lock().unwrap_or_else(PoisonError::into_inner) = Some((prefix, response));
        out
    }

    fn gradient(&self, params: &[f32], dout: &[f32]) -> Option<Vec<f32>> {
        let saved = self
            .saved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let (prefix, response) = saved?;
        let vocabulary = self.net.vocabulary;
        let mut dlogits = vec![0.0; response.logits.len()];
        for (target, row) in self.targets.iter().zip(dout.chunks_exact(vocabulary)) {
            if let Target::Row(index, state) = target {
                let into = &mut dlogits[index * vocabulary..(index + 1) * vocabulary];
                for &token in self.grammar.allowed(*state) {
                    into[token as usize] += row[token as usize];
                }
            }
        }
        let mut grads = vec![0.0; params.len()];
        let mut back = self.net.prefix_gradient(&self.prefix_input, &prefix);
        let fresh = Fresh {
            net: &self.net,
            input: &self.prefix_input,
            prefix: &prefix,
        };
        let kept = (&self.response_input, fresh, &response);
        self.net
            .response_backward(params, kept, &dlogits, (&mut back, &mut grads));
        let reading_weight = dout.last().copied().unwrap_or_default();
        let kept = (&self.prefix_input, &prefix);
        self.net
            .prefix_backward(params, kept, (back, reading_weight), &mut grads);
        Some(grads)
    }
}

impl CustomOp1 for NetworkPass {
    fn name(&self) -> &'static str {
        "vision-language-policy"
    }

    fn cpu_fwd(
        &self,
        storage: &CpuStorage,
        layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let all = storage.as_slice::<f32>()?;
        let params = match layout.contiguous_offsets() {
            Some((start, end)) => &all[start..end],
            None => candle_core::bail!("parameters are not contiguous"),
        };
        let out = self.run(params);
        let shape = Shape::from(out.len());
        Ok((CpuStorage::F32(out), shape))
    }

    fn bwd(
        &self,
        arg: &Tensor,
        _res: &Tensor,
        grad_res: &Tensor,
    ) -> candle_core::Result<Option<Tensor>> {
        let params = arg.to_dtype(DType::F32)?.to_vec1::<f32>()?;
        let dout = grad_res.to_vec1::<f32>()?;
        let Some(grads) = self.gradient(&params, &dout) else {
            candle_core::bail!("the backward pass of one forward pass runs once");
        };
        let length = grads.len();
        Ok(Some(Tensor::from_vec(grads, length, arg.device())?))
    }
}
