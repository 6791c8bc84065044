//! [`State`]: what a getter found, for metrics and external evaluators.

use serde_json::Value;

/// A file taken from the guest or from the reference files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// A plain file name.
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

/// What a getter found.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// There is no such thing.
    Missing,
    /// A value: text, a list, rules.
    Value(Value),
    /// One file.
    File(File),
    /// Several files, those that are there.
    Files(Vec<Option<File>>),
    /// A getter that is left to the external evaluator, as it stands in the task file.
    Left(Value),
}

impl State {
    /// As text: a string, or a file's content with line ends as Python reads them.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Value(Value::String(text)) => Some(text.clone()),
            Self::File(file) => {
                let text = String::from_utf8_lossy(&file.content);
                Some(text.replace("\r\n", "\n").replace('\r', "\n"))
            }
            _ => None,
        }
    }

    /// As JSON: a value, or a file's content.
    pub(super) fn json(&self) -> Option<Value> {
        match self {
            Self::Value(value) => Some(value.clone()),
            Self::File(file) => serde_json::from_slice(&file.content).ok(),
            _ => None,
        }
    }
}
