//! OSWorld's tasks on desktops: the task files, how they are set up and how they are judged.
//!
//! OSWorld (arXiv 2404.07972, <https://github.com/xlang-ai/OSWorld>) is a set of tasks about native
//! programs. The agent sees and operates the desktop through VNC; set-up and judgement go through a
//! [`Guest`]: OSWorld's server in a virtual machine, or programs on an own desktop of this machine.
//! Deviations from upstream: input is not sent as Python; an infrastructure fault is an error and
//! never a score; what a task needs and is not there is named before a run ([`Support`]).

mod chrome;
mod config;
mod device;
mod driver;
mod episode;
mod error;
mod external;
mod factory;
mod getter;
mod guest;
mod http;
mod local;
mod metrics;
mod placeholder;
mod pyautogui;
mod seats;
mod server;
mod state;
mod step;
mod support;
mod task;
mod words;

pub use config::{
    EvaluatorConfig, GuestConfig, HostExec, LocalConfig, OsworldConfig, ServerConfig,
};
pub use device::OsworldDevice;
pub use driver::OsworldDriver;
pub use factory::OsworldFactory;
pub use getter::{FileRef, Getter, Source};
pub use guest::{Guest, Output, Query};
pub use server::ServerGuest;
pub use step::{CommandText, Download, GuestCommand, SetupStep, WindowQuery};
pub use support::{Capabilities, Support};
pub use task::{Check, Conjunction, Evaluator, OsworldTask, TaskFile};
