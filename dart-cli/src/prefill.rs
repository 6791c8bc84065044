//! Trajectories collected beforehand enter the experience pool.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use anyhow::{Context, Result, bail};
use dart_core::{Sampling, Task, TaskId, Trajectory, TrajectoryId};
use dart_curation::{Provenance, hints::without_hint};

use crate::{archive::Exported, demonstrations::Experts, session::Session};

/// What became of the trajectories of one export.
#[derive(Debug, Default)]
struct Tally {
    entered: usize,
    without_hint: usize,
    failures: usize,
    other_tasks: usize,
}

/// Puts the successes of the configured exports into the pool. They keep their own log-probs; those
/// whose hint was taken out get the ones of the present weights. A repetition changes nothing.
pub(crate) async fn run(session: &Session) -> Result<()> {
    let settings = &session.config.prefill;
    if settings.folders.is_empty() {
        return Ok(());
    }
    if !session.config.curation.pool.enabled {
        bail!("prefill.folders needs curation.pool.enabled");
    }
    let experts = session.experts();
    let tasks: BTreeMap<_, _> = experts.tasks.iter().map(|t| (&t.id, t)).collect();
    for folder in &settings.folders {
        let tally = fill(session, folder, &experts, &tasks).await?;
        let folder = folder.display();
        tracing::info!(%folder, ?tally, "an export entered the experience pool");
        if tally.entered == 0 {
            tracing::warn!(%folder, ?tally, "nothing of it fits the experience pool");
        }
    }
    Ok(())
}

async fn fill(
    session: &Session,
    folder: &Path,
    experts: &Experts,
    tasks: &BTreeMap<&TaskId, &Arc<Task>>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut exported = Exported::open(folder)?;
    while let Some(mut trajectory) = exported.next()? {
        // Another task of the same name is another task.
        let same = |task: &&Arc<Task>| ***task == *trajectory.task;
        if !tasks.get(&trajectory.task.id).is_some_and(same) {
            tally.other_tasks += 1;
            continue;
        }
        if !trajectory.outcome.is_success() || trajectory.steps.is_empty() {
            tally.failures += 1;
            continue;
        }
        trajectory.id = renamed(trajectory.id);
        let (trajectory, provenance) = prepared(session, experts, trajectory)
            .await
            .with_context(|| exported.place())?;
        tally.entered += 1;
        tally.without_hint += usize::from(provenance == Provenance::ImportedWithoutHint);
        let added = session.curator.add_to_pool_as(trajectory, provenance);
        added.await.with_context(|| exported.place())?;
    }
    Ok(tally)
}

/// Runs of one seed draw the same identities: what comes from another run gets its own.
fn renamed(id: TrajectoryId) -> TrajectoryId {
    let mut hasher = blake3::Hasher::new_derive_key("dart experience pool 2026 imported");
    hasher.update(&id.0.to_le_bytes());
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    TrajectoryId(u128::from_le_bytes(bytes))
}

async fn prepared(
    session: &Session,
    experts: &Experts,
    trajectory: Trajectory,
) -> Result<(Trajectory, Provenance)> {
    let marker = session.config.prefill.hint_marker.as_deref();
    let stripped = match marker {
        Some(marker) => without_hint(&trajectory, marker, &*experts.encoder)?,
        None => None,
    };
    let sampling = Sampling {
        temperature: session.config.curation.temperature,
        seed: 0,
    };
    let hinted = stripped.is_some();
    let mut scored = [stripped.unwrap_or_else(|| trajectory.clone())];
    // Also a check: what the model cannot read is refused here, not in the middle of training.
    let readable = session.score(&mut scored, sampling).await;
    readable.context("it does not fit this run's model")?;
    let [scored] = scored;
    Ok(if hinted {
        (scored, Provenance::ImportedWithoutHint)
    } else {
        (trajectory, Provenance::Imported)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_names_differ_and_are_always_the_same() {
        let names = [0, 1, u128::MAX].map(|id| renamed(TrajectoryId(id)));
        assert_eq!(names, [0, 1, u128::MAX].map(|id| renamed(TrajectoryId(id))));
        assert!(names[0] != names[1] && names[0] != TrajectoryId(0));
    }
}
