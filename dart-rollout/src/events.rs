//! What happened: the run's event log is made of these.

use std::sync::{Arc, Mutex};

use dart_core::{ErrorKind, GroupId, Outcome, PolicyVersion, StopReason, TaskId, TrajectoryId};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::error::lock;

/// Who has been waiting for what, and how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitReport {
    /// Who waits, such as `rollout worker 3`.
    pub who: String,
    /// What it waits for, such as `policy.act`.
    pub what: String,
    /// How long, in milliseconds.
    pub for_ms: u64,
}

/// One thing that happened in the cluster or in the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum RolloutEvent {
    /// A slot of the cluster got a fresh environment.
    EnvironmentCreated { worker: usize, environment: String },
    /// An environment failed, or could not be made.
    EnvironmentFailed {
        worker: usize,
        kind: ErrorKind,
        error: String,
        errors_in_a_row: u32,
    },
    /// An environment was closed; `clean` unless closing failed or took too long.
    EnvironmentClosed { worker: usize, clean: bool },
    /// A slot stays empty for a while: too many errors in a row.
    EnvironmentQuarantined { worker: usize, for_ms: u64 },
    /// An episode begins.
    EpisodeStarted {
        worker: usize,
        trajectory: TrajectoryId,
        group: GroupId,
        task: TaskId,
        seed: u64,
    },
    /// An episode is over and about to be handed to the curator.
    EpisodeEnded {
        worker: usize,
        trajectory: TrajectoryId,
        outcome: Outcome,
        stop: StopReason,
        steps: usize,
        oldest_version: Option<PolicyVersion>,
        error: Option<String>,
    },
    /// A worker of the cluster panicked; it is started again.
    WorkerPanicked { worker: usize, message: String },
    /// A request whose worker was lost came back as aborted.
    RolloutRecovered { trajectory: TrajectoryId },
    /// The curator did not take a trajectory.
    IngestFailed {
        trajectory: TrajectoryId,
        error: String,
        attempt: u32,
    },
    /// The cluster ended; `drained` if every worker did by itself.
    ClusterStopped {
        drained: bool,
        error: Option<String>,
    },
    /// Weights were handed to the pool.
    WeightsPublished { version: PolicyVersion },
    /// Weights were given up for newer ones before every worker had them.
    WeightsSuperseded {
        version: PolicyVersion,
        by: PolicyVersion,
    },
    /// A policy worker takes no new calls and finishes those it has.
    PolicyDraining { policy: usize, in_flight: usize },
    /// A policy worker serves new weights.
    WeightsLoaded {
        policy: usize,
        version: PolicyVersion,
    },
    /// A policy worker did not get the weights; `serving` tells whether it goes on with its old ones.
    WeightsFailed {
        policy: usize,
        version: PolicyVersion,
        error: String,
        serving: bool,
    },
    /// Somebody has waited too long. Lists everybody's waits, the longest first.
    Stalled { waits: Vec<WaitReport> },
    /// One episode of an evaluation is over; `attempt` counts from 1.
    EvaluationEpisode {
        task: TaskId,
        seed: u64,
        outcome: Outcome,
        attempt: u32,
    },
}

/// Takes events. Called from inside async code: it must be quick and must not block.
pub trait EventSink: Send + Sync {
    /// Takes one event; `at` is a time of the runtime's clock, simulated in simulations.
    fn record(&self, at: Instant, event: RolloutEvent);
}

impl<F: Fn(Instant, RolloutEvent) + Send + Sync> EventSink for F {
    fn record(&self, at: Instant, event: RolloutEvent) {
        self(at, event);
    }
}

/// Keeps all events in memory, for tests and short runs.
#[derive(Debug)]
pub struct EventLog {
    origin: Instant,
    entries: Mutex<Vec<(u64, RolloutEvent)>>,
}

impl EventLog {
    /// An empty log; times count from now.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            origin: Instant::now(),
            entries: Mutex::new(Vec::new()),
        })
    }

    /// All events so far, each with milliseconds since the log began.
    pub fn entries(&self) -> Vec<(u64, RolloutEvent)> {
        lock(&self.entries).clone()
    }
}

impl EventSink for EventLog {
    fn record(&self, at: Instant, event: RolloutEvent) {
        let at_ms = at.saturating_duration_since(self.origin).as_millis() as u64;
        lock(&self.entries).push((at_ms, event));
    }
}

/// A sink that may be absent.
#[derive(Clone, Default)]
pub(crate) struct Events(pub(crate) Option<Arc<dyn EventSink>>);

impl Events {
    pub(crate) fn emit(&self, event: RolloutEvent) {
        if let Some(sink) = &self.0 {
            sink.record(Instant::now(), event);
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "Events"
        } else {
            "Events(none)"
        })
    }
}
