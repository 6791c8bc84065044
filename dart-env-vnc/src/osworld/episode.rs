//! One episode of a task: its steps, and its judgement by the fixed rules of OSWorld
//! (xlang-ai/OSWorld, `desktop_env/desktop_env.py`).
//!
//! Deviations: a step of the set-up that fails is an error and never a task that was not set up;
//! a window that is gone before the judgement is none, as there.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use dart_core::{Action, Device, EpisodeEnd, Result, Reward};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    config::EvaluatorConfig,
    error::Fault,
    external::{self, Place},
    getter::{FileRef, Getter, Source},
    guest::{Guest, Query},
    metrics,
    placeholder::Placeholders,
    pyautogui::{self, Input},
    state::{File, State},
    step::{Download, GuestCommand, SetupStep},
    support::file_name,
    task::{Check, Conjunction, Evaluator, OsworldTask},
};

/// Longest wait for a window that a step before the judgement is about.
const WINDOW: Duration = Duration::from_secs(5);

/// Largest reference file, and largest sum of outputs kept, bytes.
const MAX_FILE: u64 = 64 << 20;

/// When a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    SetUp,
    Judgement,
}

/// Where an episode takes place.
pub(super) struct Scene {
    pub(super) guest: Box<dyn Guest>,
    pub(super) place: Place,
    pub(super) placeholders: Placeholders,
    /// Reference files: `<task id>/<name>`.
    pub(super) files_dir: Option<PathBuf>,
}

/// One episode.
pub(super) struct Episode {
    task: OsworldTask,
    scene: Scene,
    /// Outputs kept by steps.
    cache: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for Episode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Episode")
            .field("task", &self.task.id)
            .finish_non_exhaustive()
    }
}

impl Episode {
    pub(super) const fn new(task: OsworldTask, scene: Scene) -> Self {
        Self {
            task,
            scene,
            cache: BTreeMap::new(),
        }
    }

    /// Sets the task up.
    pub(super) async fn set_up(&mut self, device: &mut dyn Device) -> Result<()> {
        for step in self.task.config.clone() {
            self.step(device, &step, Phase::SetUp).await?;
        }
        Ok(())
    }

    /// Ends what the episode started.
    pub(super) async fn close(&mut self) -> Result<()> {
        self.scene.guest.close().await
    }

    async fn step(
        &mut self,
        device: &mut dyn Device,
        step: &SetupStep,
        phase: Phase,
    ) -> Result<()> {
        match step {
            SetupStep::Sleep(pause) => {
                sleep(*pause).await;
                Ok(())
            }
            SetupStep::Execute {
                command,
                stdout,
                stderr,
            } => {
                let keep = [stdout.as_deref(), stderr.as_deref()];
                self.execute(device, command, keep).await
            }
            SetupStep::Launch(command) => {
                let filled = self.scene.placeholders.fill(command);
                self.scene.guest.set_up(&SetupStep::Launch(filled)).await
            }
            SetupStep::Download(files) => self.download(files).await,
            SetupStep::ActivateWindow(_) | SetupStep::CloseWindow(_)
                if phase == Phase::Judgement =>
            {
                match timeout(WINDOW, self.scene.guest.set_up(step)).await {
                    // The agent may have closed it.
                    Err(_) => Ok(()),
                    Ok(Err(error)) if error.kind() == dart_core::ErrorKind::Protocol => Ok(()),
                    Ok(done) => done,
                }
            }
            other => self.scene.guest.set_up(other).await,
        }
    }

