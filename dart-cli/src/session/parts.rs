//! How each part of a session is made, and how its files are moved.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use dart_core::{Error, ErrorKind, Policy};
use dart_curation::{MemoryStore, SqliteStore, TrajectoryStore};
use dart_policy::{VlmModel, VlmPolicy};
use dart_rollout::PolicyPool;
use dart_trainer::{GrpoLearner, LearnerHandle};

use crate::{
    archive::mending,
    config::{ClockConfig, RunConfig},
    events::EventFile,
    fault::Fault,
    run_dir::RunDir,
};

/// Policies of the run: `workers` copies of the model, each on its own thread.
pub(super) fn policies(
    config: &RunConfig,
    model: &VlmModel,
    events: &EventFile,
) -> Result<PolicyPool> {
    let mut workers: Vec<Arc<dyn Policy>> = Vec::new();
    for _ in 0..config.policy.workers {
        let worker = &config.policy.worker;
        workers.push(match config.clock {
            ClockConfig::Real => Arc::new(VlmPolicy::spawn(model, worker)?),
            ClockConfig::Simulated { .. } => Arc::new(VlmPolicy::inline(model, worker)?),
        });
    }
    let sink = Arc::new(events.clone());
    Ok(PolicyPool::with(
        workers,
        config.policy.pool.clone(),
        Some(sink),
    )?)
}

pub(super) fn learner(config: &RunConfig, model: VlmModel) -> Result<LearnerHandle> {
    let mut settings = config.trainer.clone();
    settings.seed = config.seed;
    let learner = Box::new(GrpoLearner::new(model, settings)?);
    Ok(match config.clock {
        ClockConfig::Real => LearnerHandle::spawn(learner)?,
        ClockConfig::Simulated { .. } => LearnerHandle::inline(learner),
    })
}

pub(super) async fn store(config: &RunConfig, run: &RunDir) -> Result<Arc<dyn TrajectoryStore>> {
    Ok(match config.clock {
        ClockConfig::Real => Arc::new(sqlite(config, run).await?),
        // Nobody reads it after the run, and a long one would not fit.
        ClockConfig::Simulated { .. } => Arc::new(MemoryStore::transient()),
    })
}

/// The durable store. One that is damaged is not trained on.
async fn sqlite(config: &RunConfig, run: &RunDir) -> Result<SqliteStore> {
    let opened = SqliteStore::open_with(&run.store(), config.store).await;
    opened.map_err(|error| match error.kind() {
        ErrorKind::Storage => Fault::new(error.to_string()).remedy(mending(run)).into(),
        _ => error.into(),
    })
}

pub(super) fn reset_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Moves every file of `from` into `to`, on the same file system.
pub(super) fn move_files(from: &Path, to: &Path) -> dart_core::Result<()> {
    let moved = || -> std::io::Result<()> {
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            std::fs::rename(entry.path(), to.join(entry.file_name()))?;
        }
        std::fs::remove_dir(from)
    };
    moved().map_err(|error| {
        Error::new(
            ErrorKind::Storage,
            "dart-cli",
            "checkpoint",
            "files cannot be moved",
        )
        .with("folder", to.display())
        .caused_by(error)
    })
}

/// Whether a disk without room is the cause.
pub(super) fn is_full(error: &anyhow::Error) -> bool {
    let full = |error: &std::io::Error| {
        matches!(
            error.kind(),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
        )
    };
    error
        .chain()
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(full))
}
