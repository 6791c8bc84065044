//! [`VlmModel`]: parameters and network together; trainable, copyable, saved as safetensors.
//!
//! Parameters are candle variables; the network itself runs on their numbers, forward and backward
//! (`network_pass`), so no gradient depends on a tensor library's graph. `candle-nn`, whose fused
//! layers cut gradients silently, is not even a dependency, so there is nothing to ban.

use std::sync::Arc;

use candle_core::{Device, Tensor, Var};
use dart_core::{Batch, PolicyVersion, WeightsHandle, WeightsSource};

pub use crate::network_pass::{MASKED, Tape};
use crate::{
    config::ModelConfig,
    error::{PolicyError, Result},
    grammar::ActionGrammar,
    nn::Net,
    packer::pack,
    tokenizer::Tokenizer,
    trainable::{Forward, Parameters, TrainableModel, Upstream},
    weights_file,
};

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
        let config = weights_file::config(bytes)?;
        config.validate()?;
        let grammar = ActionGrammar::new(&config);
        let net = Net::new(&config, grammar.tokenizer());
        let values = weights_file::values(&net, bytes)?;
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
        let config = weights_file::config(bytes)?;
        if config != self.net.config {
            return Err(PolicyError::Weights(
                "they are of another model shape".into(),
            ));
        }
        weights_file::values(&self.net, bytes)
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
        Ok(weights_file::write(&self.net, &self.flat()?)?)
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
}

impl TrainableModel for VlmModel {
    type Tape = Tape;

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn weights_metadata(&self) -> dart_core::Result<Option<(String, String)>> {
        Ok(Some(weights_file::metadata(&self.net)?))
    }

    fn forward(
        &self,
        batch: &Batch,
        samples: &[usize],
        reading: bool,
    ) -> dart_core::Result<Forward<Tape>> {
        let pass = pack(self, batch, samples, reading)?;
        let shape = (pass.tokens(), self.net.vocabulary);
        let (logits, reading_loss, tape) = pass.run(self.flat()?);
        let logits = Tensor::from_vec(logits, shape, &self.device).map_err(PolicyError::from)?;
        Ok(Forward {
            logits,
            reading_loss,
            tape,
        })
    }

    fn backward(&self, tape: Tape, by: Upstream<'_>) -> dart_core::Result<Vec<Option<Tensor>>> {
        if by.logits.elem_count() != tape.logits() {
            let shape = by.logits.dims();
            let message = format!("a gradient of shape {shape:?} for other logits");
            return Err(PolicyError::Mismatch(message).into());
        }
        let run = || -> Result<Vec<Option<Tensor>>> {
            let by_logits: Vec<f32> = by.logits.flatten_all()?.to_vec1()?;
            let flat = tape.gradient(&by_logits, by.reading);
            let entries = self.net.layout.entries.iter().map(|entry| {
                let data = entry.span.of(&flat).to_vec();
                let shape = entry.shape.as_slice();
                Ok(Some(Tensor::from_vec(data, shape, &self.device)?))
            });
            entries.collect()
        };
        Ok(run()?)
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
