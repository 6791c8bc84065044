//! [`Claim`]: the promise that a request comes back (invariant I3).
//!
//! Taking in a trajectory is asynchronous and a destructor is not, so what a lost worker owes is put
//! where the supervisor finds it, before the worker's slot is filled again.

use std::sync::{Arc, Mutex};

use dart_core::{RolloutRequest, Trajectory, TrajectoryId};

use crate::{episode, error::lock};

/// What lost workers owe; at most one trajectory for each.
#[derive(Debug, Default)]
pub(crate) struct Lost(Mutex<Vec<Trajectory>>);

impl Lost {
    /// The oldest debt. It stays until it is [paid](Self::paid), so a wait that is cut loses nothing.
    pub(crate) fn oldest(&self) -> Option<Trajectory> {
        lock(&self.0).first().cloned()
    }

    pub(crate) fn paid(&self, id: TrajectoryId) {
        lock(&self.0).retain(|trajectory| trajectory.id != id);
    }
}

/// A request that is owed. Dropped before it is settled, it leaves an aborted trajectory (or the
/// finished one, if there is) with [`Lost`].
#[derive(Debug)]
pub(crate) struct Claim {
    lost: Arc<Lost>,
    owed: Option<Trajectory>,
}

impl Claim {
    pub(crate) fn new(request: &RolloutRequest, lost: &Arc<Lost>) -> Self {
        let mut owed = episode::blank(request);
        owed.error = Some("the worker was lost in the middle of the episode".to_owned());
        Self {
            lost: Arc::clone(lost),
            owed: Some(owed),
        }
    }

    /// From now on `trajectory` is what is owed.
    pub(crate) fn finish(&mut self, trajectory: Trajectory) {
        self.owed = Some(trajectory);
    }

    /// The curator has it.
    pub(crate) fn settle(mut self) {
        self.owed = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(trajectory) = self.owed.take() {
            lock(&self.lost.0).push(trajectory);
        }
    }
}
