//! How new weights reach the workers, one at a time.

use std::{
    collections::BTreeSet,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use dart_core::{Error, ErrorKind, Policy, PolicyVersion, Result, WeightsHandle};
use futures::FutureExt;
use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};

use super::{Inner, route::Status};
use crate::{
    error::{RolloutError, lock, panic_message},
    events::RolloutEvent,
};

type Told = Vec<oneshot::Sender<Result<()>>>;

/// Weights on their way and those who wait for them.
struct Job {
    weights: WeightsHandle,
    told: Told,
}

#[derive(Default)]
struct State {
    /// Not begun yet.
    pending: Option<Job>,
    /// On its way.
    current: Option<PolicyVersion>,
    /// Whether the task runs.
    active: bool,
}

/// The queue of weights: one place, since the newest win.
pub(super) struct Queue {
    state: Mutex<State>,
    idle: watch::Sender<bool>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            idle: watch::Sender::new(true),
        }
    }
}

impl Queue {
    /// Queues weights unless newer ones are `here` already or on their way; then gives the newest
    /// version. `true` if the task has to be started.
    pub(super) fn add(
        &self,
        weights: WeightsHandle,
        told: Option<oneshot::Sender<Result<()>>>,
        here: PolicyVersion,
    ) -> Result<bool, PolicyVersion> {
        let mut state = lock(&self.state);
        let pending = state.pending.as_ref().map(|job| job.weights.version);
        let newest = [Some(here), state.current, pending].into_iter().flatten();
        let newest = newest.max().unwrap_or_default();
        if weights.version < newest {
            return Err(newest);
        }
        let mut waiting = state.pending.take().map_or_else(Vec::new, |job| job.told);
        waiting.extend(told);
        state.pending = Some(Job {
            weights,
            told: waiting,
        });
        let start = !std::mem::replace(&mut state.active, true);
        self.idle.send_replace(false);
        Ok(start)
    }

    /// The next weights to carry. Without any the task is over.
    fn take(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        let job = state.pending.take();
        state.current = job.as_ref().map(|job| job.weights.version);
        if job.is_none() {
            state.active = false;
            self.idle.send_replace(true);
        }
        job
    }

    /// Passes those who wait on to the newer weights, if there are any; gives their version.
    fn supersede(&self, told: &mut Told) -> Option<PolicyVersion> {
        let mut state = lock(&self.state);
        let pending = state.pending.as_mut()?;
        pending.told.append(told);
        Some(pending.weights.version)
    }

    pub(super) async fn idle(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.idle.subscribe().wait_for(|idle| *idle).await;
    }
}

/// Carries weights until there are none left.
pub(super) async fn run(inner: &Inner) {
    while let Some(job) = inner.queue.take() {
        carry(inner, job).await;
    }
}

/// Brings one set of weights to every worker, or to as many as there is time for before newer ones.
async fn carry(inner: &Inner, job: Job) {
    let Job { weights, mut told } = job;
    let version = weights.version;
    let mut tried = BTreeSet::new();
    let mut failure = None;
    while let Some(policy) = next_worker(inner, &tried) {
        if let Some(by) = inner.queue.supersede(&mut told) {
            let event = RolloutEvent::WeightsSuperseded { version, by };
            return inner.events.emit(event);
        }
        tried.insert(policy);
        if let Err(error) = sync_worker(inner, policy, &weights).await {
            let serving = inner.routes.status(policy) == Status::Serving;
            tracing::warn!(policy, %version, serving, %error, "weights were not loaded");
            inner.events.emit(RolloutEvent::WeightsFailed {
                policy,
                version,
                error: error.to_string(),
                serving,
            });
            failure = Some(failure.unwrap_or(error));
        } else {
            let event = RolloutEvent::WeightsLoaded { policy, version };
            inner.events.emit(event);
        }
    }
    answer(told, failure);
}

