//! OSWorld's tasks on desktops: the task files, how they are set up and how they are judged.

mod error;
mod getter;
mod step;
mod task;
mod words;

pub use getter::{FileRef, Getter, Source};
pub use step::{CommandText, Download, GuestCommand, SetupStep, WindowQuery};
pub use task::{Check, Conjunction, Evaluator, OsworldTask, TaskFile};
