//! Snapshots: the whole [`State`] as JSON.

use std::{collections::BTreeMap, sync::Arc};

use dart_core::{GroupId, PolicyVersion, Trajectory, TrajectoryId};

use super::{Ledger, Place, State};
use crate::{
    error::{CurationError, Result},
    groups::{Issue, OpenGroup},
    store::TrajectorySummary,
};

impl Ledger {
    /// The state as bytes.
    pub(crate) fn snapshot(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(&self.state).map_err(CurationError::Snapshot)
    }

    /// Goes back to a snapshot; nobody works on what was in flight then, so it is handed out again.
    /// Returns the learner's version at the time.
    pub(crate) fn restore(&mut self, snapshot: &[u8]) -> Result<PolicyVersion> {
        if self.requested {
            return Err(CurationError::RestoreTooLate);
        }
        let mut state = parse(snapshot)?;
        for task in state.tasks.keys() {
            if !self.tasks.contains_key(task) {
                return Err(CurationError::UnknownTask(task.clone()));
            }
        }
        for group in state.open.values_mut() {
            group.recall();
        }
        state.redo.append(&mut state.outstanding);
        self.in_flight.clear();
        self.claims.clear();
        self.unsealed.clear();
        self.state = state;
        Ok(self.state.version)
    }

    /// What was in flight at the snapshot.
    pub(crate) fn recalled(&self) -> Vec<Issue> {
        let groups = self.state.open.values();
        groups
            .flat_map(OpenGroup::recalled)
            .map(|(_, issue)| issue)
            .collect()
    }

    /// Takes a recalled rollout that came back before the restart after all. Aborted ones, and
    /// ones by weights that this lineage does not have, are made again instead.
    pub(crate) fn adopt(&mut self, trajectory: &Trajectory) -> bool {
        let newest = trajectory
            .steps
            .iter()
            .map(|step| step.decision.version)
            .max();
        let of_lineage = newest.is_none_or(|newest| newest <= self.state.version);
        if trajectory.outcome.reward().is_none() || !of_lineage {
            return false;
        }
        let Some((group, (slot, issue))) = self.state.open.values().find_map(|group| {
            let mut recalled = group.recalled();
            let found = recalled.find(|(_, issue)| issue.trajectory == trajectory.id)?;
            Some((group.id, found))
        }) else {
            return false;
        };
        self.in_flight
            .insert(issue.trajectory, Place { group, slot });
        if !matches!(self.expects(trajectory), Ok(true)) {
            self.in_flight.remove(&issue.trajectory);
            return false;
        }
        if let Some(group) = self.state.open.get_mut(&group) {
            group.hand_out(slot, issue);
        }
        self.take(trajectory);
        true
    }
}

impl Ledger {
    /// Groups that were opened after the restored snapshot, with what was finished of them by
    /// weights of its lineage.
    pub(crate) fn adoptable(
        &self,
        later: &[TrajectorySummary],
    ) -> BTreeMap<GroupId, Vec<TrajectoryId>> {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for found in later {
            let of_lineage = found
                .newest_version
                .is_none_or(|newest| newest <= self.state.version);
            let usable = found.outcome.reward().is_some()
                && found.has_body
                && found.quarantined.is_none()
                && found.used_in.is_none();
            let unknown = found.group.0 >= self.state.next_group;
            if of_lineage && usable && unknown && self.tasks.contains_key(&found.task) {
                groups.entry(found.group).or_default().push(found.id);
            }
        }
        groups
    }

    /// Opens a group again, with what is finished of it. Gives how many were taken in: none if the
    /// bounds leave no room for the group.
    pub(crate) fn adopt_group(&mut self, id: GroupId, finished: &[Arc<Trajectory>]) -> usize {
        let Some(first) = finished.first() else {
            return 0;
        };
        let same = |body: &&Arc<Trajectory>| {
            body.task.id == first.task.id && body.seed == first.seed && body.group == id
        };
        let of_pool = |body: &&Arc<Trajectory>| !self.is_pooled(body.id);
        let bodies: Vec<_> = finished.iter().filter(same).filter(of_pool).collect();
        if bodies.is_empty() || self.dispatch_capacity() == 0 || id.0 < self.state.next_group {
            return 0;
        }
        self.reopen_group(id, (&first.task.id, first.seed), bodies.len() as u32);
        for (slot, body) in bodies.iter().enumerate() {
            let issue = Issue {
                trajectory: body.id,
                sampling_seed: 0,
            };
            self.in_flight.insert(body.id, Place { group: id, slot });
            if let Some(group) = self.state.open.get_mut(&id) {
                group.hand_out(slot, issue);
            }
        }
        for body in &bodies {
            self.take(body);
        }
        bodies.len()
    }

    /// Draws other identities than before the crash: they are in the store.
    pub(crate) fn diverge(&mut self, stream: u64) {
        self.state.rng.set_stream(stream);
    }

    fn is_pooled(&self, id: TrajectoryId) -> bool {
        self.state.pool.trajectories().any(|pooled| pooled == id)
    }
}

fn parse(snapshot: &[u8]) -> Result<State> {
    #[derive(serde::Deserialize)]
    struct Header {
        format: u32,
    }
    let Header { format } = serde_json::from_slice(snapshot).map_err(CurationError::Snapshot)?;
    if format != State::FORMAT {
        return Err(CurationError::SnapshotFormat {
            found: format,
            expected: State::FORMAT,
        });
    }
    serde_json::from_slice(snapshot).map_err(CurationError::Snapshot)
}
