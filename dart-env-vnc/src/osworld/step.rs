//! Steps that set a task up, and that come before its judgement (`config` and `postconfig`).
//!
//! Known kinds are typed and strict; unknown ones are kept by name, so that what a file needs can
//! be said before a run.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};

use super::words;

/// A program with its arguments, or a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandText {
    /// One line. Without a shell it is split into words.
    Line(String),
    /// Program and arguments.
    Words(Vec<String>),
}

/// Something to run in the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GuestCommand {
    /// What to run.
    pub command: CommandText,
    /// Whether a shell runs it.
    pub shell: bool,
}

impl GuestCommand {
    /// Program and arguments, or what a shell is given if [`shell`](Self::shell) is set.
    ///
    /// # Errors
    /// If the line cannot be split or nothing is left.
    pub fn words(&self) -> Result<Vec<String>, &'static str> {
        let words = match &self.command {
            CommandText::Words(words) => words.clone(),
            CommandText::Line(line) if self.shell => vec![line.clone()],
            CommandText::Line(line) => words::split(line)?,
        };
        if words.first().is_none_or(String::is_empty) {
            return Err("the command is empty");
        }
        Ok(words)
    }

    /// The same with `change` applied to every piece of its text.
    pub(super) fn map(&self, change: impl Fn(&str) -> String) -> Self {
        let command = match &self.command {
            CommandText::Line(line) => CommandText::Line(change(line)),
            CommandText::Words(words) => {
                CommandText::Words(words.iter().map(|word| change(word)).collect())
            }
        };
        Self {
            command,
            shell: self.shell,
        }
    }
}

/// A file to fetch into the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Download {
    /// Where from.
    pub url: String,
    /// Where to, in the guest.
    pub path: String,
}

/// Which window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowQuery {
    /// Its title or, with `by_class`, its class.
    pub window_name: String,
    /// Whether the whole name has to be equal; otherwise a part of it.
    #[serde(default)]
    pub strict: bool,
    /// Whether the name is that of a class.
    #[serde(default)]
    pub by_class: bool,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum SetupStep {
    /// Fetches files into the guest.
    Download(Vec<Download>),
    /// Starts a program and goes on.
    Launch(GuestCommand),
    /// Runs a command to its end (`execute` and its other name, `command`).
    Execute {
        /// What to run.
        command: GuestCommand,
        /// The name under which its output is kept for the judgement.
        stdout: Option<String>,
        /// The same for its standard error.
        stderr: Option<String>,
    },
    /// Opens a file with its usual program.
    Open {
        /// The file, in the guest.
        path: String,
    },
    /// Waits.
    Sleep(Duration),
    /// Brings a window to the front.
    ActivateWindow(WindowQuery),
    /// Closes a window.
    CloseWindow(WindowQuery),
    /// Opens pages in the running browser.
    ChromeOpenTabs(Vec<String>),
    /// Closes pages of the running browser.
    ChromeCloseTabs(Vec<String>),
    /// Writes entries into the browser's history.
    UpdateBrowseHistory(Vec<Value>),
    /// Logs in to a service; needs an account that is in no task file.
    Login {
        /// Which service.
        platform: String,
    },
    /// Works on an account of Google Drive that is in no task file.
    GoogleDrive,
    /// A kind that this project does not know.
    Other {
        /// Its name.
        kind: String,
    },
}

