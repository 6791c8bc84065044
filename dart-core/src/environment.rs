//! [`Environment`]: an episodic interface to something with a screen.
//!
//! GUI tasks are judged once, at the end, also after truncation; so scoring is a call of its own
//! and a step carries no reward.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Action, ActionSet, Observation, Result, Reward, Size, StopReason, Task};

/// What an environment is and can do. Stable over its life.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvSpec {
    /// Name for logs, such as `sim-desktop` or `vnc 127.0.0.1:5901`.
    pub name: String,
    /// Size of every frame of an episode, unless the device is resized or rotated.
    pub screen: Size,
    /// The actions it takes.
    pub actions: ActionSet,
    /// Whether the same task and seed give the same first frame, bit for bit.
    pub deterministic: bool,
}

/// The start of an episode.
#[derive(Clone, Debug)]
pub struct Reset {
    /// The first observation.
    pub observation: Observation,
    /// What the agent is to do, in words.
    pub instruction: Arc<str>,
}

/// Where an episode stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepStatus {
    /// It goes on.
    Running,
    /// The task or the agent ended it.
    Terminated,
    /// A limit cut it; [`StopReason::is_truncation`] holds.
    Truncated(StopReason),
}

/// What a step led to.
#[derive(Clone, Debug)]
pub struct StepOutcome {
    /// The screen after the action.
    pub observation: Observation,
    /// Whether the episode goes on.
    pub status: StepStatus,
}

/// An episodic interface: reset, step until the end, score.
///
/// What a new backend usually implements is [`Device`](crate::Device);
/// [`DeviceEnvironment`](crate::DeviceEnvironment) makes it an environment.
///
/// # Contract
///
/// Each number is the name of a conformance check in `dart-testkit`.
///
/// 1. `spec` is the same before, during and after episodes.
/// 2. `reset` gives a frame of the declared size and a non-empty instruction.
/// 3. `reset` may be called at any time: in the middle of an episode, after its end, after an error.
/// 4. `step` before `reset` is [`Misuse`](crate::ErrorKind::Misuse).
/// 5. Every declared action is accepted.
/// 6. An undeclared action is [`Unsupported`](crate::ErrorKind::Unsupported), and the episode goes on.
/// 7. An action with a fault ([`Action::fault`]) is [`InvalidAction`](crate::ErrorKind::InvalidAction),
///    and the episode goes on.
/// 8. An action that has a visible effect changes the next frame.
/// 9. `step` after the end is [`Misuse`](crate::ErrorKind::Misuse).
/// 10. An episode is truncated at the task's horizon, with [`StopReason::StepLimit`].
/// 11. [`Action::Done`] and [`Action::Fail`] terminate the episode.
/// 12. `score` may be called once the episode has ended, by the task or by a limit, and any number
///     of times; before that it judges the present state.
/// 13. A solved task scores 1, an untouched one less.
/// 14. A stalled peer is [`Timeout`](crate::ErrorKind::Timeout) within the implementation's deadline.
/// 15. A cut connection is retryable ([`Disconnected`](crate::ErrorKind::Disconnected)).
/// 16. After a dropped future the environment is usable or says so
///     ([`Cancelled`](crate::ErrorKind::Cancelled)) until the next `reset`, which makes it usable.
/// 17. `close` may be called twice; every other call after it is [`Misuse`](crate::ErrorKind::Misuse).
/// 18. If declared deterministic, the same task and seed give the same first frame.
#[async_trait]
pub trait Environment: Send {
    /// What this environment is.
    fn spec(&self) -> &EnvSpec;

    /// Begins an episode of `task`; `seed` fixes its random parameters and layout.
    async fn reset(&mut self, task: &Task, seed: u64) -> Result<Reset>;

    /// Performs one action. Never retried by the implementation: a double click is not idempotent.
    async fn step(&mut self, action: &Action) -> Result<StepOutcome>;

    /// Judges the episode.
    async fn score(&mut self) -> Result<Reward>;

    /// Releases everything. Idempotent.
    async fn close(&mut self) -> Result<()>;
}

/// An environment whose tasks have a scripted expert.
///
/// # Contract
///
/// 1. The expert's actions, taken one after another, solve every task of the training split.
/// 2. Asking does not change the state.
#[async_trait]
pub trait Demonstrate: Environment {
    /// What the expert would do now, or `None` if it has no idea.
    async fn expert_action(&mut self) -> Result<Option<Action>>;
}

/// Makes environments. The pool that owns a factory owns their life cycles.
#[async_trait]
pub trait EnvironmentFactory: Send + Sync {
    /// Makes one, ready for `reset`. Cancel safe: whatever was started dies with the future.
    async fn create(&self) -> Result<Box<dyn Environment>>;

    /// Makes one with a scripted expert.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend has no experts.
    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>>;
}
