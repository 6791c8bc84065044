//! What becomes of a trajectory that came back.

use dart_core::{GroupId, Reward, SampleOrigin, StopReason, Trajectory, TrajectoryId};
use rand::Rng;

use super::{Ledger, Place, RECENT};
use crate::{
    error::{CurationError, Result},
    event::CurationEvent,
    groups::{DropReason, Member, ReadyGroup},
    pool::{NewEntry, Provenance},
};

impl Ledger {
    /// Whether `trajectory` answers a request in flight; an answer to none is ignored.
    ///
    /// # Errors
    /// [`CurationError::ForeignTrajectory`] if it answers one but is of another group, task or seed.
    pub(crate) fn expects(&self, trajectory: &Trajectory) -> Result<bool> {
        let Some(place) = self.in_flight.get(&trajectory.id) else {
            return Ok(false);
        };
        let group = &self.state.open[&place.group];
        let same = trajectory.group == group.id
            && trajectory.task.id == group.task
            && trajectory.seed == group.seed;
        same.then_some(true)
            .ok_or(CurationError::ForeignTrajectory(trajectory.id))
    }

    /// Enters a trajectory, which is durable by now, into the books.
    pub(crate) fn take(&mut self, trajectory: &Trajectory) {
        let Some(place) = self.in_flight.remove(&trajectory.id) else {
            return;
        };
        self.emit(&CurationEvent::Ingest {
            trajectory: trajectory.id,
            group: place.group,
            outcome: trajectory.outcome,
            stop: trajectory.stop,
            steps: trajectory.steps.len() as u32,
            oldest_version: trajectory.oldest_version(),
        });
        match trajectory.outcome.reward() {
            Some(reward) => self.take_scored(place, trajectory, reward),
            None => self.take_aborted(place, trajectory),
        }
        if self.state.open[&place.group].is_complete() {
            self.close_group(place.group);
        }
    }

    /// Adds a success to the pool.
    pub(crate) fn add_to_pool(&mut self, trajectory: &Trajectory, provenance: Provenance) {
        let new = NewEntry {
            trajectory: trajectory.id,
            steps: trajectory.steps.len() as u32,
            provenance,
            oldest_version: trajectory.oldest_version().unwrap_or_default(),
        };
        let instance = (&trajectory.task.id, trajectory.seed);
        let state = &mut self.state;
        let left = state
            .pool
            .add(&self.config.pool, instance, new, state.version);
        self.release(left);
    }

    fn take_aborted(&mut self, place: Place, trajectory: &Trajectory) {
        self.state.counters.aborted += 1;
        let called_off = trajectory.stop == StopReason::Cancelled;
        let max_attempts = self.config.max_attempts;
        if let Some(group) = self.state.open.get_mut(&place.group) {
            group.abort(place.slot, called_off, max_attempts);
        }
        self.released.push(trajectory.id);
    }

    fn take_scored(&mut self, place: Place, trajectory: &Trajectory, reward: Reward) {
        self.record(trajectory, reward);
        if reward.is_success() && self.config.pool.from_rollouts && !trajectory.steps.is_empty() {
            self.add_to_pool(trajectory, Provenance::Rollout);
        }
        let member = Member {
            trajectory: trajectory.id,
            reward: reward.value(),
            steps: trajectory.steps.len() as u32,
            oldest_version: trajectory.oldest_version().unwrap_or_default(),
            origin: SampleOrigin::Rollout,
        };
        if let Some(group) = self.state.open.get_mut(&place.group) {
            group.score(place.slot, member);
        }
    }

    fn record(&mut self, trajectory: &Trajectory, reward: Reward) {
        let window = self.config.rollout_number.max as usize;
        let state = &mut self.state;
        state.counters.trajectories += 1;
        state.recent.push_back(reward.value());
        if state.recent.len() > RECENT {
            state.recent.pop_front();
        }
        let stats = state.tasks.entry(trajectory.task.id.clone()).or_default();
        stats.rewards.push_back(reward.value());
        if stats.rewards.len() > window {
            stats.rewards.pop_front();
        }
        if reward.is_success() {
            let steps = trajectory.steps.len() as u32;
            stats.longest_success = stats.longest_success.max(Some(steps));
        }
    }

    fn close_group(&mut self, id: GroupId) {
        let Some(open) = self.state.open.remove(&id) else {
            return;
        };
        let all: Vec<_> = open.members();
        let mut group = open.close();
        let min_size = self.config.min_group_size;
        if group.fault(min_size) == Some(DropReason::NoSpread) && group.all_failed() {
            self.rescue(&mut group);
        }
        if let Some(reason) = group.fault(min_size) {
            self.drop_group(&group, reason);
        } else {
            self.emit(&CurationEvent::GroupReady {
                group: group.id,
                task: group.task.clone(),
                seed: group.seed,
                rewards: group.members.iter().map(|member| member.reward).collect(),
                origins: group.members.iter().map(|member| member.origin).collect(),
            });
            self.state.ready.insert(group.id, group);
            self.drop_stale();
        }
        self.release(all.into_iter().map(|member| member.trajectory));
    }

    /// Puts a success from the pool in the place of one failure.
    fn rescue(&mut self, group: &mut ReadyGroup) {
        if !self.config.pool.enabled {
            return;
        }
        let state = &mut self.state;
        let instance = (&group.task, group.seed);
        let (success, left) =
            state
                .pool
                .take(&self.config.pool, instance, state.version, &mut state.rng);
        if let Some(success) = success {
            let place = state.rng.random_range(0..group.members.len());
            group.members[place] = success.member();
        }
        self.release(left);
    }

    pub(super) fn drop_group(&mut self, group: &ReadyGroup, reason: DropReason) {
        let counters = &mut self.state.counters;
        match reason {
            DropReason::NoSpread => counters.groups_without_spread += 1,
            DropReason::Stale => counters.groups_stale += 1,
            DropReason::TooSmall => counters.groups_too_small += 1,
        }
        self.emit(&CurationEvent::GroupDropped {
            group: group.id,
            task: group.task.clone(),
            reason,
            rewards: group.members.iter().map(|member| member.reward).collect(),
        });
        let bodies: Vec<TrajectoryId> = group.members.iter().map(|m| m.trajectory).collect();
        self.release(bodies);
    }
}
