//! The program `dart-rl`: configuration, wiring and commands. The only place where the parts of
//! DART meet.
//!
//! A backend of your own needs no change here: build a [`World`] out of your factory and tasks and
//! hand it to [`run`].
//!
//! | module | what |
//! |---|---|
//! | [`args`], [`config`], [`fault`] | command line, experiment, mistakes in either |
//! | [`run_dir`], [`report`] | the folder of a run, its summary and table |
//! | [`show`] | a stored trajectory as pictures |
//! | [`archive`] | what is stored: looked at, taken out, brought in |
//! | [`simulated`] | latencies on the simulated clock |

#![forbid(unsafe_code)]
// `println!` panics where nobody reads: see `terminal`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "adb")]
mod adb_apps;
#[cfg(feature = "adb")]
pub mod adb_phone;
pub mod archive;
pub mod args;
pub mod config;
pub mod fault;
pub mod report;
pub mod run_dir;
pub mod show;
pub mod simulated;

mod commands;
mod demonstrations;
mod events;
mod fault_points;
mod held_out;
mod metrics;
mod prefill;
mod progress;
mod ring;
mod session;
mod signals;
mod task_report;
mod terminal;
mod train;
mod warm_start;
mod wiring;

pub use commands::{main, run};
pub use wiring::World;
