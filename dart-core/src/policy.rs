//! [`Policy`]: decides what to do next.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Action, Decision, Frame, Observation, PolicyVersion, Result, Sampling, WeightsHandle};

/// One earlier step of the episode, as the policy needs it.
#[derive(Clone, Debug)]
pub struct PastStep {
    /// What it saw.
    pub frame: Frame,
    /// What it produced, token for token.
    pub response: Arc<[u32]>,
}

/// Everything that a policy may base a decision on.
#[derive(Clone, Debug)]
pub struct PolicyInput {
    /// What is to be done.
    pub instruction: Arc<str>,
    /// All earlier steps, oldest first. The policy decides how many it uses. The index of a past
    /// step is its [`ImageSpan::image`](crate::ImageSpan::image); the current observation has
    /// index `history.len()`.
    pub history: Vec<PastStep>,
    /// What is on the screen now.
    pub observation: Observation,
    /// How to draw.
    pub sampling: Sampling,
}

/// Decides what to do next. One policy serves many episodes at once.
///
/// # Contract
///
/// Each number is the name of a conformance check in `dart-testkit`.
///
/// 1. Every decision passes [`Decision::validate`].
/// 2. A decision carries the version of the weights that produced all of its tokens.
/// 3. At temperature 0 the same input gives the same tokens.
/// 4. With the same input, seed and weights the same tokens are drawn.
/// 5. Calls run concurrently, and each gets its own answer.
/// 6. `load` makes `version` the handle's version; later decisions carry it, and nothing cached
///    from older weights is used for them.
/// 7. A `load` of broken weights fails and leaves the old ones serving.
/// 8. Dropping an `act` future does not disturb other calls.
#[async_trait]
pub trait Policy: Send + Sync {
    /// Decides. Cancel safe.
    async fn act(&self, input: PolicyInput) -> Result<Decision>;

    /// The weights that serve now.
    fn version(&self) -> PolicyVersion;

    /// Replaces the weights. Calls in flight finish under the old ones or the new ones, never a mix.
    async fn load(&self, weights: &WeightsHandle) -> Result<()>;
}

/// Writes an expert's action the way the policy would have said it.
///
/// Demonstrations then have the same form as rollouts: the same prompt, the same tokens.
pub trait DemonstrationEncoder: Send + Sync {
    /// The decision that stands for `action`: log-probs are 0 (an expert has none), the version is
    /// 0 and the prompt is what the policy would have been shown.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the policy's grammar cannot say the action.
    fn encode(&self, input: &PolicyInput, action: &Action) -> Result<Decision>;
}
