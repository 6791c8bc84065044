//! The format of a task file.

use std::collections::BTreeMap;

use dart_core::{Split, TaskId};
use serde::{Deserialize, Serialize};

use super::log_reward::LogReward;

/// A task: a template, of which a seed makes an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// What the agent is told; `{name}` stands for a parameter, here and in all other texts but those
    /// of `reward`, and `{{` for a brace.
    pub instruction: String,
    /// The parameters by name.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// What is done before, in order.
    #[serde(default)]
    pub setup: Vec<Step>,
    /// What has to hold afterwards: all of it.
    #[serde(default)]
    pub success: Vec<Check>,
    /// What the app itself says that the episode is worth; if `success` is not empty, that has to
    /// hold as well. Default: only `success` counts.
    #[serde(default)]
    pub reward: Option<LogReward>,
    /// Whether the episode ends as soon as that holds. Default false: the agent says when it is done.
    #[serde(default)]
    pub ends_when_solved: bool,
    /// The part of an app where the task takes place, such as `com.example/.Main`: leaving it ends
    /// the episode. Default: anywhere.
    #[serde(default)]
    pub activity: Option<String>,
    /// Longest episode, seconds. Default: only `horizon` counts.
    #[serde(default)]
    pub max_seconds: Option<u64>,
    /// What is done afterwards, in order: before the next episode of the environment, or when that is
    /// closed. Failures are noted and passed over.
    #[serde(default)]
    pub tear_down: Vec<Step>,
    /// How an expert solves it, in order; afterwards it says that it is done. Default: there is none.
    #[serde(default)]
    pub expert: Vec<Move>,
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
    /// Does something until it has worked.
    Attempt {
        /// What.
        step: Box<Self>,
        /// What has to be the case afterwards.
        until: Condition,
        /// How long that may take, milliseconds, at most 60,000.
        timeout_ms: u64,
        /// How often it is tried, 1 to 20.
        attempts: u32,
    },
    /// Forgets all data of a package.
    ClearApp(String),
    /// Ends a package.
    ForceStop(String),
    /// Presses the back key.
    GoBack,
    /// Goes to the home screen.
    GoHome,
    /// Starts an app by its name.
    OpenApp(String),
    /// Presses the enter key.
    PressEnter,
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
    /// Changes a database, by `sqlite3` on the device. Parameters are put in as SQL texts, quotes
    /// included.
    Sqlite {
        /// The file.
        database: String,
        /// Statements.
        statement: String,
    },
    /// Taps, pixels of the screen.
    Tap {
        /// From the left.
        x: i32,
        /// From the top.
        y: i32,
    },
    /// Types a text.
    TypeText(String),
    /// Waits until something is the case.
    WaitFor {
        /// What.
        condition: Condition,
        /// How long, milliseconds, at most 60,000.
        timeout_ms: u64,
    },
}

/// Something that a step can wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Condition {
    /// This part of an app is in front, such as `com.example/.Main`.
    Activity(String),
    /// This package is installed.
    Package(String),
}

/// Something that an expert does. Elements are named by their whole text or description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Move {
    /// Gives an answer.
    Answer(String),
    /// Presses the enter key.
    Enter,
    /// Presses the back key.
    GoBack,
    /// Goes to the home screen.
    GoHome,
    /// Touches an element and holds.
    LongPress(String),
    /// Starts an app by its name.
    OpenApp(String),
    /// Taps an element.
    Tap(String),
    /// Taps the text field with this number, from 0.
    TapField(usize),
    /// Types a text.
    Type(String),
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
    /// It has a part that fits this pattern of the crate `regex`: `^` and `$` are its ends. Time and
    /// memory are bounded whatever the pattern and the text. Parameters stand for themselves; a
    /// brace before a letter is written `{{`.
    Matches(String),
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
    /// What a command line prints; it has to succeed. Parameters are put in as quoted words.
    Shell {
        /// The command line.
        command: String,
        /// What it prints.
        output: Expect,
    },
    /// What a database holds, by `sqlite3` on the device: rows are lines, with bars between columns.
    /// Parameters are put in as SQL texts, quotes included. On a real device the program and the
    /// right to read the file (`adb root`) are needed; an error is one, not a failure of the agent.
    Sqlite {
        /// The file.
        database: String,
        /// The query.
        query: String,
        /// What it finds.
        output: Expect,
    },
    /// The text or description of some element of the user interface.
    Ui(Expect),
}
