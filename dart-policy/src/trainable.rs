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
#[derive(Debug)]
pub struct Forward<T> {
    /// Logits at every response token of the chosen samples, one after another: `[tokens, vocab]`,
    /// contiguous, in storage of their own. Tokens that the action grammar forbids at their place
    /// hold a large finite negative number. Temperature is not applied. No graph hangs on them: a
    /// loss may overwrite them by its gradient.
    pub logits: Tensor,
    /// Mean loss of the auxiliary reading task, if it was asked for and the images have labels.
    pub reading_loss: Option<f64>,
    /// What the backward pass needs. It may be dropped.
    pub tape: T,
}

/// How a loss depends on what a forward pass gave.
#[derive(Debug)]
pub struct Upstream<'a> {
    /// Derivative with respect to the logits, of their shape.
    pub logits: &'a Tensor,
    /// Derivative with respect to the reading loss.
    pub reading: f64,
}

/// A model that a learner can train. Calls may run on several threads at once.
///
/// The learner drives the backward pass itself, so that gradients of logits, which may be
/// gigabytes, never pass through a library's automatic differentiation.
pub trait TrainableModel: Send + Sync + 'static {
    /// What a forward pass keeps for its backward pass.
    type Tape: Send + 'static;

    /// The trainable tensors. Every one of them gets a gradient from [`Self::backward`].
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
    fn forward(
        &self,
        batch: &Batch,
        samples: &[usize],
        reading: bool,
    ) -> Result<Forward<Self::Tape>>;

    /// The gradient of each parameter, in the order of their names, of a loss that depends on the
    /// forward pass as `by` says. `None` where the loss does not depend on it. Parameters are those
    /// of the forward pass, even if they have changed since.
    ///
    /// # Errors
    /// [`Internal`](dart_core::ErrorKind::Internal) if `by` does not fit the forward pass.
    fn backward(&self, tape: Self::Tape, by: Upstream<'_>) -> Result<Vec<Option<Tensor>>>;

    /// An independent copy with the same values (a frozen reference, for example).
    fn deep_copy(&self) -> Result<Self>
    where
        Self: Sized;
}
