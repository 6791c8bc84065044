//! [`SimDriver`]: sets tasks up on a [`SimDevice`], judges them, and knows how to solve them.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{Action, Demonstrator, EpisodeEnd, Result, Reward, Split, Task, TaskDriver};

use crate::{
    config::SimConfig,
    device::SimDevice,
    error::SimError,
    families::{self, Scene},
    goal::Goal,
    ui::Ui,
};

/// Sets tasks up, judges them on the state of the widgets, and demonstrates them.
///
/// A task of family `f` and a seed fix words, target and layout. Splits differ in what they
/// draw: training shows training words and random letters on training layouts,
/// [`Split::Layouts`] training words on layouts kept for evaluation, and [`Split::Words`]
/// held-out words on those.
#[derive(Clone, Debug)]
pub struct SimDriver {
    config: SimConfig,
    goal: Option<Goal>,
}

impl SimDriver {
    /// A driver for devices made from `config`.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if a value of `config` is out of range.
    pub fn new(config: SimConfig) -> Result<Self> {
        config.validate()?;
        Ok(Self { config, goal: None })
    }

    fn scene(&self, family: &str, split: Split, seed: u64) -> Result<Scene, SimError> {
        families::find(family, self.config.device)?.scene(&self.config, split, seed)
    }

    fn goal(&self) -> Result<&Goal, SimError> {
        self.goal.as_ref().ok_or(SimError::NoTask)
    }
}

#[async_trait]
impl TaskDriver<SimDevice> for SimDriver {
    async fn set_up(&mut self, device: &mut SimDevice, task: &Task, seed: u64) -> Result<Arc<str>> {
        let scene = self.scene(&task.family, task.split, seed)?;
        device.load(scene.ui)?;
        self.goal = Some(scene.goal);
        Ok(scene.instruction.into())
    }

    async fn ended(&mut self, device: &mut SimDevice) -> Result<bool> {
        Ok(Goal::ended(device.ui()?))
    }

    async fn score(&mut self, device: &mut SimDevice, _end: &EpisodeEnd) -> Result<Reward> {
        // Every task is feasible, so how the episode ended does not matter, only what was done.
        Ok(Reward::from(self.goal()?.met(device.ui()?)))
    }

    async fn tear_down(&mut self, device: &mut SimDevice) -> Result<()> {
        self.goal = None;
        match device.ui() {
            Ok(ui) => Ok(device.load(Ui::new(ui.size, ui.touch))?),
            // A closed device has nothing left to clean up.
            Err(_) => Ok(()),
        }
    }
}

#[async_trait]
impl Demonstrator<SimDevice> for SimDriver {
    async fn expert_action(&mut self, device: &mut SimDevice) -> Result<Option<Action>> {
        let action = self.goal()?.next(device.ui()?);
        Ok(action.map(|action| device.enlarge(action)))
    }
}
