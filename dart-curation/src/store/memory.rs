//! [`MemoryStore`]: everything in memory, no threads; for the simulated clock and for tests.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use dart_core::{BatchId, Commit, PolicyVersion, Result, Trajectory, TrajectoryId};

use super::{TrajectoryQuery, TrajectoryStore, TrajectorySummary};
use crate::error::CurationError;

#[derive(Debug, Default)]
struct Inner {
    bodies: BTreeMap<TrajectoryId, (u64, Arc<Trajectory>)>,
    used: BTreeMap<TrajectoryId, (BatchId, PolicyVersion)>,
    next_order: u64,
}

/// Keeps trajectories in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
    transient: bool,
}

impl MemoryStore {
    /// A store that keeps everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store that lets go of what the data manager will not ask for again, for long runs.
    pub fn transient() -> Self {
        Self {
            transient: true,
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing below panics between two changes that belong together.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl TrajectoryStore for MemoryStore {
    async fn put(&self, trajectory: Arc<Trajectory>) -> Result<()> {
        let mut inner = self.lock();
        let order = inner.next_order;
        inner.next_order += 1;
        inner.bodies.insert(trajectory.id, (order, trajectory));
        Ok(())
    }

    async fn get(&self, id: TrajectoryId) -> Result<Option<Arc<Trajectory>>> {
        Ok(self.lock().bodies.get(&id).map(|(_, body)| body.clone()))
    }

    async fn list(&self, query: &TrajectoryQuery) -> Result<Vec<TrajectorySummary>> {
        let inner = self.lock();
        let mut found: Vec<_> = inner
            .bodies
            .values()
            .filter(|(_, body)| query.matches(body))
            .collect();
        found.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
        found.truncate(query.limit as usize);
        let used_in = |id| inner.used.get(&id).map(|(batch, _)| *batch);
        Ok(found
            .into_iter()
            .map(|(_, body)| TrajectorySummary::of(body, used_in(body.id)))
            .collect())
    }

    async fn mark_used(&self, trajectories: &[TrajectoryId], commit: &Commit) -> Result<()> {
        let mut inner = self.lock();
        for id in trajectories {
            if let Some((batch, _)) = inner.used.get(id).filter(|(b, _)| *b != commit.batch) {
                return Err(CurationError::UsedTwice(*id, batch.0).during("mark as used"));
            }
        }
        for id in trajectories {
            inner.used.insert(*id, (commit.batch, commit.version));
        }
        Ok(())
    }

    async fn rewind(&self, version: PolicyVersion) -> Result<()> {
        self.lock()
            .used
            .retain(|_, (_, used_at)| *used_at <= version);
        Ok(())
    }

    fn release(&self, trajectories: &[TrajectoryId]) {
        if self.transient {
            let mut inner = self.lock();
            for id in trajectories {
                inner.bodies.remove(id);
                inner.used.remove(id);
            }
        }
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

impl TrajectoryQuery {
    fn matches(&self, trajectory: &Trajectory) -> bool {
        let reward = trajectory.outcome.reward();
        let success = reward.map(dart_core::Reward::is_success);
        self.task
            .as_ref()
            .is_none_or(|task| *task == trajectory.task.id)
            && (self.success.is_none() || self.success == success)
    }
}

impl TrajectorySummary {
    fn of(trajectory: &Trajectory, used_in: Option<BatchId>) -> Self {
        Self {
            id: trajectory.id,
            group: trajectory.group,
            task: trajectory.task.id.clone(),
            seed: trajectory.seed,
            outcome: trajectory.outcome,
            stop: trajectory.stop,
            steps: trajectory.steps.len() as u32,
            oldest_version: trajectory.oldest_version(),
            used_in,
        }
    }
}
