//! The ring at work: rollouts → batches → learner steps → new weights → rollouts.

mod counted;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use dart_core::{Batch, Commit, Curator, LearnerReport, PolicyVersion, fault};
use dart_rollout::RolloutCluster;
use tokio::time::Instant;

use self::counted::CountedFactory;
use crate::{
    config::ClockConfig,
    events::RunEvent,
    metrics::{CuratorRecord, Staleness, StepRecord},
    progress::Progress,
    report::CurvePoint,
    session::Session,
};

/// Skipped steps in a row after which the run ends: its numbers have gone bad.
const MAX_SKIPPED: u64 = 50;

/// Pause between two looks at the curator while a batch is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Where reinforcement learning stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct RingState {
    /// Learner steps.
    pub(crate) steps: u64,
    /// Seconds on the run's clock.
    pub(crate) seconds: f64,
    /// Steps of the environments.
    #[serde(default)]
    pub(crate) environment_steps: u64,
}

/// Runs until the configured seconds or steps (of the learner or the environments) are over, or
/// until a signal. Everything that was learnt is in the last checkpoint when this returns.
pub(crate) async fn run(session: &mut Session, mut state: RingState) -> Result<RingState> {
    session.curator.start_at(session.version());
    let factory = Arc::clone(&session.rollout_factory);
    let factory = CountedFactory::new(factory, state.environment_steps);
    let counter = factory.steps();
    let cluster = RolloutCluster::start(
        session.config.rollout.clone(),
        Arc::new(factory),
        Arc::clone(&session.pool) as _,
        Arc::clone(&session.curator) as _,
        Some(Arc::new(session.events.clone())),
    )?;
    session.pool.watched_by(cluster.watchdog());
    let trained = train(session, &cluster, (&mut state, &counter)).await;
    session.curator.close();
    let report = cluster.shutdown().await;
    state.environment_steps = counter.load(Ordering::Relaxed);
    tracing::info!(?report, "the cluster has stopped");
    trained?;
    session.checkpoint(state).await?;
    Ok(state)
}

async fn train(
    session: &mut Session,
    cluster: &RolloutCluster,
    (state, counter): (&mut RingState, &AtomicU64),
) -> Result<()> {
    let mut turn = Turn {
        before: state.seconds,
        start: Instant::now(),
        skipped: 0,
        staleness: Staleness::default(),
        progress: Progress::new("training"),
    };
    loop {
        state.seconds = turn.before + turn.start.elapsed().as_secs_f64();
        let Some(batch) = next_batch(session, cluster, state, &mut turn).await? else {
            return Ok(());
        };
        turn.step(session, state, batch).await?;
        let before = state.environment_steps;
        state.environment_steps = counter.load(Ordering::Relaxed);
        if let Some(every) = session.config.evaluation.every_environment_steps
            && before / every < state.environment_steps / every
        {
            evaluate(session, *state).await?;
        }
    }
}

/// Adds a point to the curve.
async fn evaluate(session: &mut Session, state: RingState) -> Result<()> {
    session.pool.settled().await;
    let episodes = session.config.evaluation.episodes;
    let held_out = session.held_out();
    let held_out = held_out.evaluate(session.policy(), episodes).await?;
    session.summary.curve.push(CurvePoint {
        environment_steps: state.environment_steps,
        learner_steps: state.steps,
        held_out,
    });
    Ok(())
}

/// The next batch, or `None` when training is over.
async fn next_batch(
    session: &Session,
    cluster: &RolloutCluster,
    state: &RingState,
    turn: &mut Turn,
) -> Result<Option<Batch>> {
    let limits = &session.config.training;
    let acted = limits
        .max_environment_steps
        .is_some_and(|most| state.environment_steps >= most);
    if acted || state.steps >= limits.max_steps || state.seconds >= limits.max_seconds {
        return Ok(None);
    }
    let until = Instant::now() + Duration::from_secs_f64(limits.max_seconds - state.seconds);
    let curator = Arc::clone(&session.curator);
    let mut waiting = std::pin::pin!(curator.next_batch());
    loop {
        tokio::select! {
            biased;
            () = session.cancel.cancelled() => return Ok(None),
            batch = &mut waiting => return Ok(batch?),
            () = cluster.finished() => bail!("the environments have stopped; the log above says why"),
            () = tokio::time::sleep_until(until) => return Ok(None),
            () = tokio::time::sleep(LOOK_EVERY) => turn.show(session, state),
        }
    }
}