    async fn execute(
        &mut self,
        device: &mut dyn Device,
        command: &GuestCommand,
        keep: [Option<&str>; 2],
    ) -> Result<()> {
        let command = self.scene.placeholders.fill(command);
        if let (Place::Local, Some(input)) = (&self.scene.place, pyautogui::read(&command)) {
            return act(device, input).await;
        }
        let output = self.scene.guest.run(&command).await?;
        for (name, text) in keep.into_iter().zip([output.stdout, output.stderr]) {
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                self.keep(name, text)?;
            }
        }
        Ok(())
    }

    /// Keeps an output for the judgement.
    fn keep(&mut self, name: &str, text: String) -> Result<(), Fault> {
        let kept: usize = self.cache.values().map(Vec::len).sum();
        if (kept + text.len()) as u64 > MAX_FILE {
            let what = "the outputs that a task keeps".to_owned();
            let limit = MAX_FILE as usize;
            return Err(Fault::TooLarge { what, limit });
        }
        self.cache.insert(name.to_owned(), text.into_bytes());
        Ok(())
    }

    /// Files that lie on this machine go to the guest; others it fetches itself.
    async fn download(&mut self, files: &[Download]) -> Result<()> {
        for file in files {
            if let Some(content) = self.reference(file_name(&file.path))? {
                self.scene.guest.write_file(&file.path, &content).await?;
            } else {
                let step = SetupStep::Download(vec![file.clone()]);
                self.scene.guest.set_up(&step).await?;
            }
        }
        Ok(())
    }

    /// A reference file of this task.
    fn reference(&self, name: &str) -> Result<Option<Vec<u8>>, Fault> {
        let Some(folder) = &self.scene.files_dir else {
            return Ok(None);
        };
        if matches!(name, "" | "." | "..") {
            return Ok(None);
        }
        let path = folder.join(self.task.id.as_str()).join(name);
        let cannot = |cause| Fault::Read {
            what: path.display().to_string(),
            cause,
        };
        if !path.is_file() {
            return Ok(None);
        }
        if path.metadata().map_err(cannot)?.len() > MAX_FILE {
            let (what, limit) = (path.display().to_string(), MAX_FILE as usize);
            return Err(Fault::TooLarge { what, limit });
        }
        std::fs::read(&path).map(Some).map_err(cannot)
    }

    /// Judges the episode.
    pub(super) async fn judge(
        &mut self,
        device: &mut dyn Device,
        end: &EpisodeEnd,
        evaluator: Option<&EvaluatorConfig>,
    ) -> Result<Reward> {
        let gave_up = matches!(end.last_action, Some(Action::Fail));
        let Evaluator::Checks {
            postconfig,
            checks,
            conjunction,
            ..
        } = self.task.evaluator.clone()
        else {
            // Running out of steps is not saying that it cannot be done.
            return Ok(gave_up.into());
        };
        if gave_up {
            return Ok(Reward::FAILURE);
        }
        for step in &postconfig {
            self.step(device, step, Phase::Judgement).await?;
        }
        let mut scores = Vec::new();
        for check in &checks {
            let score = self.check(check, evaluator).await?;
            match conjunction {
                Conjunction::And if score == 0.0 => return Ok(Reward::FAILURE),
                Conjunction::Or if score == 1.0 => return Ok(Reward::SUCCESS),
                _ => scores.push(score),
            }
        }
        let score = match conjunction {
            Conjunction::And => scores.iter().sum::<f64>() / scores.len().max(1) as f64,
            Conjunction::Or => scores.into_iter().fold(0.0, f64::max),
        };
        Reward::new(score)
    }

    async fn check(&mut self, check: &Check, evaluator: Option<&EvaluatorConfig>) -> Result<f64> {
        let result = self.find_all(check.result.as_ref()).await?;
        let expected = self.find_all(check.expected.as_ref()).await?;
        let left = |state: &Option<State>| matches!(state, Some(State::Left(_)));
        let native = metrics::judges(&check.func, &check.options);
        let native = native && !left(&result) && !left(&expected);
        let (result, expected) = match (native, result, expected) {
            (true, Some(result), Some(expected)) => {
                return Ok(judge_here(check, result, expected).await?);
            }
            (_, result, expected) => (result, expected),
        };
        let unsupported = || Fault::Unsupported(format!("metric {}", check.func));
        let evaluator = evaluator.ok_or_else(unsupported)?;
        let question = external::Question {
            task: self.task.id.as_str(),
            metric: &check.func,
            result: result.as_ref(),
            expected: expected.as_ref(),
            options: &check.options,
            place: &self.scene.place,
        };
        Ok(external::ask(evaluator, question).await?)
    }

    async fn find_all(&mut self, source: Option<&Source>) -> Result<Option<State>> {
        match source {
            Some(source) => Ok(Some(self.find(source).await?)),
            None => Ok(None),
        }
    }

    async fn find(&mut self, source: &Source) -> Result<State> {
        let ask = |value: Value| match value {
            Value::Null => State::Missing,
            value => State::Value(value),
        };
        let guest = &mut self.scene.guest;
        Ok(match &source.getter {
            Getter::Rule(rules) => State::Value(rules.clone()),
            Getter::VmFile(files) => self.files(files, true).await?,
            Getter::CloudFile(files) => self.files(files, false).await?,
            Getter::GimpConfigFile(file) | Getter::VlcConfig(file) => {
                self.files(std::slice::from_ref(file), true).await?
            }
            Getter::CacheFile { name } => match self.cache.get(name) {
                Some(content) => State::File(File {
                    name: name.clone(),
                    content: content.clone(),
                }),
                None => State::Missing,
            },
            Getter::VmCommandLine(command) => {
                let command = self.scene.placeholders.fill(command);
                State::Value(guest.run(&command).await?.stdout.into())
            }
            Getter::VmCommandError(command) => {
                let command = self.scene.placeholders.fill(command);
                State::Value(guest.run(&command).await?.stderr.into())
            }
            Getter::ListDirectory { path } => {
                ask(guest.ask(&Query::Directory(path.clone())).await?)
            }
            Getter::VmTerminalOutput => ask(guest.ask(&Query::Terminal).await?),
            Getter::AccessibilityTree => ask(guest.ask(&Query::Accessibility).await?),
            Getter::OpenTabsInfo => ask(guest.ask(&Query::Tabs).await?),
            Getter::Bookmarks => self.bookmarks().await?,
            Getter::Other { .. } => State::Left(source.raw.clone()),
        })
    }

    /// The roots of the browser's bookmarks.
    async fn bookmarks(&mut self) -> Result<State> {
        let path = "~/.config/google-chrome/Default/Bookmarks";
        let Some(content) = self.scene.guest.read_file(path).await? else {
            return Ok(State::Value(json!({})));
        };
        let file: Value = serde_json::from_slice(&content).unwrap_or_default();
        Ok(State::Value(
            file.get("roots").cloned().unwrap_or(json!({})),
        ))
    }

    /// Files of the guest or reference files.
    async fn files(&mut self, files: &[FileRef], guest: bool) -> Result<State> {
        let mut found = Vec::new();
        for FileRef { path, dest } in files {
            let content = if guest {
                self.scene.guest.read_file(path).await?
            } else {
                let content = self.reference(dest)?;
                let missing = || Fault::Setting(format!("the reference file {dest} is not there"));
                Some(content.ok_or_else(missing)?)
            };
            found.push(content.map(|content| File {
                name: dest.clone(),
                content,
            }));
        }
        Ok(match found.len() {
            1 => found.pop().flatten().map_or(State::Missing, State::File),
            _ => State::Files(found),
        })
    }
}

/// Judges natively, beside the other environments: some metrics take seconds on large files.
async fn judge_here(check: &Check, result: State, expected: State) -> Result<f64, Fault> {
    let (func, options) = (check.func.clone(), check.options.clone());
    let scored = tokio::task::spawn_blocking(move || {
        let case = metrics::Case {
            result: &result,
            expected: &expected,
            options: &options,
        };
        metrics::score(&func, &case)
    });
    scored.await.map_err(|cause| Fault::Answer {
        what: format!("metric {}", check.func),
        why: cause.to_string(),
    })?
}

/// Gives input to the desktop.
async fn act(device: &mut dyn Device, input: Vec<Input>) -> Result<()> {
    for one in input {
        match one {
            Input::Act(action) => device.perform(&action).await?,
            Input::Pause(pause) => sleep(pause).await,
        }
    }
    Ok(())
}
