//! The warm start: imitation of scripted experts, the embedded stand-in for a pretrained model.

use std::time::Duration;

use anyhow::{Context, Result};
use dart_core::{BatchId, LearnerReport, Sampling};
use dart_rollout::Demonstration;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    demonstrations::{Buffer, Experts},
    metrics::StepRecord,
    progress::Progress,
    session::Session,
};

/// What a warm start did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WarmStartReport {
    pub(crate) steps: u64,
    pub(crate) seconds: f64,
    /// Demonstrations that arrived.
    shown: usize,
}

/// Imitates until the configured seconds or steps are over, then hands the weights to the policies.
/// It goes on from `report`, writes a checkpoint now and then, and another one at its end or at a
/// signal.
pub(crate) async fn run(
    session: &mut Session,
    mut report: WarmStartReport,
) -> Result<WarmStartReport> {
    let config = session.config.warm_start.clone();
    let mut experts = session.experts();
    if config.demonstrations.is_none() {
        experts.skip = report.shown;
    }
    let (mut arriving, mut running) = experts.start(config.environments, config.demonstrations);
    let mut rng = ChaCha8Rng::seed_from_u64(session.config.seed);
    rng.set_stream(report.steps);
    let mut buffer = Buffer::new(config.buffer, config.reuse, rng);
    let start = Instant::now();
    let (before, shown_before) = (report.seconds, experts.skip);
    let mut saved = report.seconds;
    let mut progress = Progress::new("warm_start");
    while report.steps < config.max_steps && !session.cancel.is_cancelled() {
        report.seconds = before + start.elapsed().as_secs_f64();
        if report.seconds >= config.max_seconds {
            break;
        }
        let left = Duration::from_secs_f64(config.max_seconds - report.seconds);
        if !fill(&mut buffer, &mut arriving, config.batch_samples, left).await {
            break;
        }
        let batch = buffer.draw(BatchId(report.steps), config.batch_samples)?;
        let samples = batch.samples.len();
        let step = session.learner.step(batch).await?;
        session.set_version(step.version);
        report.steps += 1;
        report.shown = shown_before + buffer.arrived();
        session
            .metrics
            .push(&StepRecord::imitation(report.seconds, samples, &step));
        show(&mut progress, &config, &report, &step);
        if report.seconds - saved >= config.checkpoint_every_seconds {
            saved = report.seconds;
            session.checkpoint_warm_start(report).await?;
        }
    }
    drop(arriving);
    while let Some(ended) = running.join_next().await {
        ended.context("an expert panicked")??;
    }
    progress.finish(&format!(
        "{} steps in {:.0} s",
        report.steps, report.seconds
    ));
    session.publish().await?;
    session.checkpoint_warm_start(report).await?;
    Ok(report)
}

/// Takes what has arrived, and waits until the buffer can give a batch. `false` if it cannot in time.
async fn fill(
    buffer: &mut Buffer,
    arriving: &mut mpsc::Receiver<Demonstration>,
    samples: usize,
    deadline: Duration,
) -> bool {
    let until = Instant::now() + deadline;
    loop {
        while let Ok(demonstration) = arriving.try_recv() {
            buffer.push(demonstration);
        }
        if buffer.holds(samples) {
            return true;
        }
        match tokio::time::timeout_at(until, arriving.recv()).await {
            Ok(Some(demonstration)) => buffer.push(demonstration),
            Ok(None) => {
                buffer.complete();
                return buffer.holds(samples);
            }
            Err(_) => return false,
        }
    }
}

fn show(
    progress: &mut Progress,
    config: &crate::config::WarmStartConfig,
    report: &WarmStartReport,
    step: &LearnerReport,
) {
    let share =
        (report.seconds / config.max_seconds).max(report.steps as f64 / config.max_steps as f64);
    progress.show(share, || {
        let loss = step.metrics.get("loss").copied().unwrap_or(f64::NAN);
        let reading = step
            .metrics
            .get("reading_loss")
            .copied()
            .unwrap_or(f64::NAN);
        format!(
            "step {}, loss {loss:.3}, reading {reading:.3}",
            report.steps
        )
    });
}

/// Puts the experts' successes on the first instances of each task into the experience pool, with
/// the log-probs that the warm-started policy gives them.
pub(crate) async fn fill_pool(session: &Session) -> Result<usize> {
    let seeds = session.config.curation.sampler.first_seed;
    let count = session.config.warm_start.pool_seeds;
    if count == 0 || !session.config.curation.pool.enabled {
        return Ok(0);
    }
    let experts: Experts = session.experts();
    let mut shown = experts.instances(seeds..seeds + count).await?;
    session
        .score(
            &mut shown,
            Sampling {
                temperature: session.config.curation.temperature,
                seed: 0,
            },
        )
        .await?;
    let filled = shown.len();
    for trajectory in shown {
        session.curator.add_to_pool(trajectory).await?;
    }
    Ok(filled)
}
