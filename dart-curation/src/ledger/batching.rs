//! Which groups make the next batch, and what a commit changes.

use dart_core::{BatchId, Commit, PolicyVersion, SampleOrigin, TrajectoryId};

use super::{Ledger, State};
use crate::{
    error::{CurationError, Result},
    event::CurationEvent,
    groups::{DropReason, Member, ReadyGroup},
    manager::rollouts,
    store::Use,
};

/// A batch that could be handed out now. Nothing has changed yet: bodies have to be loaded first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) batch: BatchId,
    pub(crate) groups: Vec<ReadyGroup>,
}

/// What a commit finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// The batch was handed out since the last restore.
    Claimed,
    /// It was handed out before; its trajectories have to be claimed again.
    Unclaimed(Vec<TrajectoryId>),
    /// It was committed before: nothing to do.
    Already,
}

impl Ledger {
    /// The next batch, or `None` while too few groups are ready.
    pub(crate) fn plan(&self) -> Option<Plan> {
        if let Some((batch, groups)) = self.state.redo.first_key_value() {
            return Some(Plan {
                batch: *batch,
                groups: groups.clone(),
            });
        }
        if self.state.ready.len() < self.config.groups_per_batch {
            return None;
        }
        let mut groups: Vec<_> = self.state.ready.values().collect();
        groups.sort_by_key(|group| group.age_order());
        groups.truncate(self.config.max_groups_per_batch);
        Some(Plan {
            batch: BatchId(self.state.next_batch),
            groups: groups.into_iter().cloned().collect(),
        })
    }

    /// Hands out the planned batch, unless something about it has changed since.
    pub(crate) fn hand_out_batch(&mut self, plan: &Plan, samples: usize) -> bool {
        if !self.still_holds(plan) {
            return false;
        }
        let learner = self.version_at_consumption();
        if self.state.redo.remove(&plan.batch).is_none() {
            self.state.next_batch += 1;
            for group in &plan.groups {
                self.state.ready.remove(&group.id);
            }
        }
        self.emit_batch(plan, samples, learner);
        self.state
            .outstanding
            .insert(plan.batch, plan.groups.clone());
        self.drop_stale();
        true
    }

    /// Whether the planned groups are all there and as they were. What became ready since the plan
    /// was made waits for the next batch: otherwise a busy ring could put this one off again and
    /// again.
    fn still_holds(&self, plan: &Plan) -> bool {
        let State {
            redo,
            ready,
            next_batch,
            ..
        } = &self.state;
        if let Some(groups) = redo.get(&plan.batch) {
            return *groups == plan.groups;
        }
        let waits = |group: &ReadyGroup| ready.get(&group.id) == Some(group);
        plan.batch.0 == *next_batch && plan.groups.iter().all(waits)
    }

    fn emit_batch(&self, plan: &Plan, samples: usize, learner: PolicyVersion) {
        let members = || plan.groups.iter().flat_map(|group| &group.members);
        self.emit(&CurationEvent::Batch {
            batch: plan.batch,
            groups: plan.groups.iter().map(|group| group.id).collect(),
            trajectories: members().count(),
            rollouts: plan.rollouts(),
            samples,
            max_staleness: members()
                .filter(|member| member.origin != SampleOrigin::Pool)
                .map(|member| learner.since(member.oldest_version))
                .max()
                .unwrap_or(0),
        });
    }

    /// Takes a trajectory whose body is gone out of its group.
    pub(crate) fn lose(&mut self, lost: TrajectoryId) {
        self.state.counters.unreadable += 1;
        self.state.pool.forget(lost);
        let keep = |member: &Member| member.trajectory != lost;
        self.retain_members(keep, DropReason::TooSmall);
        for groups in self.state.redo.values_mut() {
            for group in groups.iter_mut() {
                group.members.retain(keep);
            }
            groups.retain(|group| group.fault(self.config.min_group_size).is_none());
        }
        self.state.redo.retain(|_, groups| !groups.is_empty());
    }

    /// Where the batch of a commit stands.
    pub(crate) fn pending_commit(&self, commit: &Commit) -> Result<Pending> {
        let state = &self.state;
        let groups = state
            .outstanding
            .get(&commit.batch)
            .or_else(|| state.redo.get(&commit.batch));
        let Some(groups) = groups else {
            return if commit.batch.0 < state.next_batch {
                Ok(Pending::Already)
            } else {
                Err(CurationError::UnknownBatch(commit.batch))
            };
        };
        if commit.version < state.version {
            return Err(CurationError::VersionBack {
                batch: commit.batch,
                from: state.version.0,
                to: commit.version.0,
            });
        }
        Ok(if self.claims.contains_key(&commit.batch) {
            Pending::Claimed
        } else {
            Pending::Unclaimed(rollouts(groups))
        })
    }

    /// The batch is trained on. It counts as used with the next checkpoint.
    pub(crate) fn commit(&mut self, commit: &Commit) {
        let outstanding = self.state.outstanding.remove(&commit.batch);
        let redo = self.state.redo.remove(&commit.batch);
        let Some(groups) = outstanding.or(redo) else {
            return;
        };
        if let Some(claim) = self.claims.remove(&commit.batch) {
            self.unsealed.push(Use {
                batch: commit.batch,
                version: commit.version,
                claim,
            });
        }
        self.state.batches_consumed += 1;
        self.state.version = self.state.version.max(commit.version);
        self.emit(&CurationEvent::Commit {
            batch: commit.batch,
            version: commit.version,
        });
        self.drop_stale();
        let members = groups.iter().flat_map(|group| &group.members);
        self.release(members.map(|member| member.trajectory));
    }

    /// The learner's version when a batch that is handed out now is trained on: those handed out
    /// before come first.
    fn version_at_consumption(&self) -> PolicyVersion {
        PolicyVersion(self.state.version.0 + self.state.outstanding.len() as u64)
    }

    /// The hard check: what waits for a batch is fresh enough for the next one. Called whenever
    /// something joins, or the version at consumption rises.
    pub(super) fn drop_stale(&mut self) {
        let learner = self.version_at_consumption();
        let max_staleness = self.config.max_staleness;
        let gone = self.retain_members(
            |member| !member.is_stale(learner, max_staleness),
            DropReason::Stale,
        );
        self.state.counters.stale += gone;
    }

    /// Keeps the members for which `keep` holds, drops the groups that teach nothing without the
    /// others, and returns how many members went.
    fn retain_members(&mut self, keep: impl Fn(&Member) -> bool, reason: DropReason) -> u64 {
        let mut gone = Vec::new();
        let mut dropped = Vec::new();
        for group in self.state.ready.values_mut() {
            let before = gone.len();
            gone.extend(group.members.iter().filter(|member| !keep(member)).copied());
            if gone.len() > before {
                group.members.retain(&keep);
                if group.fault(self.config.min_group_size).is_some() {
                    dropped.push(group.id);
                }
            }
        }
        for id in dropped {
            if let Some(group) = self.state.ready.remove(&id) {
                self.drop_group(&group, reason);
            }
        }
        if !gone.is_empty() {
            self.release(gone.iter().map(|member| member.trajectory));
        }
        gone.len() as u64
    }
}