impl SetupStep {
    /// The name of its kind in task files.
    pub fn kind(&self) -> &str {
        match self {
            Self::Download(_) => "download",
            Self::Launch(_) => "launch",
            Self::Execute { .. } => "execute",
            Self::Open { .. } => "open",
            Self::Sleep(_) => "sleep",
            Self::ActivateWindow(_) => "activate_window",
            Self::CloseWindow(_) => "close_window",
            Self::ChromeOpenTabs(_) => "chrome_open_tabs",
            Self::ChromeCloseTabs(_) => "chrome_close_tabs",
            Self::UpdateBrowseHistory(_) => "update_browse_history",
            Self::Login { .. } => "login",
            Self::GoogleDrive => "googledrive",
            Self::Other { kind } => kind,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    parameters: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Files {
    files: Vec<Download>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    command: CommandText,
    #[serde(default, deserialize_with = "truth")]
    shell: bool,
    #[serde(default)]
    stdout: Option<String>,
    #[serde(default)]
    stderr: Option<String>,
    /// Repeats the command until something comes out of it.
    #[serde(default)]
    until: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenFile {
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pause {
    seconds: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Open {
    urls_to_open: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Close {
    urls_to_close: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct History {
    history: Vec<Value>,
}

#[derive(Deserialize)]
struct Account {
    platform: String,
}

/// Longest pause that a file may ask for.
const LONGEST_PAUSE: f64 = 600.0;

/// A truth value, also written as text: files have `"true"`.
pub(super) fn truth<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match Value::deserialize(from)? {
        Value::Bool(truth) => Ok(truth),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        other => Err(de::Error::custom(format!("{other} is not true or false"))),
    }
}

fn typed<T: de::DeserializeOwned>(raw: RawStep) -> Result<T, String> {
    serde_json::from_value(raw.parameters).map_err(|error| format!("step {}: {error}", raw.kind))
}

impl TryFrom<RawStep> for SetupStep {
    type Error = String;

    fn try_from(raw: RawStep) -> Result<Self, String> {
        Ok(match raw.kind.as_str() {
            "download" => Self::Download(typed::<Files>(raw)?.files),
            "launch" => {
                let Run { command, shell, .. } = typed(raw)?;
                Self::Launch(GuestCommand { command, shell })
            }
            "execute" | "command" => {
                let kind = format!("{} with until", raw.kind);
                let run: Run = typed(raw)?;
                if !run.until.is_empty() {
                    return Ok(Self::Other { kind });
                }
                Self::Execute {
                    command: GuestCommand {
                        command: run.command,
                        shell: run.shell,
                    },
                    stdout: run.stdout,
                    stderr: run.stderr,
                }
            }
            "open" => Self::Open {
                path: typed::<OpenFile>(raw)?.path,
            },
            "sleep" => pause(typed::<Pause>(raw)?.seconds)?,
            "activate_window" => Self::ActivateWindow(typed(raw)?),
            "close_window" => Self::CloseWindow(typed(raw)?),
            "chrome_open_tabs" => Self::ChromeOpenTabs(typed::<Open>(raw)?.urls_to_open),
            "chrome_close_tabs" => Self::ChromeCloseTabs(typed::<Close>(raw)?.urls_to_close),
            "update_browse_history" => Self::UpdateBrowseHistory(typed::<History>(raw)?.history),
            "login" => Self::Login {
                platform: typed::<Account>(raw)?.platform,
            },
            "googledrive" => Self::GoogleDrive,
            _ => Self::Other { kind: raw.kind },
        })
    }
}

fn pause(seconds: f64) -> Result<SetupStep, String> {
    if (0.0..=LONGEST_PAUSE).contains(&seconds) {
        return Ok(SetupStep::Sleep(Duration::from_secs_f64(seconds)));
    }
    Err(format!(
        "step sleep: {seconds} s is not in 0 to {LONGEST_PAUSE}"
    ))
}

impl<'de> Deserialize<'de> for SetupStep {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        RawStep::deserialize(from)?
            .try_into()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(text: &str) -> Result<SetupStep, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_command_is_words_or_a_line() {
        let SetupStep::Launch(command) =
            step(r#"{"type":"launch","parameters":{"command":"a 'b c'"}}"#).unwrap()
        else {
            panic!("a launch");
        };
        assert_eq!(command.words().unwrap(), ["a", "b c"]);
        let text =
            r#"{"type":"command","parameters":{"command":["a"],"shell":"true","stdout":"o"}}"#;
        let SetupStep::Execute {
            command, stdout, ..
        } = step(text).unwrap()
        else {
            panic!("an execute");
        };
        assert!(command.shell);
        assert_eq!(stdout.as_deref(), Some("o"));
    }

    #[test]
    fn known_kinds_are_strict_and_unknown_ones_keep_their_name() {
        for bad in [
            r#"{"type":"launch","parameters":{"command":["a"],"shel":true}}"#,
            r#"{"type":"launch","parameters":{"command":3}}"#,
            r#"{"type":"sleep","parameters":{"seconds":1e9}}"#,
            r#"{"type":"sleep","parameters":{"seconds":-1}}"#,
            r#"{"type":"open"}"#,
            r#"{"parameters":{}}"#,
        ] {
            assert!(step(bad).is_err(), "{bad}");
        }
        let other = step(r#"{"type":"replay","parameters":{"x":1}}"#).unwrap();
        assert_eq!(other.kind(), "replay");
        // A command that is repeated is not supported, and that is said before a run.
        let text = r#"{"type":"execute","parameters":{"command":["a"],"until":{"returncode":0}}}"#;
        assert_eq!(step(text).unwrap().kind(), "execute with until");
    }

    #[test]
    fn an_empty_command_is_refused() {
        for text in [CommandText::Line("  ".into()), CommandText::Words(vec![])] {
            let command = GuestCommand {
                command: text,
                shell: false,
            };
            assert!(command.words().is_err());
        }
    }
}
