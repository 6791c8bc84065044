//! Group formation: slots of one request, filled by trajectories, retried one by one.
//!
//! A slot whose rollout was aborted is handed out again, alone; the others keep what they have.
//! With 5 % aborts and 8 slots, discarding whole groups would lose a third of the work.

use dart_core::{GroupId, PolicyVersion, SampleOrigin, TaskId, TrajectoryId};
use serde::{Deserialize, Serialize};

use crate::staleness;

/// What group statistics need of a trajectory. Its body is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Which trajectory.
    pub trajectory: TrajectoryId,
    /// Its reward.
    pub reward: f64,
    /// Its steps.
    pub steps: u32,
    /// Version of the oldest weights that acted in it.
    pub oldest_version: PolicyVersion,
    /// Where it comes from.
    pub origin: SampleOrigin,
}

impl Member {
    /// Whether the staleness bound applies: pool samples have bounds of their own.
    pub const fn is_stale(&self, learner: PolicyVersion, max_staleness: u64) -> bool {
        !matches!(self.origin, SampleOrigin::Pool)
            && staleness::is_stale(learner, self.oldest_version, max_staleness)
    }
}

/// What makes one hand-out of a slot unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issue {
    /// Identity of the trajectory to be made.
    pub trajectory: TrajectoryId,
    /// Seeds its draws.
    pub sampling_seed: u64,
}

/// Where one slot stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slot {
    /// To be handed out; after a restore, again with the same identity.
    Waiting(Option<Issue>),
    /// Handed out.
    InFlight(Issue),
    /// Back, with a reward.
    Scored(Member),
    /// Aborted too often.
    GivenUp,
}

/// A group whose rollouts are not all back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenGroup {
    /// Its identity.
    pub id: GroupId,
    /// The task of all its slots.
    pub task: TaskId,
    /// The seed of all its slots.
    pub seed: u64,
    /// The step limit of all its slots.
    pub step_limit: u32,
    slots: Vec<Slot>,
    attempts: Vec<u32>,
}

impl OpenGroup {
    /// A group of `size` slots, none handed out yet.
    pub fn new(id: GroupId, task: TaskId, seed: u64, step_limit: u32, size: u32) -> Self {
        Self {
            id,
            task,
            seed,
            step_limit,
            slots: vec![Slot::Waiting(None); size as usize],
            attempts: vec![0; size as usize],
        }
    }

    /// Its slots, in order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The first slot to be handed out, and the identity that it has to have, if any.
    pub fn waiting(&self) -> Option<(usize, Option<Issue>)> {
        self.slots
            .iter()
            .enumerate()
            .find_map(|(index, slot)| match slot {
                Slot::Waiting(issue) => Some((index, *issue)),
                _ => None,
            })
    }

    /// Whether `slot` was handed out before.
    pub fn was_handed_out(&self, slot: usize) -> bool {
        self.attempts[slot] > 0
    }

    /// Slots that were in flight at a snapshot and have not been handed out since.
    pub fn recalled(&self) -> impl Iterator<Item = (usize, Issue)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| match slot {
                Slot::Waiting(Some(issue)) => Some((index, *issue)),
                _ => None,
            })
    }

    /// Marks `slot` as handed out.
    pub fn hand_out(&mut self, slot: usize, issue: Issue) {
        self.attempts[slot] += 1;
        self.slots[slot] = Slot::InFlight(issue);
    }

    /// Takes a slot back without a result. It waits again, or is given up after `max_attempts`;
    /// an attempt that was called off does not count.
    pub fn abort(&mut self, slot: usize, called_off: bool, max_attempts: u32) {
        if called_off {
            self.attempts[slot] -= 1;
        }
        self.slots[slot] = if self.attempts[slot] >= max_attempts {
            Slot::GivenUp
        } else {
            Slot::Waiting(None)
        };
    }

    /// Takes a slot back with a result.
    pub fn score(&mut self, slot: usize, member: Member) {
        self.slots[slot] = Slot::Scored(member);
    }

    /// After a restore nobody works on any slot: those in flight wait again, as they were.
    pub fn recall(&mut self) {
        for (slot, attempts) in self.slots.iter_mut().zip(&mut self.attempts) {
            if let Slot::InFlight(issue) = *slot {
                *slot = Slot::Waiting(Some(issue));
                *attempts -= 1;
            }
        }
    }

    /// Whether every slot is scored or given up.
    pub fn is_complete(&self) -> bool {
        self.slots
            .iter()
            .all(|slot| matches!(slot, Slot::Scored(_) | Slot::GivenUp))
    }

    /// What has come back so far, in order of the slots.
    pub fn members(&self) -> Vec<Member> {
        self.slots
            .iter()
            .filter_map(|slot| match slot {
                Slot::Scored(member) => Some(*member),
                _ => None,
            })
            .collect()
    }

    /// The group with what has come back. Trajectories without steps hold nothing to train on
    /// and are left out.
    pub fn close(self) -> ReadyGroup {
        let mut members = self.members();
        members.retain(|member| member.steps > 0);
        ReadyGroup {
            id: self.id,
            task: self.task,
            seed: self.seed,
            members,
        }
    }
}