/// What lasts from one learner step to the next.
struct Turn {
    before: f64,
    start: Instant,
    skipped: u64,
    /// Of the latest batch.
    staleness: Staleness,
    progress: Progress,
}

impl Turn {
    async fn step(
        &mut self,
        session: &mut Session,
        state: &mut RingState,
        batch: Batch,
    ) -> Result<()> {
        let (id, samples) = (batch.id, batch.samples.len());
        self.staleness = Staleness::of(&batch, session.version());
        let report = session
            .learner
            .step(batch)
            .await
            .context("a learner step failed")?;
        if let ClockConfig::Simulated { latencies } = session.config.clock {
            let micros = latencies.learner_sample_ms * 1e3 * samples as f64;
            tokio::time::sleep(Duration::from_micros(micros as u64)).await;
        }
        session.set_version(report.version);
        state.steps += 1;
        state.seconds = self.before + self.start.elapsed().as_secs_f64();
        fault::point("learner.stepped");
        session.publish().await?;
        let limits = &session.config.training;
        let due = state.steps.is_multiple_of(limits.checkpoint_every);
        if state.steps >= limits.max_steps {
            // What would be started now, nobody would train on.
            session.curator.close();
        }
        if session.config.curation.max_staleness == 0 {
            // A decision by the old weights would be too old when it comes back.
            session.pool.settled().await;
        }
        let version = report.version;
        session
            .curator
            .commit(Commit { batch: id, version })
            .await?;
        fault::point("batch.committed");
        if due {
            session.checkpoint(*state).await?;
        }
        self.record(session, state, &report, samples);
        self.guard(&report)
    }

    fn record(
        &mut self,
        session: &mut Session,
        state: &RingState,
        report: &LearnerReport,
        samples: usize,
    ) {
        let status = session.curator.status();
        session.events.push(&RunEvent::LearnerStep {
            version: report.version.0,
            loss: report.metrics.get("loss").copied().unwrap_or(f64::NAN),
            skipped: report.skipped,
        });
        session.metrics.push(&StepRecord {
            seconds: state.seconds,
            objective: dart_core::Objective::PolicyGradient,
            version: report.version,
            skipped: report.skipped,
            samples,
            staleness: Some(self.staleness),
            curator: Some(CuratorRecord::from(&status)),
            metrics: &report.metrics,
        });
        self.show(session, state);
    }

    fn guard(&mut self, report: &LearnerReport) -> Result<()> {
        self.skipped = if report.skipped { self.skipped + 1 } else { 0 };
        if self.skipped >= MAX_SKIPPED {
            bail!("{MAX_SKIPPED} learner steps in a row were skipped; metrics.jsonl says why");
        }
        Ok(())
    }

    fn show(&mut self, session: &Session, state: &RingState) {
        let limits = &session.config.training;
        let seconds = self.before + self.start.elapsed().as_secs_f64();
        let budget = limits.max_environment_steps.unwrap_or(u64::MAX);
        let share = (seconds / limits.max_seconds)
            .max(state.steps as f64 / limits.max_steps as f64)
            .max(state.environment_steps as f64 / budget as f64);
        let PolicyVersion(version) = session.version();
        self.progress.show(share, || {
            let status = session.curator.status();
            format!(
                "step {}, version {version}, success {:.2}, staleness {:.1}, {} trajectories, \
                 groups {}/{}, {} without spread, {} stale",
                state.steps,
                status.recent_success,
                self.staleness.mean,
                status.trajectories,
                status.groups_ready,
                status.groups_needed,
                status.groups_without_spread,
                status.stale,
            )
        });
    }
}
