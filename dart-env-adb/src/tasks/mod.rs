//! Tasks on Android devices as data: a file says how a task is set up, what solves it and what is
//! cleaned up; a seed fixes its parameters.
//!
//! In the spirit of AndroidWorld (templates with parameters, judged by the device's state) and
//! AndroidEnv (steps and rewards as data). Commands run on the device alone, never on this machine;
//! what is put into them is quoted.

mod driver;
mod factory;
mod format;
mod values;

pub use driver::AndroidDriver;
pub use factory::{AndroidConfig, AndroidFactory};
pub use format::{AndroidTask, Check, Expect, Parameter, Step, load, parse};
