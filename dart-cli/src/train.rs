//! `train`: untrained evaluation → warm start → reinforcement learning → final evaluation.

use anyhow::Result;
use dart_core::{Error, ErrorKind};

use crate::{
    prefill,
    report::Stage,
    ring::{self, RingState},
    session::{RunState, Session},
    terminal::tell,
    warm_start::{self, WarmStartReport},
};

/// Trains from nothing, or goes on from the newest checkpoint.
pub(crate) async fn run(session: &mut Session, resume: bool) -> Result<()> {
    let state = if resume {
        resumed(session).await?
    } else {
        None
    };
    let ring = match state {
        Some(RunState {
            warm_start: None,
            ring,
            ..
        }) => ring,
        Some(RunState {
            warm_start: Some(report),
            ..
        }) => begin(session, Some(report)).await?,
        None => begin(session, None).await?,
    };
    let ring = ring::run(session, ring).await?;
    session.summary.learner_steps = ring.steps;
    session.summary.environment_steps = ring.environment_steps;
    session.summary.trajectories = dart_core::Curator::status(&*session.curator).trajectories;
    if !session.cancel.is_cancelled() {
        evaluate(session, Stage::Final).await?;
        session.summary.completed = true;
    }
    // The last checkpoint knows the result, and resuming a finished run repeats nothing.
    session.checkpoint(ring).await?;
    session.write_summary()?;
    if session.cancel.is_cancelled() {
        return Err(interrupted());
    }
    Ok(())
}

/// Everything before reinforcement learning, from where the warm start stands.
async fn begin(session: &mut Session, done: Option<WarmStartReport>) -> Result<RingState> {
    if done.is_none() {
        evaluate(session, Stage::Untrained).await?;
    }
    if session.config.warm_start.enabled {
        let report = warm_start::run(session, done.unwrap_or_default()).await?;
        session.summary.warm_start_steps = report.steps;
        session.summary.warm_start_seconds = report.seconds;
        if session.cancel.is_cancelled() {
            return Err(interrupted());
        }
        session.curator.start_at(session.version());
        let filled = warm_start::fill_pool(session).await?;
        tracing::info!(filled, "demonstrations entered the experience pool");
    }
    prefill::run(session).await?;
    evaluate(session, Stage::WarmStart).await?;
    let ring = RingState::default();
    session.checkpoint(ring).await?;
    Ok(ring)
}

async fn resumed(session: &mut Session) -> Result<Option<RunState>> {
    let state = session.restore().await?;
    match &state {
        None => tell!("no checkpoint to resume from; the run begins anew"),
        Some(state) => {
            tell!(
                "resuming at version {}, learner step {}",
                session.version(),
                state.ring.steps
            );
        }
    }
    Ok(state)
}

/// Evaluates and notes the result under `stage`.
async fn evaluate(session: &mut Session, stage: Stage) -> Result<()> {
    session.pool.settled().await;
    let settings = &session.config.evaluation;
    let episodes = if stage == Stage::Untrained {
        settings.untrained_episodes
    } else {
        settings.episodes
    };
    let splits = session
        .held_out()
        .evaluate(session.policy(), episodes)
        .await?;
    for (split, success) in &splits {
        tell!(
            "{}: held-out success on {split}: {:.3}",
            stage.name(),
            success.overall
        );
    }
    session.summary.held_out.insert(stage, splits);
    Ok(())
}

fn interrupted() -> anyhow::Error {
    let message = "stopped by a signal; go on with --resume";
    Error::new(ErrorKind::Cancelled, "dart-cli", "train", message).into()
}
