//! Reading and checking task files.

use std::{collections::BTreeSet, io::Read as _, path::Path};

use dart_core::{Result, Task};
use serde::Deserialize;

use super::{
    format::{AndroidTask, Check, Condition, Step},
    textproto,
    values::Values,
};
use crate::error::{Adb, AdbError};

/// Longest task file, bytes.
pub(super) const MAX_FILE: u64 = 4 << 20;
/// Most files of a folder.
const MAX_FILES: usize = 1000;
/// Most steps and most checks of a task.
const MAX_STEPS: usize = 100;
/// Longest wait of a step, milliseconds.
const MAX_WAIT_MS: u64 = 60_000;
/// How the names of AndroidEnv's files end.
const TEXTPROTO: [&str; 4] = ["textproto", "textpb", "pbtxt", "txtpb"];

/// A task file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    task: Vec<AndroidTask>,
}

/// Reads a task file, or all task files of a folder: TOML, or, where the name ends in `.textproto`,
/// `.textpb`, `.txtpb` or `.pbtxt`, a task of AndroidEnv ([`parse_textproto`](super::parse_textproto)).
///
/// # Errors
/// [`Config`](dart_core::ErrorKind::Config), naming file and place.
pub fn load(path: &Path) -> Result<Vec<AndroidTask>> {
    let paths = files(path).map_err(|error| error.at("load tasks"))?;
    let mut all = Vec::new();
    for path in paths {
        let text = read(&path).map_err(|error| error.at("load tasks"))?;
        let tasks = if is_textproto(&path) {
            textproto::parse_textproto(&text).map(|task| vec![task])
        } else {
            parse(&text)
        };
        all.extend(tasks.map_err(|error| error.with("file", path.display()))?);
    }
    distinct(&all).map_err(|error| error.at("load tasks").with("file", path.display()))?;
    Ok(all)
}

fn is_textproto(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| TEXTPROTO.contains(&ending))
}

/// The file itself, or the task files of a folder in order.
fn files(path: &Path) -> Adb<Vec<std::path::PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let bad = |why: String| AdbError::Config(format!("{}: {why}", path.display()));
    let entries = std::fs::read_dir(path).map_err(|error| bad(error.to_string()))?;
    let mut all = BTreeSet::new();
    for entry in entries {
        let file = entry.map_err(|error| bad(error.to_string()))?.path();
        let is_toml = file.extension().is_some_and(|ending| ending == "toml");
        if is_toml || is_textproto(&file) {
            all.insert(file);
        }
        if all.len() > MAX_FILES {
            return Err(bad(format!("a folder has at most {MAX_FILES} task files")));
        }
    }
    if all.is_empty() {
        return Err(bad("there is no task file in this folder".into()));
    }
    Ok(all.into_iter().collect())
}

