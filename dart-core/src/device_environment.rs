//! [`DeviceEnvironment`]: one episode layer shared by all devices.
//!
//! Order of calls, step limit, deadlines and the judge's view of the end are the same for a VNC
//! desktop, a phone and a simulator, so they are written once, here.

use std::{future::Future, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    Action, ActionKind, ActionSet, Demonstrate, Demonstrator, Device, EnvSpec, Environment,
    EpisodeEnd, Error, ErrorKind, Observation, Reset, Result, Reward, StepOutcome, StepStatus,
    StopReason, Task, TaskDriver,
};

const ORIGIN: &str = "environment";

/// Deadlines of the episode layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceEnvironmentConfig {
    /// Longest reset, milliseconds. Default 60,000: a browser may have to be started.
    pub reset_timeout_ms: u64,
    /// Longest step, milliseconds. Default 90,000, the longest wait action plus the device's own deadline.
    pub step_timeout_ms: u64,
    /// Longest judgement, milliseconds. Default 60,000.
    pub score_timeout_ms: u64,
    /// Longest clean-up and longest release of the device, milliseconds each. Default 10,000: nobody
    /// waits for what is thrown away.
    pub close_timeout_ms: u64,
}

impl Default for DeviceEnvironmentConfig {
    fn default() -> Self {
        Self {
            reset_timeout_ms: 60_000,
            step_timeout_ms: 90_000,
            score_timeout_ms: 60_000,
            close_timeout_ms: 10_000,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// A call is in progress; seen from outside only if its future was dropped.
    Interrupted,
    Running,
    Ended,
    /// Closing has begun, and perhaps ended.
    Closed,
}

/// What became of one action.
enum Acted {
    /// The device took it; whether the episode has ended.
    Taken(Observation, bool),
    /// The device refused it and is as it was.
    Refused(Error),
}

/// An [`Environment`] made of a [`Device`] and a [`TaskDriver`].
#[derive(Debug)]
pub struct DeviceEnvironment<D, T> {
    device: D,
    driver: T,
    spec: EnvSpec,
    config: DeviceEnvironmentConfig,
    phase: Phase,
    needs_recovery: bool,
    released: bool,
    horizon: u32,
    steps: u32,
    end: EpisodeEnd,
}

/// The actions that concern the task, not the device.
const TASK_ACTIONS: ActionSet =
    ActionSet::of(&[ActionKind::Answer, ActionKind::Done, ActionKind::Fail]);

impl<D: Device, T: TaskDriver<D>> DeviceEnvironment<D, T> {
    /// Joins a device and a driver. `deterministic` says whether the same task and seed give the
    /// same first frame.
    pub fn new(device: D, driver: T, deterministic: bool, config: DeviceEnvironmentConfig) -> Self {
        let device_spec = device.spec();
        let actions = device_spec
            .actions
            .iter()
            .chain(TASK_ACTIONS.iter())
            .collect::<Vec<_>>();
        let spec = EnvSpec {
            name: device_spec.name.clone(),
            screen: device_spec.screen,
            actions: actions.into(),
            deterministic,
        };
        Self {
            device,
            driver,
            spec,
            config,
            phase: Phase::Idle,
            needs_recovery: false,
            released: false,
            horizon: 0,
            steps: 0,
            end: EpisodeEnd::default(),
        }
    }

    /// The device, for tests and tools.
    pub const fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn misuse(operation: &'static str, message: &'static str) -> Error {
        Error::new(ErrorKind::Misuse, ORIGIN, operation, message)
    }

    fn check_phase(&self, operation: &'static str) -> Result<()> {
        match self.phase {
            Phase::Running => Ok(()),
            Phase::Idle => Err(Self::misuse(operation, "no episode: call reset first")),
            Phase::Ended => Err(Self::misuse(operation, "the episode has ended: call reset")),
            Phase::Closed => Err(Self::misuse(operation, "the environment is closed")),
            Phase::Interrupted => Err(Error::new(
                ErrorKind::Cancelled,
                ORIGIN,
                operation,
                "an earlier call was interrupted: call reset",
            )),
        }
    }

    fn check_action(&self, action: &Action) -> Result<()> {
        let kind = action.kind();
        if !self.spec.actions.contains(kind) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                ORIGIN,
                "step",
                "this environment does not take such an action",
            )
            .with("action", format!("{kind:?}")));
        }
        match action.fault(self.device.spec().screen) {
            Some(fault) => Err(Error::new(ErrorKind::InvalidAction, ORIGIN, "step", fault)),
            None => Ok(()),
        }
    }

    async fn begin(&mut self, task: &Task, seed: u64) -> Result<Reset> {
        if self.needs_recovery {
            self.device.recover().await?;
            self.needs_recovery = false;
        }
        let instruction = self.driver.set_up(&mut self.device, task, seed).await?;
        let observation = self.device.screenshot().await?;
        Ok(Reset {
            observation,
            instruction,
        })
    }

    async fn act(&mut self, action: &Action) -> Result<Acted> {
        if !TASK_ACTIONS.contains(action.kind()) {
            match self.device.perform(action).await {
                Err(error) if is_refusal(&error) => return Ok(Acted::Refused(error)),
                performed => performed?,
            }
        }
        let ended = action.is_final() || self.driver.ended(&mut self.device).await?;
        Ok(Acted::Taken(self.device.screenshot().await?, ended))
    }

    /// Counts a step that was taken.
    fn taken(&mut self, action: &Action, ended: bool) -> StepStatus {
        self.steps += 1;
        self.end.last_action = Some(action.clone());
        if let Action::Answer { text } = action {
            self.end.answer = Some(text.clone());
        }
        let status = self.status_after(ended);
        self.note_end(status);
        status
    }

    fn status_after(&self, ended: bool) -> StepStatus {
        if ended {
            StepStatus::Terminated
        } else if self.steps >= self.horizon {
            StepStatus::Truncated(StopReason::StepLimit)
        } else {
            StepStatus::Running
        }
    }

    fn note_end(&mut self, status: StepStatus) {
        self.end.stop = match status {
            StepStatus::Running => None,
            StepStatus::Terminated => Some(StopReason::Completed),
            StepStatus::Truncated(reason) => Some(reason),
        };
        self.phase = if self.end.stop.is_some() {
            Phase::Ended
        } else {
            Phase::Running
        };
    }

    fn fail<V>(&mut self, error: Error) -> Result<V> {
        self.needs_recovery = true;
        Err(error)
    }
}

