//! The format of a task file.

use std::{collections::BTreeMap, path::Path};

use dart_core::{Result, Split, Task, TaskId};
use serde::{Deserialize, Serialize};

use super::values::Values;
use crate::error::{Adb, AdbError};

/// Longest task file, bytes.
const MAX_FILE: u64 = 4 << 20;
/// Most steps and most checks of a task.
const MAX_STEPS: usize = 100;

/// A task: a template, of which a seed makes an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AndroidTask {
    /// Its name: letters, digits, `.`, `_` and `-`.
    pub id: TaskId,
    /// What it is an example of. Default `android`.
    #[serde(default = "family")]
    pub family: String,
    /// Which set it belongs to. Default train.
    #[serde(default)]
    pub split: Split,
    /// Longest episode, steps. Default 15.
    #[serde(default = "horizon")]
    pub horizon: u32,
    /// What the agent is told; `{name}` stands for a parameter, here and in all other texts.
    pub instruction: String,
    /// The parameters by name.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// What is done before, in order.
    #[serde(default)]
    pub setup: Vec<Step>,
    /// What has to hold afterwards: all of it.
    pub success: Vec<Check>,
    /// Whether the episode ends as soon as that holds. Default false: the agent says when it is done.
    #[serde(default)]
    pub ends_when_solved: bool,
    /// What is done afterwards, in order; failures are noted and passed over.
    #[serde(default)]
    pub tear_down: Vec<Step>,
}

fn family() -> String {
    "android".into()
}

const fn horizon() -> u32 {
    15
}

/// Where the value of a parameter comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Parameter {
    /// One of these.
    Choice(Vec<String>),
    /// A whole number from the first to the second.
    Integer(i64, i64),
    /// So many letters and digits.
    Letters(usize),
}

/// Something that is done on the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Forgets all data of a package.
    ClearApp(String),
    /// Ends a package.
    ForceStop(String),
    /// Goes to the home screen.
    GoHome,
    /// Starts an app by its name.
    OpenApp(String),
    /// Writes a file.
    PutFile {
        /// Where.
        path: String,
        /// What.
        content: String,
    },
    /// Removes a file or folder if there is one.
    Remove(String),
    /// Changes a setting.
    Setting {
        /// `system`, `secure` or `global`.
        namespace: String,
        /// Its name.
        key: String,
        /// Its value.
        value: String,
    },
    /// Runs a command line, which has to succeed. Parameters are put in as quoted words.
    Shell(String),
    /// Waits, milliseconds, at most 60,000.
    SleepMs(u64),
}

/// What text has to be. White space at both ends does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Expect {
    /// This is in it.
    Contains(String),
    /// It is this.
    Equals(String),
    /// It is this, with small and capital letters alike.
    EqualsIgnoringCase(String),
    /// This is not in it.
    Lacks(String),
}

/// Something that has to hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// The agent's answer.
    Answer(Expect),
    /// The content of a file of at most 1 MiB.
    File {
        /// Which.
        path: String,
        /// What it is.
        content: Expect,
    },
    /// There is such a file, or there is none.
    FileExists {
        /// Which.
        path: String,
        /// Whether there is one.
        exists: bool,
    },
    /// A line that was logged since the set-up.
    Log(Expect),
    /// A setting.
    Setting {
        /// `system`, `secure` or `global`.
        namespace: String,
        /// Its name.
        key: String,
        /// Its value; `null` if there is none.
        value: Expect,
    },
    /// What a command line prints; it has to succeed. Parameters are put in as quoted words. A database
    /// is asked by `sqlite3 FILE "SELECT …"`.
    Shell {
        /// The command line.
        command: String,
        /// What it prints.
        output: Expect,
    },
    /// The text or description of some element of the user interface.
    Ui(Expect),
}

/// A task file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    task: Vec<AndroidTask>,
}

/// Reads a task file.
///
/// # Errors
/// [`Config`](dart_core::ErrorKind::Config), naming file and place.
pub fn load(path: &Path) -> Result<Vec<AndroidTask>> {
    let text = read(path).map_err(|error| error.at("load tasks"))?;
    parse(&text).map_err(|error| error.with("file", path.display()))
}

fn read(path: &Path) -> Adb<String> {
    let bad = |why: String| AdbError::Config(format!("{}: {why}", path.display()));
    let length = std::fs::metadata(path)
        .map_err(|error| bad(error.to_string()))?
        .len();
    if length > MAX_FILE {
        return Err(bad(format!("a task file has at most {MAX_FILE} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))
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
        let mut ids = std::collections::BTreeSet::new();
        for task in &file.task {
            task.check()?;
            if !ids.insert(task.id.clone()) {
                let message = format!("two tasks are called {}", task.id);
                return Err(AdbError::Config(message));
            }
        }
        Ok(file.task)
    };
    checked().map_err(|error| error.at("load tasks"))
}

impl AndroidTask {
    /// Whether every instance can be made.
    fn check(&self) -> Adb<()> {
        let bad = |why: &str| AdbError::Config(format!("task {}: {why}", self.id));
        if self.horizon == 0 || self.success.is_empty() {
            return Err(bad("needs a horizon and something that has to hold"));
        }
        let longest = self
            .setup
            .len()
            .max(self.success.len())
            .max(self.tear_down.len());
        if longest > MAX_STEPS {
            return Err(bad("has more than 100 steps or checks"));
        }
        let sleeps = |step: &Step| matches!(step, Step::SleepMs(millis) if *millis > 60_000);
        if self.setup.iter().chain(&self.tear_down).any(sleeps) {
            return Err(bad("waits for more than 60,000 ms"));
        }
        let values = Values::draw(self, 0)?;
        values.fill(&self.instruction)?;
        // Filling the whole task as text finds every name that is no parameter.
        let texts = serde_json::to_string(&(&self.setup, &self.success, &self.tear_down));
        let texts = texts.map_err(|error| bad(&error.to_string()))?;
        for name in names_in(&texts) {
            values.get(name).map_err(|error| bad(&error.to_string()))?;
        }
        Ok(())
    }

    /// The task as the rest of the program knows it.
    ///
    /// # Errors
    /// None for a task that [`parse`] has accepted.
    pub fn task(&self) -> Result<Task> {
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

/// The names in braces, in the JSON form of texts: there, `{"` begins an object.
fn names_in(json: &str) -> impl Iterator<Item = &str> {
    let starts = json.match_indices('{').map(|(at, _)| &json[at + 1..]);
    starts.filter_map(|rest| {
        let (name, _) = rest.split_once('}')?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        (!name.is_empty() && name.chars().all(plain)).then_some(name)
    })
}
