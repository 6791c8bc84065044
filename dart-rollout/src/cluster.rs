//! [`RolloutCluster`]: many environments between a curator and a policy.
//!
//! Each slot is a task of its own: take a request, run the episode, hand the trajectory over. No slot
//! waits for another (rollout-wise sampling, arXiv 2509.23866 §3). A supervisor owns the tasks,
//! starts a panicked one again, and gives back what a lost one owed.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU32, atomic::Ordering},
    time::Duration,
};

use dart_core::{Curator, EnvironmentFactory, Error, Policy, Result};
use tokio::{
    sync::watch,
    task::{Id, JoinError, JoinHandle, JoinSet},
    time::{Instant, timeout_at},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    config::RolloutConfig,
    error::panic_message,
    events::{EventSink, Events, RolloutEvent},
    metrics::{Recorder, RolloutMetrics},
    watchdog::Watchdog,
    worker::{Shared, Slot, Worker},
};

/// How a cluster ended.
#[derive(Debug)]
pub struct RolloutReport {
    /// What it did.
    pub metrics: RolloutMetrics,
    /// Whether every worker ended by itself. Otherwise some were cut off at the deadline; their
    /// requests came back as aborted.
    pub drained: bool,
    /// What made it stop early, if something did: a wrong setting, a curator that takes or gives
    /// nothing.
    pub error: Option<Error>,
}

/// Many environments between a curator and a policy.
///
/// # Invariants
///
/// - Every request comes back exactly once (I3), also if its worker panics or is cut off.
/// - An environment runs one episode at a time; one that panics or fails is replaced after a pause,
///   and its slot goes on.
/// - Nothing is queued here: a worker asks for a request when it can begin it. The curator decides
///   how many are in flight.
///
/// Dropping the cluster shuts it down in the background.
#[derive(Debug)]
pub struct RolloutCluster {
    shared: Arc<Shared>,
    supervisor: JoinHandle<RolloutReport>,
    finished: watch::Receiver<bool>,
    _stop_on_drop: DropGuard,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("environments", &self.config.environments)
            .finish_non_exhaustive()
    }
}

impl RolloutCluster {
    /// Starts the workers; they begin at once. Call it from within a tokio runtime.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the key.
    pub fn start(
        config: RolloutConfig,
        factory: Arc<dyn EnvironmentFactory>,
        policy: Arc<dyn Policy>,
        curator: Arc<dyn Curator>,
        sink: Option<Arc<dyn EventSink>>,
    ) -> Result<Self> {
        config.validate()?;
        let stopping = CancellationToken::new();
        let shared = Arc::new(Shared {
            factory,
            policy,
            curator,
            events: Events(sink),
            metrics: Recorder::new(config.environments),
            watchdog: Watchdog::new(Duration::from_millis(config.stall_timeout_ms)),
            lost: Arc::default(),
            stopping: stopping.clone(),
            cancel: CancellationToken::new(),
            config,
        });
        let (finish, finished) = watch::channel(false);
        let supervisor = Supervisor::new(Arc::clone(&shared));
        let supervisor = tokio::spawn(async move {
            let report = supervisor.run().await;
            finish.send_replace(true);
            report
        });
        Ok(Self {
            shared,
            supervisor,
            finished,
            _stop_on_drop: stopping.drop_guard(),
        })
    }

    /// Counters up to now.
    pub fn metrics(&self) -> RolloutMetrics {
        self.shared.metrics.read()
    }

    /// Who waits for what; others (the trainer's loop, say) may register with it too.
    pub fn watchdog(&self) -> &Watchdog {
        &self.shared.watchdog
    }

    /// Waits until all workers have ended: the curator was closed, or something failed for good.
    /// [`shutdown`](Self::shutdown) then tells which.
    pub async fn finished(&self) {
        // An error means that the supervisor is gone, which is an end too.
        let _ = self.finished.clone().wait_for(|finished| *finished).await;
    }

    /// Stops: no new requests; running episodes have half of
    /// [`shutdown_timeout_ms`](RolloutConfig::shutdown_timeout_ms) to end, then they are cancelled; at
    /// 80 % of it workers that still hang are cut off, and what they owed comes back as aborted.
    pub async fn shutdown(self) -> RolloutReport {
        self.shared.stopping.cancel();
        let mut supervisor = self.supervisor;
        let limit = Duration::from_millis(self.shared.config.shutdown_timeout_ms);
        let error = match tokio::time::timeout(limit, &mut supervisor).await {
            Ok(Ok(report)) => return report,
            Ok(Err(lost)) => lost.to_string(),
            Err(_) => {
                supervisor.abort();
                "the supervisor missed the shutdown deadline".to_owned()
            }
        };
        RolloutReport {
            metrics: self.shared.metrics.read(),
            drained: false,
            error: Some(Error::new(
                dart_core::ErrorKind::Internal,
                crate::error::ORIGIN,
                "shutdown",
                error,
            )),
        }
    }
}

