//! What a person watches meanwhile: a bar on a terminal, a line now and then elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal::tell;

/// Pause between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Shows how far a phase of the run is.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    name: &'static str,
    last: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(name: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            let style = ProgressStyle::with_template("{prefix:>12} [{bar:30}] {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(name);
            bar
        });
        Self {
            bar,
            name,
            last: None,
        }
    }

    /// `done` is a share, 0 to 1.
    pub(crate) fn show(&mut self, done: f64, message: impl FnOnce() -> String) {
        let permille = (done.clamp(0.0, 1.0) * 1000.0) as u64;
        if let Some(bar) = &self.bar {
            bar.set_position(permille);
            bar.set_message(message());
        } else if self.last.is_none_or(|last| last.elapsed() >= LINE_EVERY) {
            self.last = Some(Instant::now());
            tell!("{} {}%: {}", self.name, permille / 10, message());
        }
    }

    /// Ends the phase with a line that stays.
    pub(crate) fn finish(self, message: &str) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        tell!("{}: {message}", self.name);
    }
}
