//! [`MemoryStore`]: everything in memory, no threads; for the simulated clock and for tests.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dart_core::{BatchId, PolicyVersion, Result, Trajectory, TrajectoryId};
use tokio::time::Instant;

use super::{
    CheckpointRef, Claim, Fence, MAX_FAILURES, Quarantined, Seal, TrajectoryQuery, TrajectoryStore,
    TrajectorySummary, Use, protocol::lease_over,
};
use crate::error::{CurationError, Result as Checked};

#[derive(Debug)]
struct Row {
    order: u64,
    imported: bool,
    body: Arc<Trajectory>,
    claim: Option<Fence>,
    failures: u32,
    quarantined: Option<String>,
}

#[derive(Debug)]
struct Lease {
    owner: String,
    until: Instant,
}

#[derive(Debug, Default)]
struct Inner {
    rows: BTreeMap<TrajectoryId, Row>,
    used: BTreeMap<TrajectoryId, (BatchId, PolicyVersion)>,
    claims: BTreeMap<Fence, Lease>,
    checkpoints: BTreeMap<PolicyVersion, (CheckpointRef, u64)>,
    last_order: u64,
    last_fence: u64,
    /// Whether to let go of what the data manager will not ask for again.
    transient: bool,
}

/// Keeps trajectories in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

impl MemoryStore {
    /// A store that keeps everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store that lets go of what the data manager will not ask for again, for long runs.
    pub fn transient() -> Self {
        let store = Self::default();
        store.lock().transient = true;
        store
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing below panics between two changes that belong together.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn put(&mut self, trajectory: Arc<Trajectory>, imported: bool) -> Checked<()> {
        let id = trajectory.id;
        let held = self.rows.get(&id).is_some_and(|row| row.claim.is_some());
        if held || self.used.contains_key(&id) {
            // Whether it is the same one cannot be told without comparing pixels: sharing is enough.
            let same = |row: &Row| Arc::ptr_eq(&row.body, &trajectory);
            return if self.rows.get(&id).is_some_and(same) {
                Ok(())
            } else {
                Err(CurationError::Answered(id))
            };
        }
        self.last_order += 1;
        let row = Row {
            order: self.last_order,
            imported,
            body: trajectory,
            claim: None,
            failures: 0,
            quarantined: None,
        };
        self.rows.insert(id, row);
        Ok(())
    }

    fn summary(&self, row: &Row) -> TrajectorySummary {
        TrajectorySummary {
            used_in: self.used.get(&row.body.id).map(|(batch, _)| *batch),
            quarantined: row.quarantined.clone(),
            ..TrajectorySummary::of(&row.body)
        }
    }

    fn check_claim(&self, id: TrajectoryId, owner: &str) -> Checked<()> {
        let unavailable = |why: String| Err(CurationError::Unavailable(id, why));
        let Some(row) = self.rows.get(&id) else {
            return unavailable("it is not stored".into());
        };
        if let Some((batch, _)) = self.used.get(&id) {
            return unavailable(format!("batch {batch} used it"));
        }
        if let Some(reason) = &row.quarantined {
            return unavailable(format!("it is in quarantine: {reason}"));
        }
        match row.claim.and_then(|fence| self.claims.get(&fence)) {
            Some(lease) if lease.owner != owner && lease.until > Instant::now() => {
                unavailable(format!("{} works on it", lease.owner))
            }
            _ => Ok(()),
        }
    }

    fn claim(&mut self, ids: &[TrajectoryId], owner: &str, lease: Duration) -> Checked<Claim> {
        for id in ids {
            self.check_claim(*id, owner)?;
        }
        self.end_leases(ids)?;
        self.last_fence += 1;
        let fence = Fence(self.last_fence);
        let lease = Lease {
            owner: owner.to_owned(),
            until: Instant::now() + lease,
        };
        self.claims.insert(fence, lease);
        for id in ids {
            if let Some(row) = self.rows.get_mut(id) {
                row.claim = Some(fence);
            }
        }
        Ok(Claim {
            fence,
            trajectories: ids.to_vec(),
        })
    }

    /// Counts a lease that has run out as a failure of what is claimed anew.
    fn end_leases(&mut self, ids: &[TrajectoryId]) -> Checked<()> {
        let mut refusal = Ok(());
        for id in ids {
            let claim = self.rows.get(id).and_then(|row| row.claim);
            let lease = claim.and_then(|fence| self.claims.get(&fence));
            let Some(lease) = lease.filter(|lease| lease.until <= Instant::now()) else {
                continue;
            };
            let reason = lease_over(&lease.owner);
            // Each lease counts once.
            if let Some(row) = self.rows.get_mut(id) {
                row.claim = None;
            }
            if self.fail(*id, &reason) == Quarantined::Yes && refusal.is_ok() {
                let why = format!("it is in quarantine: {reason}");
                refusal = Err(CurationError::Unavailable(*id, why));
            }
        }
        refusal
    }

    /// Counts a failure, and quarantines at the last one.
    fn fail(&mut self, id: TrajectoryId, reason: &str) -> Quarantined {
        let Some(row) = self.rows.get_mut(&id) else {
            return Quarantined::Yes;
        };
        row.failures += 1;
        if row.failures < MAX_FAILURES {
            return Quarantined::NotYet(row.failures);
        }
        row.quarantined = Some(reason.to_owned());
        row.claim = None;
        Quarantined::Yes
    }

    fn end_claim(&mut self, claim: &Claim) {
        self.claims.remove(&claim.fence);
        for id in &claim.trajectories {
            if let Some(row) = self.rows.get_mut(id)
                && row.claim == Some(claim.fence)
            {
                row.claim = None;
            }
        }
    }

    /// Lets go of all that is not claimed: that was trained on and waits for its checkpoint.
    fn forget(&mut self, trajectories: &[TrajectoryId]) {
        for id in trajectories {
            if self.rows.get(id).is_some_and(|row| row.claim.is_none()) {
                self.rows.remove(id);
                self.used.remove(id);
            }
        }
    }

    /// Whether the use was written before.
    fn check_use(&self, used: &Use) -> Checked<bool> {
        let mut again = !used.claim.trajectories.is_empty();
        for id in &used.claim.trajectories {
            match self.used.get(id) {
                Some((batch, _)) if *batch == used.batch => continue,
                Some((batch, _)) => return Err(CurationError::UsedTwice(*id, batch.0)),
                None => again = false,
            }
            if self.rows.get(id).and_then(|row| row.claim) != Some(used.claim.fence) {
                return Err(CurationError::StaleClaim(used.batch, used.claim.fence.0));
            }
        }
        Ok(again)
    }

    fn seal(&mut self, seal: &Seal) -> Checked<()> {
        let written = seal.uses.iter().map(|used| self.check_use(used));
        let written: Vec<bool> = written.collect::<Checked<_>>()?;
        for (used, written) in seal.uses.iter().zip(written) {
            if !written {
                for id in &used.claim.trajectories {
                    self.used.insert(*id, (used.batch, used.version));
                }
                self.end_claim(&used.claim);
            }
            if self.transient {
                self.forget(&used.claim.trajectories);
            }
        }
        let row = (seal.checkpoint.clone(), seal.watermark);
        self.checkpoints.insert(seal.checkpoint.version, row);
        self.checkpoints
            .retain(|version, _| *version >= seal.oldest_kept);
        Ok(())
    }
}

#[async_trait]
impl TrajectoryStore for MemoryStore {
    async fn put(&self, trajectory: Arc<Trajectory>) -> Result<()> {
        let put = self.lock().put(trajectory, false);
        put.map_err(|error| error.during("store a trajectory"))
    }