/// Owns the workers.
struct Supervisor {
    shared: Arc<Shared>,
    workers: JoinSet<Result<()>>,
    slots: BTreeMap<usize, Arc<Slot>>,
    running: Vec<(Id, usize)>,
    error: Option<Error>,
}

impl Supervisor {
    fn new(shared: Arc<Shared>) -> Self {
        let slots = (0..shared.config.environments).map(|index| {
            let errors = AtomicU32::new(0);
            (index, Arc::new(Slot { index, errors }))
        });
        Self {
            slots: slots.collect(),
            shared,
            workers: JoinSet::new(),
            running: Vec::new(),
            error: None,
        }
    }

    async fn run(mut self) -> RolloutReport {
        let watching = CancellationToken::new();
        let watchdog = self.shared.watchdog.clone();
        tokio::spawn(watchdog.run(self.shared.events.clone(), watching.clone()));
        let _watching = watching.drop_guard();
        for index in 0..self.shared.config.environments {
            self.spawn(index);
        }
        let stopping = self.shared.stopping.clone();
        stopping.run_until_cancelled(self.join_all(true)).await;
        let drained = self.drain().await;
        let error = self.error.as_ref().map(ToString::to_string);
        let event = RolloutEvent::ClusterStopped { drained, error };
        self.shared.events.emit(event);
        RolloutReport {
            metrics: self.shared.metrics.read(),
            drained,
            error: self.error,
        }
    }

    fn spawn(&mut self, index: usize) {
        let worker = Worker::new(&self.shared, &self.slots[&index]);
        let handle = self.workers.spawn(worker.run());
        self.running.push((handle.id(), index));
    }

    /// Waits for all workers; starts panicked ones again if `restart`.
    ///
    /// # Cancel safety
    /// Safe, but for what a worker owed that panicked in this moment; `drain` gives it back.
    async fn join_all(&mut self, restart: bool) {
        while let Some(joined) = self.workers.join_next_with_id().await {
            match joined {
                Ok((id, result)) => {
                    self.forget(id);
                    if let Err(error) = result {
                        self.fail(error);
                    }
                }
                Err(lost) => self.recover(lost, restart).await,
            }
        }
    }

    fn forget(&mut self, id: Id) -> Option<usize> {
        let at = self.running.iter().position(|(known, _)| *known == id)?;
        Some(self.running.swap_remove(at).1)
    }

    /// The first error stops the cluster.
    fn fail(&mut self, error: Error) {
        tracing::error!(%error, "the rollout cluster stops");
        self.error.get_or_insert(error);
        self.shared.stopping.cancel();
    }

    async fn recover(&mut self, lost: JoinError, restart: bool) {
        let Some(worker) = self.forget(lost.id()) else {
            return;
        };
        if lost.is_panic() {
            let message = panic_message(&*lost.into_panic());
            tracing::error!(worker, message, "a rollout worker panicked");
            self.shared.metrics.panic();
            self.slots[&worker].errors.fetch_add(1, Ordering::Relaxed);
            let event = RolloutEvent::WorkerPanicked { worker, message };
            self.shared.events.emit(event);
        }
        if restart {
            self.spawn(worker);
            self.give_back().await;
        }
    }

    /// Hands what lost workers owed to the curator.
    async fn give_back(&mut self) {
        while let Some(trajectory) = self.shared.lost.oldest() {
            let id = trajectory.id;
            if let Err(error) = self.shared.ingest(&trajectory).await {
                return self.fail(error);
            }
            self.shared.lost.paid(id);
            self.shared.metrics.lost_episode();
            let event = RolloutEvent::RolloutRecovered { trajectory: id };
            self.shared.events.emit(event);
        }
    }

    /// Ends everything within the shutdown deadline; `true` if all workers ended by themselves.
    async fn drain(&mut self) -> bool {
        let start = Instant::now();
        let limit = Duration::from_millis(self.shared.config.shutdown_timeout_ms);
        let at = |tenths: u32| start + limit * tenths / 10;
        let finished = timeout_at(at(5), self.join_all(false)).await.is_ok();
        self.shared.cancel.cancel();
        let drained = finished || timeout_at(at(8), self.join_all(false)).await.is_ok();
        self.workers.abort_all();
        // Aborted tasks end at their next wait; what is left after the deadline ends with the set.
        let _ = timeout_at(at(9), self.join_all(false)).await;
        let _ = timeout_at(at(10) - limit / 100, self.give_back()).await;
        drained
    }
}
