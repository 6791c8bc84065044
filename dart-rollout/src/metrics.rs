//! Counters of a cluster.

use std::sync::Mutex;

use dart_core::{Outcome, Trajectory};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::error::lock;

/// How much a cluster did, up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RolloutMetrics {
    /// Milliseconds since the start, on the runtime's clock.
    pub wall_ms: f64,
    /// Milliseconds spent in policy calls and environment steps, over all environments. Resets,
    /// judgements and idle time are not in it. An episode is counted when it ends.
    pub busy_ms: f64,
    /// `busy_ms` over `wall_ms` times the number of environments, 0 to 1.
    pub utilisation: f64,
    /// Steps, those of aborted episodes included.
    pub steps: u64,
    /// Episodes with an outcome that counts: scored or a policy fault.
    pub episodes: u64,
    /// Episodes aborted.
    pub aborted: u64,
    /// Errors of environments.
    pub environment_errors: u64,
    /// Workers that panicked.
    pub panics: u64,
}

#[derive(Debug)]
pub(crate) struct Recorder {
    start: Instant,
    environments: usize,
    counts: Mutex<RolloutMetrics>,
}

impl Recorder {
    pub(crate) fn new(environments: usize) -> Self {
        Self {
            start: Instant::now(),
            environments,
            counts: Mutex::default(),
        }
    }

    pub(crate) fn episode(&self, trajectory: &Trajectory) {
        let mut counts = lock(&self.counts);
        counts.steps += trajectory.steps.len() as u64;
        counts.busy_ms += trajectory
            .steps
            .iter()
            .map(|step| step.decide_ms + step.act_ms)
            .sum::<f64>();
        match trajectory.outcome {
            Outcome::Aborted => counts.aborted += 1,
            Outcome::Scored { .. } | Outcome::PolicyFault => counts.episodes += 1,
        }
    }

    pub(crate) fn environment_error(&self) {
        lock(&self.counts).environment_errors += 1;
    }

    pub(crate) fn panic(&self) {
        lock(&self.counts).panics += 1;
    }

    pub(crate) fn lost_episode(&self) {
        lock(&self.counts).aborted += 1;
    }

    pub(crate) fn read(&self) -> RolloutMetrics {
        let mut metrics = *lock(&self.counts);
        metrics.wall_ms = self.start.elapsed().as_secs_f64() * 1e3;
        let available = metrics.wall_ms * self.environments as f64;
        if available > 0.0 {
            metrics.utilisation = (metrics.busy_ms / available).min(1.0);
        }
        metrics
    }
}
