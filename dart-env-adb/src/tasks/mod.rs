//! Tasks on Android devices as data: a file says how a task is set up, what solves it and what is
//! cleaned up; a seed fixes its parameters.
//!
//! In the spirit of AndroidWorld (templates with parameters, judged by the device's state) and
//! AndroidEnv (steps and rewards as data; its own files can be read as well, [`parse_textproto`]).
//! Commands run on the device alone, never on this machine; what is put into them is quoted.

mod checks;
mod driver;
mod expert;
mod factory;
mod format;
mod load;
mod log_reward;
mod snapshot;
mod steps;
mod textproto;
mod values;

pub use driver::AndroidDriver;
pub use factory::{AndroidConfig, AndroidFactory, check_experts};
pub use format::{AndroidTask, Check, Condition, Expect, Move, Parameter, Step};
pub use load::{load, parse};
pub use log_reward::{LogEvent, LogReward};
pub use snapshot::SnapshotHook;
pub use textproto::parse_textproto;