/// Whether a device that says so has not been touched (contract 3 of [`Device`]).
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidAction | ErrorKind::Unsupported
    )
}

/// Runs `future` for at most `millis`.
async fn within<V>(
    millis: u64,
    operation: &'static str,
    future: impl Future<Output = Result<V>> + Send,
) -> Result<V> {
    let late = |_| {
        let message = format!("no answer within {millis} ms");
        Err(Error::new(ErrorKind::Timeout, ORIGIN, operation, message))
    };
    tokio::time::timeout(Duration::from_millis(millis), future)
        .await
        .unwrap_or_else(late)
}

#[async_trait]
impl<D: Device, T: TaskDriver<D>> Environment for DeviceEnvironment<D, T> {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    async fn reset(&mut self, task: &Task, seed: u64) -> Result<Reset> {
        if self.phase == Phase::Closed {
            return Err(Self::misuse("reset", "the environment is closed"));
        }
        self.needs_recovery |= self.phase == Phase::Interrupted;
        self.phase = Phase::Interrupted;
        match within(
            self.config.reset_timeout_ms,
            "reset",
            self.begin(task, seed),
        )
        .await
        {
            Ok(reset) => {
                self.horizon = task.horizon;
                self.steps = 0;
                self.end = EpisodeEnd::default();
                self.phase = Phase::Running;
                Ok(reset)
            }
            Err(error) => self.fail(error),
        }
    }

    async fn step(&mut self, action: &Action) -> Result<StepOutcome> {
        self.check_phase("step")?;
        self.check_action(action)?;
        self.phase = Phase::Interrupted;
        match within(self.config.step_timeout_ms, "step", self.act(action)).await {
            Ok(Acted::Taken(observation, ended)) => Ok(StepOutcome {
                observation,
                status: self.taken(action, ended),
            }),
            Ok(Acted::Refused(error)) => {
                self.phase = Phase::Running;
                Err(error)
            }
            Err(error) => self.fail(error),
        }
    }

    async fn score(&mut self) -> Result<Reward> {
        if self.phase != Phase::Ended {
            self.check_phase("score")?;
        }
        let before = std::mem::replace(&mut self.phase, Phase::Interrupted);
        let judged = self.driver.score(&mut self.device, &self.end);
        match within(self.config.score_timeout_ms, "score", judged).await {
            Ok(reward) => {
                self.phase = before;
                Ok(reward)
            }
            Err(error) => self.fail(error),
        }
    }

    async fn close(&mut self) -> Result<()> {
        if self.released {
            return Ok(());
        }
        self.phase = Phase::Closed;
        // Both are tried, whatever becomes of the first; a dropped call is made good by the next.
        let limit = self.config.close_timeout_ms;
        let torn_down = within(limit, "tear down", self.driver.tear_down(&mut self.device)).await;
        let closed = within(limit, "close", self.device.close()).await;
        self.released = true;
        closed.and(torn_down)
    }
}

#[async_trait]
impl<D: Device, T: Demonstrator<D>> Demonstrate for DeviceEnvironment<D, T> {
    async fn expert_action(&mut self) -> Result<Option<Action>> {
        self.check_phase("expert_action")?;
        self.phase = Phase::Interrupted;
        let asked = self.driver.expert_action(&mut self.device);
        match within(self.config.step_timeout_ms, "expert_action", asked).await {
            Ok(action) => {
                self.phase = Phase::Running;
                Ok(action)
            }
            Err(error) => self.fail(error),
        }
    }
}
