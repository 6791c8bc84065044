//! [`TaskDriver`]: sets tasks up on a device and judges them. Pixels give no reward.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Action, Device, Result, Reward, StopReason, Task};

/// How an episode ended, for the judge.
#[derive(Clone, Debug, Default)]
pub struct EpisodeEnd {
    /// The last action, if there was one. On an infeasible task only [`Action::Fail`] is right.
    pub last_action: Option<Action>,
    /// The last [`Action::Answer`], if any.
    pub answer: Option<String>,
    /// Why the episode ended; `None` while it is running.
    pub stop: Option<StopReason>,
}

/// Sets tasks up on a device of type `D` and judges them.
///
/// # Contract
///
/// 1. `set_up` leaves the device in the initial state of the task instance (task, seed), whatever
///    was on it before, and returns the instruction.
/// 2. `ended` tells whether the task has ended by itself and changes nothing.
/// 3. `score` judges what is on the device now and changes nothing that a second `score` would see.
/// 4. `tear_down` may be called at any time and twice.
#[async_trait]
pub trait TaskDriver<D: Device + ?Sized>: Send {
    /// Prepares the task instance; returns the instruction.
    async fn set_up(&mut self, device: &mut D, task: &Task, seed: u64) -> Result<Arc<str>>;

    /// Whether the task has ended by itself (a page that accepts one answer). Asked after each step.
    async fn ended(&mut self, device: &mut D) -> Result<bool>;

    /// Judges the episode.
    async fn score(&mut self, device: &mut D, end: &EpisodeEnd) -> Result<Reward>;

    /// Cleans up what `set_up` made.
    async fn tear_down(&mut self, device: &mut D) -> Result<()>;
}

/// A task driver that knows how its tasks are solved.
#[async_trait]
pub trait Demonstrator<D: Device + ?Sized>: TaskDriver<D> {
    /// What an expert would do now, or `None` if it has no idea. Changes nothing.
    async fn expert_action(&mut self, device: &mut D) -> Result<Option<Action>>;
}
