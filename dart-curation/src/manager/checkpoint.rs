//! The data manager's part of a checkpoint, and of coming back from one.

use std::sync::PoisonError;

use dart_core::{PolicyVersion, Result, TrajectoryId, fault};

use super::DataManager;
use crate::store::{CheckpointRef, Seal, Use};

/// The data manager at one moment: what goes into a checkpoint, and what sealing it will write.
#[derive(Clone, Debug, PartialEq)]
pub struct CuratorCheckpoint {
    /// What [`restore`](dart_core::Curator::restore) takes.
    pub snapshot: Vec<u8>,
    version: PolicyVersion,
    watermark: u64,
    needed: Vec<TrajectoryId>,
    uses: Vec<Use>,
}

/// What was found after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Finished after the checkpoint and taken in.
    pub taken_in: usize,
    /// Finished after the checkpoint by weights that were lost with the crash, or beyond the
    /// bounds: kept in the store, not trained on.
    pub left: usize,
}

impl DataManager {
    /// The state of now.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if it cannot be written as JSON.
    pub fn checkpoint(&self) -> Result<CuratorCheckpoint> {
        // Before the books are read: what is stored in between is in them, or in flight in them.
        let watermark = self.store.watermark();
        let ledger = self.lock();
        let snapshot = ledger.snapshot();
        Ok(CuratorCheckpoint {
            snapshot: snapshot.map_err(|error| error.during("snapshot"))?,
            version: ledger.version(),
            watermark,
            needed: ledger.needed(),
            uses: ledger.unsealed().to_vec(),
        })
    }

    /// Makes `checkpoint`, whose files are safe in the folder `name`, the one to go on from, and
    /// its batches used: in one transaction. `oldest_kept` is the oldest checkpoint that is kept.
    ///
    /// # Errors
    /// [`Stale`](dart_core::ErrorKind::Stale) if somebody else has taken over a batch of it;
    /// [`Storage`](dart_core::ErrorKind::Storage), [`Exhausted`](dart_core::ErrorKind::Exhausted)
    /// from the store. Nothing has changed then.
    pub async fn seal(
        &self,
        checkpoint: CuratorCheckpoint,
        name: String,
        oldest_kept: PolicyVersion,
    ) -> Result<()> {
        let sealed = checkpoint.uses.len();
        let version = checkpoint.version;
        let seal = Seal {
            checkpoint: CheckpointRef { version, name },
            oldest_kept,
            uses: checkpoint.uses,
            watermark: checkpoint.watermark,
            needed: checkpoint.needed,
        };
        fault::point("seal.begin");
        self.store.seal(&seal).await?;
        self.lock().sealed(sealed);
        Ok(())
    }

    /// After `restore`: takes in what was finished after that checkpoint, as far as it was made by
    /// weights of its lineage and the bounds on staleness allow it. From then on the requests are
    /// others than before the crash, so that no identity is given twice.
    ///
    /// Without a crash nothing was finished after the checkpoint, and nothing changes.
    pub async fn recover(&self) -> Result<Recovered> {
        let at = *self
            .restored_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(at) = at else {
            return Ok(Recovered::default());
        };
        let later = self.store.after(at).await?;
        if later.is_empty() {
            return Ok(Recovered::default());
        }
        let finished = later
            .iter()
            .filter(|found| found.outcome.reward().is_some());
        let finished = finished.count();
        let groups = self.lock().adoptable(&later);
        let mut taken_in = 0;
        for (group, members) in groups {
            let mut bodies = Vec::with_capacity(members.len());
            for id in members {
                if let Ok(Some(body)) = self.read(id).await? {
                    bodies.push(body);
                }
            }
            taken_in += self.update(|ledger| ledger.adopt_group(group, &bodies));
        }
        let last = self.store.watermark();
        self.update(|ledger| ledger.diverge(last));
        Ok(Recovered {
            taken_in,
            left: finished.saturating_sub(taken_in),
        })
    }
}
