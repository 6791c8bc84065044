//! One line of `metrics.jsonl` for each learner step.

use std::collections::BTreeMap;

use dart_core::{Batch, CuratorStatus, LearnerReport, Objective, PolicyVersion};
use serde::Serialize;

/// What is recorded of one learner step.
#[derive(Debug, Serialize)]
pub(crate) struct StepRecord<'a> {
    /// Seconds since the start, on the run's clock.
    pub(crate) seconds: f64,
    pub(crate) objective: Objective,
    pub(crate) version: PolicyVersion,
    pub(crate) skipped: bool,
    pub(crate) samples: usize,
    /// Mean and largest staleness of the samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) staleness: Option<Staleness>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) curator: Option<CuratorRecord>,
    #[serde(flatten)]
    pub(crate) metrics: &'a BTreeMap<&'static str, f64>,
}

/// Mean and largest staleness of a batch's samples.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Staleness {
    pub(crate) mean: f64,
    pub(crate) max: u64,
}

impl Staleness {
    /// Of `batch`, consumed by a learner of version `learner`. Pool samples are not counted: they
    /// are old on purpose.
    pub(crate) fn of(batch: &Batch, learner: PolicyVersion) -> Self {
        let rollouts = batch
            .samples
            .iter()
            .filter(|sample| sample.origin == dart_core::SampleOrigin::Rollout);
        let ages: Vec<u64> = rollouts
            .map(|sample| learner.since(sample.version))
            .collect();
        let mean = ages.iter().sum::<u64>() as f64 / ages.len().max(1) as f64;
        Self {
            mean,
            max: ages.iter().copied().max().unwrap_or(0),
        }
    }
}

/// The curator's counters.
#[derive(Debug, Serialize)]
pub(crate) struct CuratorRecord {
    trajectories: u64,
    aborted: u64,
    stale: u64,
    groups_without_spread: u64,
    recent_success: f64,
}

impl From<&CuratorStatus> for CuratorRecord {
    fn from(status: &CuratorStatus) -> Self {
        Self {
            trajectories: status.trajectories,
            aborted: status.aborted,
            stale: status.stale,
            groups_without_spread: status.groups_without_spread,
            recent_success: status.recent_success,
        }
    }
}

impl<'a> StepRecord<'a> {
    pub(crate) fn imitation(seconds: f64, samples: usize, report: &'a LearnerReport) -> Self {
        Self {
            seconds,
            objective: Objective::Imitation,
            version: report.version,
            skipped: report.skipped,
            samples,
            staleness: None,
            curator: None,
            metrics: &report.metrics,
        }
    }
}
