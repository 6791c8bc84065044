//! [`AndroidDriver`]: sets tasks up on an [`AdbDevice`] and judges them by the device's state.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dart_core::{Action, Device, EpisodeEnd, Result, Reward, Task, TaskDriver};

use super::{
    format::{AndroidTask, Check, Step},
    values::Values,
};
use crate::{client::AdbTarget, device::AdbDevice, error::AdbError, quote};

/// Longest file that is compared, bytes.
const MAX_CONTENT: usize = 1 << 20;

/// Sets tasks up by their steps and judges them by their checks. A task travels in
/// [`Task::params`], as [`AndroidTask::task`] puts it there.
#[derive(Clone, Debug, Default)]
pub struct AndroidDriver {
    present: Option<(AndroidTask, Values)>,
}

impl AndroidDriver {
    fn present(&self) -> Result<&(AndroidTask, Values)> {
        let message = "no task has been set up";
        let missing = || AdbError::Config(message.into()).at("score");
        self.present.as_ref().ok_or_else(missing)
    }

    async fn solved(&self, device: &AdbDevice, end: &EpisodeEnd) -> Result<bool> {
        let (task, values) = self.present()?;
        for check in &task.success {
            if !holds(check, values, device, end).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[async_trait]
impl TaskDriver<AdbDevice> for AndroidDriver {
    async fn set_up(&mut self, device: &mut AdbDevice, task: &Task, seed: u64) -> Result<Arc<str>> {
        let task = serde_json::from_value::<AndroidTask>(task.params.clone());
        let task = task.map_err(|e| AdbError::Config(e.to_string()).at("set up"))?;
        let values = Values::draw(&task, seed).map_err(|error| error.at("set up"))?;
        for step in &task.setup {
            take(step, &values, device).await?;
        }
        run(device.target(), "logcat -c").await?;
        let instruction = values.fill(&task.instruction);
        let instruction = instruction.map_err(|error| error.at("set up"))?;
        self.present = Some((task, values));
        Ok(instruction.into())
    }

    async fn ended(&mut self, device: &mut AdbDevice) -> Result<bool> {
        let (task, _) = self.present()?;
        if !task.ends_when_solved {
            return Ok(false);
        }
        self.solved(device, &EpisodeEnd::default()).await
    }

    async fn score(&mut self, device: &mut AdbDevice, end: &EpisodeEnd) -> Result<Reward> {
        Ok(self.solved(device, end).await?.into())
    }

    async fn tear_down(&mut self, device: &mut AdbDevice) -> Result<()> {
        let Some((task, values)) = self.present.take() else {
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

/// Runs a command that has to succeed; gives what it prints.
async fn run(target: &AdbTarget, line: &str) -> Result<String> {
    let output = target.shell(line).await?;
    if output.code == 0 {
        return Ok(output.text());
    }
    let error = AdbError::Command {
        command: line.chars().take(120).collect(),
        code: output.code,
        said: output.said(),
    };
    Err(error.at("task").with("device", target.serial()))
}

async fn take(step: &Step, values: &Values, device: &mut AdbDevice) -> Result<()> {
    let fill = |text: &String| values.fill(text).map_err(|error| error.at("task"));
    let line = match step {
        Step::ClearApp(package) => quote::join(&["pm", "clear", &fill(package)?]),
        Step::ForceStop(package) => quote::join(&["am", "force-stop", &fill(package)?]),
        Step::GoHome => return device.perform(&Action::NavigateHome).await,
        Step::OpenApp(name) => {
            let name = fill(name)?;
            return device.perform(&Action::OpenApp { name }).await;
        }
        Step::PutFile { path, content } => {
            let (path, content) = (fill(path)?, fill(content)?);
            return device.target().push(content.as_bytes(), &path, 0o644).await;
        }
        Step::Remove(path) => quote::join(&["rm", "-rf", &fill(path)?]),
        Step::Setting {
            namespace,
            key,
            value,
        } => quote::join(&[
            "settings",
            "put",
            &fill(namespace)?,
            &fill(key)?,
            &fill(value)?,
        ]),
        Step::Shell(line) => {
            let line = values.fill_command(line);
            line.map_err(|error| error.at("task"))?
        }
        Step::SleepMs(millis) => {
            tokio::time::sleep(Duration::from_millis(*millis)).await;
            return Ok(());
        }
    };
    run(device.target(), &line).await.map(drop)
}

async fn holds(
    check: &Check,
    values: &Values,
    device: &AdbDevice,
    end: &EpisodeEnd,
) -> Result<bool> {
    let target = device.target();
    let at = |error: AdbError| error.at("task");
    let (text, expected) = match check {
        Check::Answer(expected) => match &end.answer {
            Some(answer) => (answer.clone(), expected),
            None => return Ok(false),
        },
        Check::File { path, content } => {
            let path = values.fill(path).map_err(at)?;
            if !target.stat(&path).await?.exists() {
                return Ok(false);
            }
            let bytes = target.pull(&path, MAX_CONTENT).await?;
            (String::from_utf8_lossy(&bytes).into_owned(), content)
        }
        Check::FileExists { path, exists } => {
            let path = values.fill(path).map_err(at)?;
            return Ok(target.stat(&path).await?.exists() == *exists);
        }
        Check::Log(expected) => {
            let log = run(target, "logcat -d").await?;
            let mut lines = log.lines().map(|line| values.holds(expected, line));
            let found = |found, line: Result<bool, AdbError>| Ok(found | line?);
            return lines.try_fold(false, found).map_err(at);
        }
        Check::Setting {
            namespace,
            key,
            value,
        } => {
            let (namespace, key) = (
                values.fill(namespace).map_err(at)?,
                values.fill(key).map_err(at)?,
            );
            let line = quote::join(&["settings", "get", &namespace, &key]);
            (run(target, &line).await?, value)
        }
        Check::Shell { command, output } => {
            let line = values.fill_command(command).map_err(at)?;
            (run(target, &line).await?, output)
        }
        Check::Ui(expected) => {
            for node in device.ui_tree().await? {
                for text in [&node.text, &node.description] {
                    if !text.is_empty() && values.holds(expected, text).map_err(at)? {
                        return Ok(true);
                    }
                }
            }
            return Ok(false);
        }
    };
    values.holds(expected, &text).map_err(at)
}
