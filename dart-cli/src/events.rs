//! The event log of a run: one JSON line for each thing that happened, with its time on the run's clock.
//!
//! On the simulated clock that is everything. On the real clock it is what happens to the ring as a
//! whole: a run makes a thousand episodes a second, each of which is in the store anyway.

use std::sync::{Arc, Mutex, PoisonError};

use dart_curation::{CurationEvent, CurationEventSink};
use dart_rollout::{EventSink, RolloutEvent};
use serde::Serialize;
use tokio::time::Instant;

use crate::run_dir::JsonLines;

/// Writes events as they happen. Cloning shares the file.
#[derive(Clone)]
pub(crate) struct EventFile {
    origin: Instant,
    lines: Arc<Mutex<JsonLines>>,
    /// Whether what happens to single episodes is logged too.
    episodes: bool,
}

#[derive(Serialize)]
struct Line<'a, E> {
    at_ms: u64,
    #[serde(flatten)]
    event: &'a E,
}

/// What the run itself tells the log.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum RunEvent {
    LearnerStep {
        version: u64,
        loss: f64,
        skipped: bool,
    },
    Checkpoint {
        version: u64,
    },
    Resumed {
        version: u64,
        taken_in: usize,
        left: usize,
    },
}

impl EventFile {
    /// Times count from now.
    pub(crate) fn new(lines: JsonLines, episodes: bool) -> Self {
        Self {
            origin: Instant::now(),
            lines: Arc::new(Mutex::new(lines)),
            episodes,
        }
    }

    pub(crate) fn push(&self, event: &RunEvent) {
        self.write(Instant::now(), event);
    }

    /// The sink of the data manager.
    pub(crate) fn curation(&self) -> CurationEventSink {
        let file = self.clone();
        Arc::new(move |event: &CurationEvent| {
            if file.episodes
                || matches!(
                    event,
                    CurationEvent::Batch { .. } | CurationEvent::Commit { .. }
                )
            {
                file.write(Instant::now(), event);
            }
        })
    }

    fn write(&self, at: Instant, event: &impl Serialize) {
        let at_ms = at.saturating_duration_since(self.origin).as_millis() as u64;
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(&Line { at_ms, event });
    }
}

impl EventSink for EventFile {
    fn record(&self, at: Instant, event: RolloutEvent) {
        let single = matches!(
            event,
            RolloutEvent::EpisodeStarted { .. }
                | RolloutEvent::EpisodeEnded { error: None, .. }
                | RolloutEvent::EvaluationEpisode { .. }
        );
        if self.episodes || !single {
            self.write(at, &event);
        }
    }
}
