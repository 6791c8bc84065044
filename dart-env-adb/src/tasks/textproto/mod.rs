//! AndroidEnv's task files: protocol buffers in text form.
//!
//! Facts about the fields are those of `task.proto` and `adb.proto` of AndroidEnv, current and older
//! names; the text form is that of protobuf.dev's specification.

mod convert;
mod message;
mod parse;
mod requests;
mod tokens;

use dart_core::Result;

use super::format::AndroidTask;

/// Reads one task of AndroidEnv.
///
/// | AndroidEnv | here |
/// |---|---|
/// | `id`, `description` (else `name`) | id, instruction |
/// | `setup_steps`, then `reset_steps` | `setup`, before every episode |
/// | `success_condition` of a step | [`Step::Attempt`](super::Step::Attempt), [`Step::WaitFor`](super::Step::WaitFor) |
/// | `expected_app_screen.activity` | `activity` |
/// | `max_episode_steps`, `max_episode_sec` | `horizon` (100 if there is none), `max_seconds` |
/// | `log_parsing_config` | [`LogReward`](super::LogReward), with `full` 1 |
/// | `install_apk` with `check_install` | a check that the app is installed: install it beforehand |
///
/// Extras are read over: agents here see pictures. Deviation from AndroidEnv: setting up is part of
/// every episode.
///
/// # Errors
/// [`Config`](dart_core::ErrorKind::Config) with the line, for a text that is none, is too large or
/// too deep, and for each field that cannot be done here, by its whole name.
pub fn parse_textproto(text: &str) -> Result<AndroidTask> {
    let task = parse::parse(text).and_then(|message| convert::task(&message));
    task.map_err(|error| error.at("load tasks"))
}

#[cfg(test)]
mod tests;
