//! From a plan to a batch: bodies are read, trajectories claimed, and what fails is left out.

use std::sync::Arc;

use dart_core::{
    Batch, Error, ErrorKind, Group, Result, SampleOrigin, Trajectory, TrajectoryId, fault,
};

use super::{DataManager, LEASE};
use crate::{
    collate::{TrainingGroup, collate},
    groups::ReadyGroup,
    ledger::Plan,
    store::{Claim, Quarantined},
};

/// Why a trajectory cannot be had.
pub(super) enum Unreadable {
    /// Never again: it is gone or in quarantine.
    Lost,
    /// It may work the next time.
    Failed,
}

impl DataManager {
    /// A stored body. The outer error is of the store as a whole.
    pub(super) async fn read(
        &self,
        id: TrajectoryId,
    ) -> Result<Result<Option<Arc<Trajectory>>, Unreadable>> {
        match self.store.get(id).await {
            Ok(found) => Ok(Ok(found)),
            Err(error) if error.kind() == ErrorKind::Storage => {
                tracing::warn!(trajectory = %id, %error, "a trajectory cannot be read");
                let failed = self.store.fail(id, &reason(&error)).await?;
                Ok(Err(match failed {
                    Quarantined::Yes => Unreadable::Lost,
                    Quarantined::NotYet(_) => Unreadable::Failed,
                }))
            }
            Err(error) => Err(error),
        }
    }

    async fn load(
        &self,
        plan: &Plan,
    ) -> Result<Result<Vec<TrainingGroup>, (TrajectoryId, Unreadable)>> {
        let mut groups = Vec::with_capacity(plan.groups.len());
        for ReadyGroup { id, members, .. } in &plan.groups {
            let mut trajectories = Vec::with_capacity(members.len());
            for member in members {
                match self.read(member.trajectory).await? {
                    Ok(Some(trajectory)) => trajectories.push(trajectory),
                    Ok(None) => return Ok(Err((member.trajectory, Unreadable::Lost))),
                    Err(unreadable) => return Ok(Err((member.trajectory, unreadable))),
                }
            }
            groups.push(TrainingGroup {
                group: Group {
                    id: *id,
                    trajectories,
                },
                origins: members.iter().map(|member| member.origin).collect(),
            });
        }
        Ok(Ok(groups))
    }

    /// The planned batch, or `None` if the plan has fallen through meanwhile.
    pub(super) async fn carry_out(&self, plan: &Plan) -> Result<Option<Batch>> {
        let groups = match self.load(plan).await? {
            Ok(groups) => groups,
            Err((_, Unreadable::Failed)) => return Ok(None),
            Err((lost, Unreadable::Lost)) => {
                self.lose(lost);
                return Ok(None);
            }
        };
        let Some(claim) = self.claim(plan).await? else {
            return Ok(None);
        };
        fault::point("batch.claimed");
        let credit = self.lock().config().credit();
        let batch = collate(plan.batch, &groups, &credit)?;
        let handed_out = self.update(|ledger| {
            let handed_out = ledger.hand_out_batch(plan, batch.samples.len());
            if handed_out {
                ledger.hold(plan.batch, claim.clone());
            }
            handed_out
        });
        if handed_out {
            return Ok(Some(batch));
        }
        self.store.give_back(&claim).await?;
        Ok(None)
    }

    /// Claims the rollouts of the plan, or finds out which of them cannot be had.
    async fn claim(&self, plan: &Plan) -> Result<Option<Claim>> {
        let ids = plan.rollouts();
        match self.store.claim(&ids, &self.owner, LEASE).await {
            Ok(claim) => Ok(Some(claim)),
            Err(error) if error.kind() == ErrorKind::Stale => {
                for id in ids {
                    match self.store.claim(&[id], &self.owner, LEASE).await {
                        Ok(claim) => self.store.give_back(&claim).await?,
                        Err(error) if error.kind() == ErrorKind::Stale => {
                            tracing::warn!(%error, "left out of its batch");
                            self.lose(id);
                        }
                        Err(error) => return Err(error),
                    }
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn lose(&self, lost: TrajectoryId) {
        tracing::error!(trajectory = %lost, "a trajectory is lost to its group");
        self.update(|ledger| ledger.lose(lost));
    }
}

impl Plan {
    /// What the batch uses up.
    pub(crate) fn rollouts(&self) -> Vec<TrajectoryId> {
        rollouts(&self.groups)
    }
}

/// The trajectories of `groups`, those of the pool excepted.
pub(crate) fn rollouts(groups: &[ReadyGroup]) -> Vec<TrajectoryId> {
    let members = groups.iter().flat_map(|group| &group.members);
    members
        .filter(|member| member.origin != SampleOrigin::Pool)
        .map(|member| member.trajectory)
        .collect()
}

/// The error and its causes in one line.
fn reason(error: &Error) -> String {
    let mut reason = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let text = cause.to_string();
        if !reason.contains(&text) {
            reason.push_str(": ");
            reason.push_str(&text);
        }
        source = cause.source();
    }
    reason
}
