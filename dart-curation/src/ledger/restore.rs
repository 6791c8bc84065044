//! Snapshots: the whole [`State`] as JSON.

use dart_core::{PolicyVersion, Trajectory};

use super::{Ledger, Place, State};
use crate::{
    error::{CurationError, Result},
    groups::{Issue, OpenGroup},
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