    async fn import(&self, trajectory: Arc<Trajectory>) -> Result<()> {
        let put = self.lock().put(trajectory, true);
        put.map_err(|error| error.during("store a trajectory from elsewhere"))
    }

    async fn get(&self, id: TrajectoryId) -> Result<Option<Arc<Trajectory>>> {
        Ok(self.lock().rows.get(&id).map(|row| row.body.clone()))
    }

    async fn list(&self, query: &TrajectoryQuery) -> Result<Vec<TrajectorySummary>> {
        let inner = self.lock();
        let mut found: Vec<_> = inner
            .rows
            .values()
            .filter(|row| query.matches(&row.body))
            .collect();
        found.sort_by_key(|row| std::cmp::Reverse(row.order));
        found.truncate(query.limit as usize);
        Ok(found.into_iter().map(|row| inner.summary(row)).collect())
    }

    async fn after(&self, watermark: u64) -> Result<Vec<TrajectorySummary>> {
        let inner = self.lock();
        let mut found: Vec<_> = inner
            .rows
            .values()
            .filter(|row| row.order > watermark && !row.imported)
            .collect();
        found.sort_by_key(|row| row.order);
        Ok(found.into_iter().map(|row| inner.summary(row)).collect())
    }

    fn watermark(&self) -> u64 {
        self.lock().last_order
    }

    async fn claim(&self, ids: &[TrajectoryId], owner: &str, lease: Duration) -> Result<Claim> {
        let claimed = self.lock().claim(ids, owner, lease);
        claimed.map_err(|error| error.during("claim trajectories"))
    }

    async fn give_back(&self, claim: &Claim) -> Result<()> {
        self.lock().end_claim(claim);
        Ok(())
    }

    async fn fail(&self, id: TrajectoryId, reason: &str) -> Result<Quarantined> {
        Ok(self.lock().fail(id, reason))
    }

    async fn seal(&self, seal: &Seal) -> Result<()> {
        let sealed = self.lock().seal(seal);
        sealed.map_err(|error| error.during("seal a checkpoint"))
    }

    async fn pointer(&self) -> Result<Option<CheckpointRef>> {
        let inner = self.lock();
        let newest = inner.checkpoints.last_key_value();
        Ok(newest.map(|(_, (checkpoint, _))| checkpoint.clone()))
    }

    async fn rewind(&self, version: PolicyVersion) -> Result<Option<u64>> {
        let mut inner = self.lock();
        inner.used.retain(|_, (_, used_at)| *used_at <= version);
        inner.checkpoints.retain(|at, _| *at <= version);
        inner.claims.clear();
        for row in inner.rows.values_mut() {
            row.claim = None;
        }
        let at = inner.checkpoints.get(&version);
        Ok(at.map(|(_, watermark)| *watermark))
    }

    fn release(&self, trajectories: &[TrajectoryId]) {
        let mut inner = self.lock();
        if inner.transient {
            inner.forget(trajectories);
        }
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
