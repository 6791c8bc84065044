//! One slot of the cluster: an environment, and one episode after another in it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use dart_core::{
    Curator, Environment, EnvironmentFactory, Error, ErrorKind, Policy, Result, RolloutRequest,
    Trajectory,
};
use tokio_util::sync::CancellationToken;

use crate::{
    claim::{Claim, Lost},
    config::RolloutConfig,
    deadline::{self, Cut},
    episode::{self, Culprit, EpisodeLimits, Fault},
    error::RolloutError,
    events::{Events, RolloutEvent},
    metrics::Recorder,
    watchdog::{Waiter, Watchdog},
};

/// Times a trajectory is offered to a curator that fails to take it.
const INGEST_ATTEMPTS: u32 = 3;

/// What all workers of a cluster share.
pub(crate) struct Shared {
    pub(crate) config: RolloutConfig,
    pub(crate) factory: Arc<dyn EnvironmentFactory>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) curator: Arc<dyn Curator>,
    pub(crate) events: Events,
    pub(crate) metrics: Recorder,
    pub(crate) watchdog: Watchdog,
    pub(crate) lost: Arc<Lost>,
    /// No new requests.
    pub(crate) stopping: CancellationToken,
    /// Episodes end at once.
    pub(crate) cancel: CancellationToken,
}

impl Shared {
    /// Hands a trajectory to the curator, who may need more than one offer; the same trajectory twice
    /// is harmless (contract 1 of [`Curator`]).
    pub(crate) async fn ingest(&self, trajectory: &Trajectory) -> Result<()> {
        let limit = Duration::from_millis(self.config.ingest_timeout_ms);
        let mut attempt = 1;
        loop {
            let offer = self.curator.ingest(trajectory.clone());
            let result = match tokio::time::timeout(limit, offer).await {
                Ok(result) => result,
                Err(_) => Err(RolloutError::SlowIngest {
                    millis: limit.as_millis(),
                }
                .at("ingest")),
            };
            let Err(error) = result else { return Ok(()) };
            self.events.emit(RolloutEvent::IngestFailed {
                trajectory: trajectory.id,
                error: error.to_string(),
                attempt,
            });
            if attempt == INGEST_ATTEMPTS {
                return Err(error);
            }
            tokio::time::sleep(self.config.backoff(attempt, 0)).await;
            attempt += 1;
        }
    }
}

/// What outlives a worker that panics: its number and how often its environment failed in a row.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) index: usize,
    pub(crate) errors: AtomicU32,
}

/// One running worker.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    env: Option<Box<dyn Environment>>,
    limits: EpisodeLimits,
    waiter: Waiter,
}

impl Worker {
    pub(crate) fn new(shared: &Arc<Shared>, slot: &Arc<Slot>) -> Self {
        let who = format!("rollout worker {}", slot.index);
        let waiter = shared.watchdog.register(who);
        Self {
            limits: EpisodeLimits {
                cancel: shared.cancel.clone(),
                waiter: waiter.clone(),
                ..EpisodeLimits::new(&shared.config)
            },
            shared: Arc::clone(shared),
            slot: Arc::clone(slot),
            env: None,
            waiter,
        }
    }

    /// Works until the curator closes, the cluster stops, or something fails that no fresh
    /// environment helps against. Closes the environment in each case.
    pub(crate) async fn run(mut self) -> Result<()> {
        let result = self.work().await;
        self.close().await;
        result
    }

    async fn work(&mut self) -> Result<()> {
        while !self.shared.stopping.is_cancelled() {
            // First the environment, then the request: a backend that is down costs no request.
            if !self.ready().await? {
                continue;
            }
            let Some(request) = self.next_request().await? else {
                break;
            };
            self.roll_out(request).await?;
        }
        Ok(())
    }

    /// Makes an environment if there is none; `false` if that failed or the cluster stops.
    async fn ready(&mut self) -> Result<bool> {
        if self.env.is_some() {
            return Ok(true);
        }
        if !self.cool_down().await {
            return Ok(false);
        }
        let limit = Duration::from_millis(self.shared.config.create_timeout_ms);
        let waiting = self.waiter.wait("environment factory");
        let created = self.shared.factory.create();
        let created = deadline::within(limit, &self.shared.stopping, created).await;
        drop(waiting);
        let error = match created {
            Ok(Ok(env)) => {
                let environment = env.spec().name.clone();
                let worker = self.slot.index;
                self.env = Some(env);
                let event = RolloutEvent::EnvironmentCreated {
                    worker,
                    environment,
                };
                self.shared.events.emit(event);
                return Ok(true);
            }
            Err(Cut::Cancelled) => return Ok(false),
            Err(Cut::Overdue) => RolloutError::SlowCall {
                millis: limit.as_millis(),
            }
            .at("create environment"),
            Ok(Err(error)) => error,
        };
        self.note_error(&error);
        if is_hopeless(&error) {
            return Err(error);
        }
        Ok(false)
    }

    /// Pauses after errors; `false` if the cluster stops.
    async fn cool_down(&mut self) -> bool {
        let errors = self.slot.errors.load(Ordering::Relaxed);
        let config = &self.shared.config;
        let length = match errors {
            0 => return true,
            few if few < config.max_consecutive_errors => config.backoff(few, self.slot.index),
            _ => {
                self.shared
                    .events
                    .emit(RolloutEvent::EnvironmentQuarantined {
                        worker: self.slot.index,
                        for_ms: config.quarantine_ms,
                    });
                Duration::from_millis(config.quarantine_ms)
            }
        };
        let _waiting = self.waiter.wait("the end of a pause after errors");
        deadline::pause(length, &self.shared.stopping).await
    }