/// The worker that needs weights most: one that is out, else the one with the oldest weights. So a
/// stream of new weights reaches all of them in turn, and a lost worker comes back first.
fn next_worker(inner: &Inner, tried: &BTreeSet<usize>) -> Option<usize> {
    (0..inner.workers.len())
        .filter(|worker| !tried.contains(worker))
        .min_by_key(|worker| {
            let healthy = inner.routes.status(*worker) != Status::Out;
            (healthy, inner.workers[*worker].version(), *worker)
        })
}

async fn sync_worker(inner: &Inner, policy: usize, weights: &WeightsHandle) -> Result<()> {
    let (before, in_flight) = inner.routes.set(policy, Status::Draining);
    let event = RolloutEvent::PolicyDraining { policy, in_flight };
    inner.events.emit(event);
    let waiter = inner.waiter();
    let waiting = waiter.wait("the last call of a policy worker");
    let drain = Duration::from_millis(inner.config.drain_timeout_ms);
    if timeout(drain, inner.routes.empty(policy)).await.is_err() {
        inner.routes.set(policy, before);
        let millis = drain.as_millis();
        return Err(RolloutError::SlowDrain { millis }.at("publish"));
    }
    drop(waiting);
    let _waiting = waiter.wait("policy.load");
    let worker = &inner.workers[policy];
    let old = worker.version();
    let limit = Duration::from_millis(inner.config.load_timeout_ms);
    let loaded = load(worker, weights, limit).await;
    let after = match &loaded {
        Ok(()) => Status::Serving,
        Err(failure) if failure.intact && worker.version() == old => before,
        Err(_) => Status::Out,
    };
    inner.routes.set(policy, after);
    loaded.map_err(|failure| failure.error)
}

/// A failed load; `intact` if the worker can be believed to have its old weights still.
struct LoadFailure {
    error: Error,
    intact: bool,
}

impl LoadFailure {
    /// The worker vanished, stopped answering or panicked: it may have anything.
    fn broken(error: RolloutError) -> Self {
        Self {
            error: error.at("publish"),
            intact: false,
        }
    }

    /// The worker refused the weights (contract 7 of [`Policy`]).
    fn refused(error: Error) -> Self {
        let gone = [ErrorKind::Timeout, ErrorKind::Disconnected];
        Self {
            intact: !gone.contains(&error.kind()),
            error,
        }
    }
}

async fn load(
    worker: &Arc<dyn Policy>,
    weights: &WeightsHandle,
    limit: Duration,
) -> Result<(), LoadFailure> {
    let loading = AssertUnwindSafe(worker.load(weights)).catch_unwind();
    match timeout(limit, loading).await {
        Err(_) => {
            let millis = limit.as_millis();
            return Err(LoadFailure::broken(RolloutError::SlowLoad { millis }));
        }
        Ok(Err(payload)) => {
            let message = panic_message(&*payload);
            return Err(LoadFailure::broken(RolloutError::LoadPanic { message }));
        }
        Ok(Ok(loaded)) => loaded.map_err(LoadFailure::refused)?,
    }
    let (found, wanted) = (worker.version(), weights.version);
    if found == wanted {
        return Ok(());
    }
    Err(LoadFailure::broken(RolloutError::WrongVersion {
        found,
        wanted,
    }))
}

/// Tells everybody who waits. An [`Error`] cannot be cloned, so each but the first gets its text.
fn answer(told: Told, failure: Option<Error>) {
    let Some(error) = failure else {
        for waiting in told {
            // A receiver that is gone no longer wants to know.
            let _ = waiting.send(Ok(()));
        }
        return;
    };
    let kind = error.kind();
    let text = error.to_string();
    let mut first = Some(error);
    for waiting in told {
        let error = first
            .take()
            .unwrap_or_else(|| Error::new(kind, crate::error::ORIGIN, "load", text.clone()));
        let _ = waiting.send(Err(error));
    }
}
