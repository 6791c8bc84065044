//! [`PolicyPool`]: several policy workers behind one [`Policy`].
//!
//! Calls go to the serving worker with the fewest calls in flight. New weights reach the workers one
//! at a time (arXiv 2509.23866 §3, per-worker model synchronisation): a worker stops taking calls,
//! finishes those it has, loads, is checked, and serves again, while the others go on. Unlike the
//! released code nothing restarts and no call is cut.

mod route;
mod sync;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use dart_core::{Decision, Policy, PolicyInput, PolicyVersion, Result, WeightsHandle};
use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, timeout_at},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    config::{PoolConfig, check_positive},
    error::RolloutError,
    events::{EventSink, Events, RolloutEvent},
    watchdog::{Waiter, Watchdog},
};

use route::Routes;
use sync::Queue;

/// What routing and sync share.
struct Inner {
    workers: Vec<Arc<dyn Policy>>,
    routes: Routes,
    queue: Queue,
    config: PoolConfig,
    events: Events,
    waiter: OnceLock<Waiter>,
}

impl Inner {
    /// Who waits in the sync, for the watchdog.
    fn waiter(&self) -> Waiter {
        self.waiter.get().cloned().unwrap_or_default()
    }
}

/// Several policy workers behind one [`Policy`].
///
/// # Weights
///
/// [`publish`](Self::publish) returns at once; a task of its own carries the weights to one worker
/// after the other. The newest weights win: if newer ones arrive meanwhile, the task goes on with
/// those. All workers but one go on serving; with a single worker calls wait until it has loaded.
/// A worker whose load fails goes on with its old weights if it still has them
/// ([`Policy`] contract 7), otherwise it gets no more calls until a later load succeeds.
///
/// A decision is never a mix of weights: a worker is loaded only while it has no call in flight.
///
/// # Deadlines
///
/// A call waits for a serving worker and for its decision no longer than
/// [`PoolConfig::act_timeout_ms`] in all.
pub struct PolicyPool {
    inner: Arc<Inner>,
    /// Where the sync runs.
    runtime: Option<Handle>,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl fmt::Debug for PolicyPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyPool")
            .field("workers", &self.inner.workers.len())
            .field("serving", &self.serving())
            .finish_non_exhaustive()
    }
}

impl PolicyPool {
    /// A pool of `workers` with default settings and without an event sink.
    ///
    /// # Panics
    /// If there are no workers.
    pub fn new(workers: Vec<Arc<dyn Policy>>) -> Self {
        assert!(!workers.is_empty(), "a policy pool needs a worker");
        Self::checked(workers, PoolConfig::default(), None)
    }

    /// A pool of `workers`.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the key, also if there are no workers.
    pub fn with(
        workers: Vec<Arc<dyn Policy>>,
        config: PoolConfig,
        sink: Option<Arc<dyn EventSink>>,
    ) -> Result<Self> {
        config.validate()?;
        check_positive(&[("policy workers", workers.len() as u64)])?;
        Ok(Self::checked(workers, config, sink))
    }

    fn checked(
        workers: Vec<Arc<dyn Policy>>,
        config: PoolConfig,
        sink: Option<Arc<dyn EventSink>>,
    ) -> Self {
        let stop = CancellationToken::new();
        Self {
            inner: Arc::new(Inner {
                routes: Routes::new(workers.len()),
                queue: Queue::default(),
                workers,
                config,
                events: Events(sink),
                waiter: OnceLock::new(),
            }),
            runtime: Handle::try_current().ok(),
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Lets `watchdog` see what the weight sync waits for. Only the first call counts.
    pub fn watched_by(&self, watchdog: &Watchdog) {
        self.inner
            .waiter
            .get_or_init(|| watchdog.register("weight sync"));
    }

    /// Hands over new weights and returns at once. Weights older than what the pool has, or is
    /// about to have, are ignored.
    ///
    /// May be called from any thread if the pool was made within a tokio runtime.
    ///
    /// # Panics
    /// If neither the pool was made nor this is called within a runtime: nothing could carry the
    /// weights.
    pub fn publish(&self, weights: WeightsHandle) {
        let version = weights.version;
        if let Err(newest) = self.offer(weights, None) {
            let by = newest;
            let event = RolloutEvent::WeightsSuperseded { version, by };
            self.inner.events.emit(event);
        }
    }

    /// Waits until no weights are on their way: every worker has the newest ones, or failed to load
    /// them. Bounded by the pool's drain and load deadlines, once for each worker.
    pub async fn settled(&self) {
        self.inner.queue.idle().await;
    }

    /// How many workers take calls now.
    pub fn serving(&self) -> usize {
        self.inner.routes.serving()
    }

    /// The version of each worker.
    pub fn versions(&self) -> Vec<PolicyVersion> {
        self.inner.workers.iter().map(|w| w.version()).collect()
    }

    /// Calls that are being answered now, over all workers.
    pub fn in_flight(&self) -> usize {
        self.inner.routes.in_flight()
    }

    /// Queues weights; the newest known version if they are too old.
    fn offer(
        &self,
        weights: WeightsHandle,
        told: Option<oneshot::Sender<Result<()>>>,
    ) -> Result<(), PolicyVersion> {
        let here = self.versions().into_iter().max().unwrap_or_default();
        let version = weights.version;
        let start = self.inner.queue.add(weights, told, here)?;
        let event = RolloutEvent::WeightsPublished { version };
        self.inner.events.emit(event);
        if start {
            let (inner, stop) = (Arc::clone(&self.inner), self.stop.clone());
            let runtime = self.runtime.clone().unwrap_or_else(Handle::current);
            runtime.spawn(async move { stop.run_until_cancelled(sync::run(&inner)).await });
        }
        Ok(())
    }
}

#[async_trait]
impl Policy for PolicyPool {
    async fn act(&self, input: PolicyInput) -> Result<Decision> {
        let limit = Duration::from_millis(self.inner.config.act_timeout_ms);
        let millis = limit.as_millis();
        let deadline = Instant::now() + limit;
        let Ok(ticket) = timeout_at(deadline, self.inner.routes.ticket()).await else {
            return Err(RolloutError::NoWorker { millis }.at("act"));
        };
        let worker = &self.inner.workers[ticket.worker()];
        match timeout_at(deadline, worker.act(input)).await {
            Ok(decision) => decision,
            Err(_) => Err(RolloutError::SlowDecision { millis }.at("act")),
        }
    }

    /// The oldest version that a call may get now.
    fn version(&self) -> PolicyVersion {
        let serving = self.inner.routes.serving_workers();
        let versions = self.versions();
        let oldest = serving.iter().map(|index| versions[*index]).min();
        oldest.or(versions.into_iter().min()).unwrap_or_default()
    }

    /// [`publish`](PolicyPool::publish), then waits until every worker was tried. Weights that are
    /// superseded meanwhile are answered with what becomes of the newer ones.
    ///
    /// # Errors
    /// The first worker's that failed; [`Stale`](dart_core::ErrorKind::Stale) if newer weights are
    /// here or on their way.
    async fn load(&self, weights: &WeightsHandle) -> Result<()> {
        let (told, answer) = oneshot::channel();
        let offered = weights.version;
        self.offer(weights.clone(), Some(told))
            .map_err(|newest| RolloutError::OldWeights { offered, newest }.at("load"))?;
        answer
            .await
            .unwrap_or_else(|_| Err(RolloutError::PoolGone.at("load")))
    }
}