    /// The next request; `None` if there will be none or the cluster stops. Has no deadline: the
    /// curator keeps workers waiting on purpose, and the watchdog sees them.
    async fn next_request(&mut self) -> Result<Option<RolloutRequest>> {
        let mut attempt = 1;
        loop {
            let waiting = self.waiter.wait("curator.next_request");
            let asked = tokio::select! {
                biased;
                asked = self.shared.curator.next_request() => asked,
                () = self.shared.stopping.cancelled() => Ok(None),
            };
            drop(waiting);
            match asked {
                Err(error) if error.is_retryable() && attempt < INGEST_ATTEMPTS => {
                    let length = self.shared.config.backoff(attempt, self.slot.index);
                    if !deadline::pause(length, &self.shared.stopping).await {
                        return Ok(None);
                    }
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    async fn roll_out(&mut self, request: RolloutRequest) -> Result<()> {
        let mut claim = Claim::new(&request, &self.shared.lost);
        let Some(env) = self.env.as_mut() else {
            // `ready` came first; the claim gives the request back all the same.
            return Ok(());
        };
        let worker = self.slot.index;
        self.shared.events.emit(RolloutEvent::EpisodeStarted {
            worker,
            trajectory: request.trajectory,
            group: request.group,
            task: request.task.id.clone(),
            seed: request.seed,
        });
        let policy = self.shared.policy.as_ref();
        let played = episode::play(env.as_mut(), policy, &request, &self.limits).await;
        self.shared.metrics.episode(&played.trajectory);
        self.shared.events.emit(ended(worker, &played.trajectory));
        claim.finish(played.trajectory.clone());
        let waiting = self.waiter.wait("curator.ingest");
        self.shared.ingest(&played.trajectory).await?;
        drop(waiting);
        claim.settle();
        match played.fault {
            Some(fault) if is_fatal(&fault) => Err(fault.error),
            fault => {
                self.look_after(fault).await;
                Ok(())
            }
        }
    }

    /// Keeps, replaces or quarantines the environment after an episode.
    async fn look_after(&mut self, fault: Option<Fault>) {
        let Some(fault) = fault else {
            self.slot.errors.store(0, Ordering::Relaxed);
            return;
        };
        if self.shared.cancel.is_cancelled() {
            return;
        }
        if fault.culprit == Culprit::Policy {
            // Not the environment's fault; the next reset makes it usable. A policy that is down
            // must not be asked as fast as it can refuse.
            let length = self.shared.config.backoff(1, self.slot.index);
            deadline::pause(length, &self.shared.stopping).await;
            return;
        }
        let errors = self.note_error(&fault.error);
        if !recovers(&fault.error) || errors >= self.shared.config.max_consecutive_errors {
            self.close().await;
        }
    }

    fn note_error(&self, error: &Error) -> u32 {
        let errors = self.slot.errors.fetch_add(1, Ordering::Relaxed) + 1;
        let worker = self.slot.index;
        tracing::warn!(worker, errors, %error, "environment failed");
        self.shared.metrics.environment_error();
        self.shared.events.emit(RolloutEvent::EnvironmentFailed {
            worker,
            kind: error.kind(),
            error: error.to_string(),
            errors_in_a_row: errors,
        });
        errors
    }

    /// Closes the environment, within a deadline; dropping it does the rest.
    async fn close(&mut self) {
        let Some(mut env) = self.env.take() else {
            return;
        };
        let limit = Duration::from_millis(self.shared.config.close_timeout_ms);
        let waiting = self.waiter.wait("environment.close");
        let closed = tokio::time::timeout(limit, env.close()).await;
        drop(waiting);
        let clean = matches!(closed, Ok(Ok(())));
        let worker = self.slot.index;
        let event = RolloutEvent::EnvironmentClosed { worker, clean };
        self.shared.events.emit(event);
    }
}

fn ended(worker: usize, trajectory: &Trajectory) -> RolloutEvent {
    RolloutEvent::EpisodeEnded {
        worker,
        trajectory: trajectory.id,
        outcome: trajectory.outcome,
        stop: trajectory.stop,
        steps: trajectory.steps.len(),
        oldest_version: trajectory.oldest_version(),
        error: trajectory.error.clone(),
    }
}

/// Whether the same environment can be expected to work after its next reset (contracts 3, 15 and 16
/// of [`Environment`]). One that missed even our own deadline cannot.
fn recovers(error: &Error) -> bool {
    error.origin() != crate::error::ORIGIN
        && matches!(
            error.kind(),
            ErrorKind::Timeout | ErrorKind::Disconnected | ErrorKind::Cancelled
        )
}

/// Whether trying again cannot help: a setting is wrong, or the policy broke an invariant of ours
/// (image spans that do not fit the tokens would train on the wrong picture).
fn is_fatal(fault: &Fault) -> bool {
    let broken = fault.culprit == Culprit::Policy && fault.error.kind() == ErrorKind::Internal;
    broken || is_hopeless(&fault.error)
}

/// Whether no other environment of this factory can be better: a setting is wrong.
fn is_hopeless(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Config | ErrorKind::Unauthorized)
}
