//! [`TrainableModel`]: what a learner needs of a model, and nothing more.

use std::collections::BTreeMap;

use candle_core::{Device, Tensor, Var};
use dart_core::{Batch, Result};

/// Named trainable tensors, sorted by name, so that everything that depends on their order
/// (gradient norms, optimizer state, sums) is the same in every run.
#[derive(Clone, Debug, Default)]
pub struct Parameters(BTreeMap<String, Var>);

impl Parameters {
    /// Adds one; replaces an older one of the same name.
    pub fn insert(&mut self, name: impl Into<String>, var: Var) {
        self.0.insert(name.into(), var);
    }

    /// One by name.
    pub fn get(&self, name: &str) -> Option<&Var> {
        self.0.get(name)
    }

    /// All, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.0.iter().map(|(name, var)| (name.as_str(), var))
    }

    /// How many tensors.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many numbers.
    pub fn count(&self) -> usize {
        self.0.values().map(|var| var.elem_count()).sum()
    }
}

/// What a forward pass for training gives.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Logits at every response token of the chosen samples, one after another: `[tokens, vocab]`,
    /// f32. Tokens that the action grammar forbids at their place hold a large finite negative
    /// number. Temperature is not applied.
    pub logits: Tensor,
    /// Mean loss of the auxiliary reading task, a scalar, if it was asked for and the images have labels.
    pub reading_loss: Option<Tensor>,
}

/// A model that a learner can train. Calls may run on several threads at once.
pub trait TrainableModel: Send + Sync + 'static {
    /// The trainable tensors. Every one of them gets a gradient from [`Self::forward`].
    fn parameters(&self) -> &Parameters;

    /// Where they live.
    fn device(&self) -> &Device;

    /// What the file of the weights says beside the tensors, as an entry of its safetensors header:
    /// the model's shape, for example. One entry at most, because several would have no fixed order.
    fn weights_metadata(&self) -> Result<Option<(String, String)>> {
        Ok(None)
    }

    /// Runs `batch.samples[i]` for each `i` of `samples`, in that order, under teacher forcing.
    ///
    /// # Errors
    /// [`Internal`](dart_core::ErrorKind::Internal) if images and prompt tokens do not belong
    /// together; [`Protocol`](dart_core::ErrorKind::Protocol) if a response cannot have been
    /// produced under the action grammar.
    fn forward(&self, batch: &Batch, samples: &[usize], reading: bool) -> Result<Forward>;

    /// An independent copy with the same values (a frozen reference, for example).
    fn deep_copy(&self) -> Result<Self>
    where
        Self: Sized;
}