fn read(path: &Path) -> Adb<String> {
    let bad = |why: String| AdbError::Config(format!("{}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| bad(error.to_string()))?;
    let mut bytes = Vec::new();
    // Not the length that the system tells: a pipe or a device has none.
    let read = file.take(MAX_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|error| bad(error.to_string()))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(bad(format!("a task file has at most {MAX_FILE} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| bad(error.to_string()))
}

fn distinct(tasks: &[AndroidTask]) -> Adb<()> {
    let mut ids = BTreeSet::new();
    match tasks.iter().find(|task| !ids.insert(&task.id)) {
        None => Ok(()),
        Some(task) => {
            let message = format!("two tasks are called {}", task.id);
            Err(AdbError::Config(message))
        }
    }
}

/// Reads the text of a task file.
///
/// ```
/// let tasks = dart_env_adb::tasks::parse(r#"
///     [[task]]
///     id = "brightness"
///     instruction = "Set the brightness to {level}."
///     parameters.level = { integer = [1, 255] }
///     setup = ["go_home", { setting = { namespace = "system", key = "screen_brightness", value = "0" } }]
///     success = [{ setting = { namespace = "system", key = "screen_brightness", value = { equals = "{level}" } } }]
/// "#)?;
/// assert_eq!(tasks[0].horizon, 15);
/// # Ok::<(), dart_core::Error>(())
/// ```
///
/// # Errors
/// [`Config`](dart_core::ErrorKind::Config), naming the place.
pub fn parse(text: &str) -> Result<Vec<AndroidTask>> {
    let checked = || {
        let file: File = toml::from_str(text).map_err(|e| AdbError::Config(e.to_string()))?;
        for task in &file.task {
            task.check()?;
        }
        distinct(&file.task)?;
        Ok(file.task)
    };
    checked().map_err(|error: AdbError| error.at("load tasks"))
}

impl AndroidTask {
    /// Whether every instance can be made.
    pub(super) fn check(&self) -> Adb<()> {
        let bad = |why: &str| AdbError::Config(format!("task {}: {why}", self.id));
        if self.horizon == 0 || (self.success.is_empty() && self.reward.is_none()) {
            return Err(bad("needs a horizon and something that has to hold"));
        }
        let lengths = [
            self.setup.len(),
            self.success.len(),
            self.tear_down.len(),
            self.expert.len(),
        ];
        if lengths.iter().any(|length| *length > MAX_STEPS) {
            return Err(bad("has more than 100 steps or checks"));
        }
        for step in self.setup.iter().chain(&self.tear_down) {
            check_step(step).map_err(bad)?;
        }
        let values = Values::draw(self, 0)?;
        values.fill(&self.instruction)?;
        for text in self.texts().map_err(|error| bad(&error.to_string()))? {
            let filled = values.fill(&text);
            filled.map_err(|error| bad(&error.to_string()))?;
        }
        for expected in self.success.iter().filter_map(Check::expected) {
            values.expected(expected).map_err(|e| bad(&e.to_string()))?;
        }
        if let Some(reward) = &self.reward {
            reward.compile().map_err(|e| bad(&e.to_string()))?;
        }
        Ok(())
    }

    /// All texts in which names of parameters may stand.
    fn texts(&self) -> Result<Vec<String>, serde_json::Error> {
        let parts = (
            &self.setup,
            &self.success,
            &self.tear_down,
            &self.expert,
            &self.activity,
        );
        let mut waiting = vec![serde_json::to_value(parts)?];
        let mut texts = Vec::new();
        while let Some(value) = waiting.pop() {
            match value {
                serde_json::Value::String(text) => texts.push(text),
                serde_json::Value::Array(all) => waiting.extend(all),
                serde_json::Value::Object(all) => waiting.extend(all.into_iter().map(|(_, v)| v)),
                _ => {}
            }
        }
        Ok(texts)
    }

    /// The task as the rest of the program knows it.
    ///
    /// # Errors
    /// None for a task that [`parse`] has accepted.
    pub fn task(&self) -> Result<Task, dart_core::Error> {
        let params = serde_json::to_value(self);
        let params = params.map_err(|e| AdbError::Config(e.to_string()).at("load tasks"))?;
        Ok(Task {
            id: self.id.clone(),
            family: self.family.clone(),
            split: self.split,
            horizon: self.horizon,
            params,
        })
    }
}

fn check_step(step: &Step) -> Result<(), &'static str> {
    match step {
        Step::SleepMs(millis)
        | Step::WaitFor {
            timeout_ms: millis, ..
        } if *millis > MAX_WAIT_MS => Err("waits for more than 60,000 ms"),
        Step::Attempt { step, .. } if matches!(**step, Step::Attempt { .. }) => {
            Err("has an attempt inside an attempt")
        }
        Step::Attempt {
            step,
            timeout_ms,
            attempts,
            ..
        } => {
            if *timeout_ms > MAX_WAIT_MS {
                return Err("waits for more than 60,000 ms");
            }
            if !(1..=20).contains(attempts) {
                return Err("tries a step 1 to 20 times");
            }
            check_step(step)
        }
        _ => Ok(()),
    }
}

impl Condition {
    /// What it names.
    pub(super) const fn name(&self) -> &String {
        match self {
            Self::Activity(name) | Self::Package(name) => name,
        }
    }
}
