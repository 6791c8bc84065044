//! [`AndroidDriver`]: sets tasks up on an [`AdbDevice`] and judges them by the device's state.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use dart_core::{Action, Demonstrator, EpisodeEnd, Result, Reward, Task, TaskDriver};

use super::{
    checks, expert,
    format::{AndroidTask, Move},
    log_reward::{LogReward, LogRules, LogSum},
    snapshot::SnapshotHook,
    steps::{is_in_front, run, take},
    values::Values,
};
use crate::{device::AdbDevice, error::AdbError, quote};

/// Sets tasks up by their steps, judges them by their checks and demonstrates them by their moves. A
/// task travels in [`Task::params`], as [`AndroidTask::task`] puts it there.
///
/// The expert does its moves in order: a move counts as done when an action was taken after it was
/// asked for. After an action that it was not asked for it looks whether the task is solved by now,
/// taps a field anew before it types, and begins again from the home screen if what the next move is
/// about cannot be seen.
#[derive(Clone, Debug, Default)]
pub struct AndroidDriver {
    snapshot: Option<SnapshotHook>,
    present: Option<Present>,
}

/// An instance of a task.
#[derive(Clone, Debug)]
struct Present {
    task: AndroidTask,
    values: Values,
    rules: Option<LogRules>,
    began: Instant,
    /// The expert's moves that were done.
    moves: usize,
    /// How many will have been once the action that it was asked for is taken.
    asked: Option<usize>,
    /// Whether the last action was one that it was not asked for.
    strayed: bool,
}

impl AndroidDriver {
    /// A driver that restores the device's state before each episode.
    pub fn with_snapshot(hook: SnapshotHook) -> Self {
        Self {
            snapshot: Some(hook),
            present: None,
        }
    }

    fn present(&self) -> Result<&Present> {
        let message = "no task has been set up";
        let missing = || AdbError::Config(message.into()).at("score");
        self.present.as_ref().ok_or_else(missing)
    }
}

impl Present {
    fn new(task: &Task, seed: u64) -> Result<Self, AdbError> {
        let task = serde_json::from_value::<AndroidTask>(task.params.clone());
        let task = task.map_err(|error| AdbError::Config(error.to_string()))?;
        let compiled = task.reward.as_ref().map(LogReward::compile);
        Ok(Self {
            values: Values::draw(&task, seed)?,
            rules: compiled.transpose()?,
            began: Instant::now(),
            moves: 0,
            asked: None,
            strayed: false,
            task,
        })
    }

    /// Whether all that has to hold does.
    async fn solved(&self, device: &AdbDevice, end: &EpisodeEnd) -> Result<bool> {
        for check in &self.task.success {
            if !checks::holds(check, &self.values, device, end).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What the app has logged, if that counts.
    async fn logged(&self, device: &AdbDevice) -> Result<Option<(&LogRules, LogSum)>> {
        let Some(rules) = &self.rules else {
            return Ok(None);
        };
        let mut line = "logcat -d -v tag".to_owned();
        if !rules.tags().is_empty() {
            let tags: Vec<&str> = rules.tags().iter().map(String::as_str).collect();
            line = format!("{line} -s {}", quote::join(&tags));
        }
        let log = run(device.target(), &line).await?;
        Ok(Some((rules, rules.read(&log))))
    }

    /// What the expert does next, and how many of its moves will have been done then.
    async fn next_move(&self, device: &AdbDevice) -> Result<Option<(Action, usize)>> {
        let moves = &self.task.expert;
        if moves.is_empty() {
            return Ok(None);
        }
        let mut at = self.moves;
        if self.strayed {
            if self.solved(device, &EpisodeEnd::default()).await? {
                return Ok(Some((Action::Done, moves.len())));
            }
            // The keyboard may be somebody else's now.
            at -= usize::from(at > 0 && matches!(moves.get(at), Some(Move::Type(_))));
        }
        let Some(next) = moves.get(at) else {
            return Ok(Some((Action::Done, at)));
        };
        Ok(match expert::action(next, &self.values, device).await? {
            Some(action) => Some((action, at + 1)),
            None if self.strayed => Some((Action::NavigateHome, 0)),
            None => None,
        })
    }

    /// Whether the episode has left where it takes place, or taken too long.
    async fn is_over(&self, device: &AdbDevice) -> Result<bool> {
        let longest = self.task.max_seconds.map(Duration::from_secs);
        if longest.is_some_and(|longest| self.began.elapsed() > longest) {
            return Ok(true);
        }
        let Some(activity) = &self.task.activity else {
            return Ok(false);
        };
        let activity = self.values.fill(activity);
        let activity = activity.map_err(|error| error.at("task"))?;
        Ok(!is_in_front(device.target(), &activity).await?)
    }
}

#[async_trait]
impl TaskDriver<AdbDevice> for AndroidDriver {
    async fn set_up(&mut self, device: &mut AdbDevice, task: &Task, seed: u64) -> Result<Arc<str>> {
        let present = Present::new(task, seed).map_err(|error| error.at("set up"))?;
        // Environments go from one episode to the next; `close` tears down the last alone.
        self.tear_down(device).await?;
        if let Some(hook) = &self.snapshot {
            hook.restore(device).await?;
        }
        for step in &present.task.setup {
            take(step, &present.values, device).await?;
        }
        run(device.target(), "logcat -c").await?;
        let instruction = present.values.fill(&present.task.instruction);
        let instruction = instruction.map_err(|error| error.at("set up"))?;
        let began = Instant::now();
        self.present = Some(Present { began, ..present });
        Ok(instruction.into())
    }

    async fn ended(&mut self, device: &mut AdbDevice) -> Result<bool> {
        if let Some(present) = &mut self.present {
            let done = present.asked.take();
            present.strayed = done.is_none();
            present.moves = done.unwrap_or(present.moves);
        }
        let present = self.present()?;
        if present.is_over(device).await? {
            return Ok(true);
        }
        if let Some((_, sum)) = present.logged(device).await?
            && sum.ended
        {
            return Ok(true);
        }
        Ok(present.task.ends_when_solved && present.solved(device, &EpisodeEnd::default()).await?)
    }

    async fn score(&mut self, device: &mut AdbDevice, end: &EpisodeEnd) -> Result<Reward> {
        let present = self.present()?;
        if !present.solved(device, end).await? {
            return Ok(Reward::FAILURE);
        }
        let logged = present.logged(device).await?;
        Ok(logged.map_or(Reward::SUCCESS, |(rules, sum)| rules.reward(sum)))
    }

    async fn tear_down(&mut self, device: &mut AdbDevice) -> Result<()> {
        let Some(Present { task, values, .. }) = self.present.take() else {
            return Ok(());
        };
        for step in &task.tear_down {
            if let Err(error) = take(step, &values, device).await {
                tracing::warn!(task = %task.id, %error, "a step of the clean-up failed");
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Demonstrator<AdbDevice> for AndroidDriver {
    async fn expert_action(&mut self, device: &mut AdbDevice) -> Result<Option<Action>> {
        let next = self.present()?.next_move(device).await?;
        let (action, moves) = next.unzip();
        if let Some(present) = &mut self.present {
            present.asked = moves;
        }
        Ok(action)
    }
}