/// Why a group is not trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// All rewards are equal.
    NoSpread,
    /// Its trajectories became too old.
    Stale,
    /// Too many slots were given up or could not be read back.
    TooSmall,
}

/// A group whose rollouts are all back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadyGroup {
    /// Its identity.
    pub id: GroupId,
    /// The task of all its trajectories.
    pub task: TaskId,
    /// The seed of all its trajectories.
    pub seed: u64,
    /// What there is to train on.
    pub members: Vec<Member>,
}

impl ReadyGroup {
    /// Why the group teaches nothing, if so.
    pub fn fault(&self, min_size: usize) -> Option<DropReason> {
        if self.members.len() < min_size {
            return Some(DropReason::TooSmall);
        }
        let first = self.members[0].reward;
        let spread = self.members.iter().any(|member| member.reward != first);
        (!spread).then_some(DropReason::NoSpread)
    }

    /// Whether no trajectory succeeded.
    pub fn all_failed(&self) -> bool {
        self.members.iter().all(|member| member.reward < 1.0)
    }

    /// Groups are trained on in this order: oldest weights first.
    pub fn age_order(&self) -> (PolicyVersion, GroupId) {
        let oldest = self
            .members
            .iter()
            .filter(|member| member.origin != SampleOrigin::Pool)
            .map(|member| member.oldest_version)
            .min();
        (oldest.unwrap_or_default(), self.id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn group(size: u32) -> OpenGroup {
        OpenGroup::new(GroupId(1), TaskId::new("t").unwrap(), 5, 10, size)
    }

    fn issue(n: u128) -> Issue {
        Issue {
            trajectory: TrajectoryId(n),
            sampling_seed: n as u64,
        }
    }

    fn member(n: u128, reward: f64) -> Member {
        Member {
            trajectory: TrajectoryId(n),
            reward,
            steps: 2,
            oldest_version: PolicyVersion(3),
            origin: SampleOrigin::Rollout,
        }
    }

    #[test]
    fn an_aborted_slot_alone_waits_again() {
        let mut group = group(2);
        group.hand_out(0, issue(1));
        group.hand_out(1, issue(2));
        group.score(1, member(2, 1.0));
        group.abort(0, false, 2);
        assert_eq!(group.waiting(), Some((0, None)));
        assert_eq!(group.slots()[1], Slot::Scored(member(2, 1.0)));
        group.hand_out(0, issue(3));
        group.abort(0, false, 2);
        assert_eq!(group.waiting(), None, "given up after two attempts");
        assert!(group.is_complete());
        assert_eq!(group.close().fault(2), Some(DropReason::TooSmall));
    }

    #[test]
    fn a_called_off_attempt_does_not_count() {
        let mut group = group(1);
        for n in 0..5 {
            group.hand_out(0, issue(n));
            group.abort(0, true, 2);
        }
        assert!(group.waiting().is_some());
    }

    #[test]
    fn recalled_slots_keep_their_identity() {
        let mut group = group(2);
        group.hand_out(0, issue(9));
        group.recall();
        assert_eq!(group.waiting(), Some((0, Some(issue(9)))));
    }

    #[test]
    fn spread_is_needed() {
        let ready = |rewards: &[f64]| ReadyGroup {
            id: GroupId(0),
            task: TaskId::new("t").unwrap(),
            seed: 0,
            members: rewards.iter().map(|reward| member(0, *reward)).collect(),
        };
        assert_eq!(ready(&[1.0, 1.0]).fault(2), Some(DropReason::NoSpread));
        assert_eq!(ready(&[0.5, 0.0]).fault(2), None);
        assert_eq!(ready(&[1.0]).fault(2), Some(DropReason::TooSmall));
        assert_eq!(ready(&[]).fault(2), Some(DropReason::TooSmall));
        assert!(ready(&[0.5, 0.0]).all_failed());
    }

    proptest! {
        /// Slots are conserved whatever happens to them, and a group always completes.
        #[test]
        fn slots_are_conserved(size in 1u32..9, fates in prop::collection::vec(0u8..3, 200)) {
            let mut group = group(size);
            let max_attempts = 3;
            let mut fates = fates.into_iter().cycle();
            let mut handed_out = 0u128;
            while let Some((slot, _)) = group.waiting() {
                handed_out += 1;
                group.hand_out(slot, issue(handed_out));
                match fates.next().unwrap() {
                    0 => group.abort(slot, false, max_attempts),
                    _ => group.score(slot, member(handed_out, 1.0)),
                }
                prop_assert_eq!(group.slots().len(), size as usize);
            }
            prop_assert!(group.is_complete());
            prop_assert!(handed_out <= u128::from(size * max_attempts));
        }
    }
}
