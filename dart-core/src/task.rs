//! Tasks: instruction, initial state and scorer, as data.

use serde::{Deserialize, Serialize};

use crate::TaskId;

/// Which set a task belongs to. Training never sees the others.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// For training.
    #[default]
    Train,
    /// Held out: layouts (seeds) never seen in training.
    Layouts,
    /// Held out: layouts and words never seen in training.
    Words,
}

impl Split {
    /// Every split.
    pub const ALL: [Self; 3] = [Self::Train, Self::Layouts, Self::Words];

    /// The name used in configs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Layouts => "layouts",
            Self::Words => "words",
        }
    }
}

/// One task. Together with a seed it fixes the initial state: the same task and seed are the same
/// task instance. Rollouts of one group share both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its name.
    pub id: TaskId,
    /// What it is an example of; reports are broken down by family.
    pub family: String,
    /// Which set it belongs to.
    #[serde(default)]
    pub split: Split,
    /// Step limit of the environment: after this many steps an episode is truncated.
    pub horizon: u32,
    /// What the task driver needs to set it up and score it.
    #[serde(default)]
    pub params: serde_json::Value,
}
