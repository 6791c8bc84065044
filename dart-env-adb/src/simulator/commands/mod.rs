//! The phone's commands.

mod apps;
mod files;
mod input;
mod screen;
mod system;

use std::sync::Arc;

use dart_core::Device;

use super::{
    files::File,
    phone::Phone,
    shell::{self, Simple, Target, When},
};

/// What a command has said and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) stdout: Vec<u8>,
    /// More of standard output, shared because it is large.
    pub(crate) picture: Option<Arc<Vec<u8>>>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) code: u8,
}

impl Output {
    /// Success with these words.
    pub(crate) fn say(words: impl Into<Vec<u8>>) -> Self {
        Self {
            stdout: words.into(),
            ..Self::default()
        }
    }

    /// Success with a picture.
    pub(crate) fn show(picture: Arc<Vec<u8>>) -> Self {
        Self {
            picture: Some(picture),
            ..Self::default()
        }
    }

    /// All of standard output in one piece.
    pub(crate) fn joined(mut self) -> Self {
        if let Some(picture) = self.picture.take() {
            self.stdout.extend_from_slice(&picture);
        }
        self
    }

    /// Failure with these words.
    pub(crate) fn fail(code: u8, words: impl AsRef<str>) -> Self {
        Self {
            stderr: format!("{}\n", words.as_ref()).into(),
            code,
            ..Self::default()
        }
    }
}

/// What becomes of the line after a command.
enum Next {
    Go(Output),
    Exit(Output),
}

/// Runs a command line.
pub(crate) async fn run<D: Device>(phone: &Phone<D>, line: &str) -> Output {
    phone.state().trace(line);
    let mut commands = match shell::parse(line) {
        Ok(commands) => commands,
        Err(reason) => return Output::fail(1, format!("/system/bin/sh: {reason}")),
    };
    merge_taps(&mut commands);
    let mut all = Output::default();
    for command in &commands {
        let runs = match command.when {
            When::Always => true,
            When::And => all.code == 0,
            When::Or => all.code != 0,
        };
        if !runs {
            continue;
        }
        let (output, exits) = match one(phone, &command.words).await {
            Next::Go(output) => (output, false),
            Next::Exit(output) => (output, true),
        };
        add(phone, &mut all, &command.target, output);
        if exits {
            break;
        }
    }
    all
}

/// Two taps in a row at one place are one double tap.
fn merge_taps(commands: &mut Vec<Simple>) {
    let is_tap = |words: &[String]| {
        words.first().is_some_and(|w| w == "input") && words.get(1).is_some_and(|w| w == "tap")
    };
    let mut at = 1;
    while at < commands.len() {
        if is_tap(&commands[at].words) && commands[at].words == commands[at - 1].words {
            commands.remove(at);
            commands[at - 1].words[1] = "double-tap".into();
        }
        at += 1;
    }
}

/// Adds what a command said to what is said already, or to a file.
fn add<D>(phone: &Phone<D>, all: &mut Output, target: &Target, output: Output) {
    // A lone picture is passed on as it is, anything else is put together.
    let lone = *target == Target::Plain && all.stdout.is_empty() && all.picture.is_none();
    if lone && output.picture.is_some() && output.stdout.is_empty() {
        all.picture = output.picture;
        all.code = output.code;
        return;
    }
    let output = output.joined();
    *all = std::mem::take(all).joined();
    all.code = output.code;
    match target {
        Target::Plain => {
            all.stdout.extend(output.stdout);
            all.stderr.extend(output.stderr);
        }
        Target::Joined => {
            all.stdout.extend(output.stdout);
            all.stdout.extend(output.stderr);
        }
        Target::ToStderr => {
            all.stderr.extend(output.stdout);
            all.stderr.extend(output.stderr);
        }
        Target::File(path) | Target::Append(path) => {
            all.stderr.extend(output.stderr);
            let mut state = phone.state();
            let old = state.kept.files.get(path).cloned().unwrap_or_default();
            let mut content = if matches!(target, Target::Append(_)) {
                old.content.to_vec()
            } else {
                Vec::new()
            };
            content.extend(output.stdout);
            let (content, mode) = (content.into(), 0o100_644);
            if let Err(reason) = state.kept.files.put(
                path,
                File {
                    content,
                    mode,
                    time: 0,
                },
            ) {
                all.stderr.extend(reason.bytes());
                all.code = 1;
            }
        }
    }
}

async fn one<D: Device>(phone: &Phone<D>, words: &[String]) -> Next {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((&name, arguments)) = words.split_first() else {
        return Next::Go(Output::default());
    };
    if name == "exit" {
        let code = arguments.first().and_then(|code| code.parse().ok());
        let code = code.unwrap_or(0);
        return Next::Exit(Output {
            code,
            ..Output::default()
        });
    }
    let output = match name {
        "screencap" => screen::screencap(phone, arguments).await,
        "uiautomator" => screen::uiautomator(phone, arguments).await,
        "wm" => screen::wm(phone, arguments).await,
        "dumpsys" => system::dumpsys(phone, arguments).await,
        "input" => input::input(phone, arguments).await,
        "am" => apps::am(phone, arguments).await,
        "monkey" => apps::monkey(phone, arguments).await,
        "pm" => apps::pm(phone, arguments).await,
        "ime" => apps::ime(phone, arguments),
        "cmd" => match arguments {
            ["package", rest @ ..] => apps::pm(phone, rest).await,
            _ => Output::fail(20, "cmd: Can't find service"),
        },
        _ => system::basic(phone, name, arguments)
            .or_else(|| files::command(phone, name, arguments))
            .unwrap_or_else(|| {
                let words = format!("/system/bin/sh: {name}: inaccessible or not found");
                Output::fail(127, words)
            }),
    };
    Next::Go(output)
}
