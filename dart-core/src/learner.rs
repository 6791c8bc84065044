//! [`Learner`]: turns batches into new weights.

use std::{collections::BTreeMap, path::Path};

use crate::{Batch, PolicyVersion, Result, WeightsHandle};

/// What one learner step did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnerReport {
    /// Version after the step.
    pub version: PolicyVersion,
    /// Whether the weights were left as they were, because the gradient was not finite or no
    /// sample carried a gradient.
    pub skipped: bool,
    /// Named numbers: loss, gradient norm, clip fractions, KL, entropy, …
    pub metrics: BTreeMap<&'static str, f64>,
}

/// Turns batches into new weights. Synchronous: it computes on a thread of its own.
///
/// # Contract
///
/// Each number is the name of a conformance check in `dart-testkit`.
///
/// 1. `step` raises `version` by one, skipped steps included.
/// 2. A batch in which every advantage is 0 (and no KL term) leaves the weights as they were,
///    and the step counts as skipped.
/// 3. Imitation of one sample, repeated, raises its likelihood.
/// 4. A positive advantage raises the likelihood of a response, a negative one lowers it.
/// 5. The split into micro-batches does not change the result beyond rounding.
/// 6. A sample whose log-probs do not match its response is [`Protocol`](crate::ErrorKind::Protocol);
///    the weights stay as they were.
/// 7. `save` then `restore` gives the same weights, version and following steps, bit for bit (CPU).
/// 8. `export` gives the version and weights of now, and the same digest until the next step.
pub trait Learner: Send {
    /// One optimizer step on `batch`.
    fn step(&mut self, batch: &Batch) -> Result<LearnerReport>;

    /// The version of the weights held now.
    fn version(&self) -> PolicyVersion;

    /// The weights held now, for the policies.
    fn export(&self) -> Result<WeightsHandle>;

    /// Writes everything that `restore` needs into the empty directory `dir`.
    fn save(&self, dir: &Path) -> Result<()>;

    /// Reads back what `save` wrote.
    fn restore(&mut self, dir: &Path) -> Result<()>;
}
