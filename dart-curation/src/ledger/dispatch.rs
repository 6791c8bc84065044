//! Which rollout is handed out next.

use std::collections::BTreeMap;

use dart_core::{GroupId, RolloutRequest, TaskId, TrajectoryId};
use rand::Rng;

use super::{Ledger, Place, TaskStats};
use crate::{
    event::CurationEvent,
    groups::{Issue, OpenGroup},
    rollout_number::{recent_rate, rollout_number},
    sampler::{TaskChoice, next_task},
    staleness::{Load, dispatch_capacity, free_rollouts},
    trajectory_length::step_limit,
};

impl Ledger {
    /// The next rollout, or `None` while the bounds forbid one. Slots of open groups come first,
    /// oldest group first: a lost slot holds up its group, a new group nobody.
    pub(crate) fn next_request(&mut self) -> Option<RolloutRequest> {
        if free_rollouts(self.config.max_in_flight, self.in_flight.len()) == 0 {
            return None;
        }
        let waiting = |group: &OpenGroup| Some((group.id, group.waiting()?));
        let next = self.state.open.values().find_map(waiting);
        let (group, (slot, issue)) = match next {
            Some(next) => next,
            None if self.dispatch_capacity() > 0 => (self.open_group(), (0, None)),
            None => return None,
        };
        let again = self.state.open[&group].was_handed_out(slot);
        let issue = issue.unwrap_or_else(|| Issue {
            trajectory: TrajectoryId(self.state.rng.random()),
            sampling_seed: self.state.rng.random(),
        });
        self.requested = true;
        Some(self.hand_out(Place { group, slot }, issue, again))
    }

    fn hand_out(&mut self, place: Place, issue: Issue, again: bool) -> RolloutRequest {
        self.in_flight.insert(issue.trajectory, place);
        let group = self
            .state
            .open
            .get_mut(&place.group)
            .expect("a slot that is handed out belongs to an open group");
        group.hand_out(place.slot, issue);
        let request = RolloutRequest {
            trajectory: issue.trajectory,
            group: group.id,
            task: self.tasks[&group.task].clone(),
            seed: group.seed,
            step_limit: group.step_limit,
            temperature: self.config.temperature,
            sampling_seed: issue.sampling_seed,
        };
        self.emit(&CurationEvent::Request {
            trajectory: request.trajectory,
            group: request.group,
            task: request.task.id.clone(),
            seed: request.seed,
            step_limit: request.step_limit,
            again,
        });
        request
    }

    /// Groups that may be opened now.
    pub(super) fn dispatch_capacity(&self) -> u64 {
        let per_batch = self.config.groups_per_batch as u64;
        let consumed = self.state.batches_consumed;
        let load = Load {
            batches_consumed: consumed,
            accepted: consumed * per_batch + self.state.pending().count() as u64,
            running: self.state.open.len() as u64,
        };
        dispatch_capacity(self.config.max_staleness, per_batch, load)
    }

    fn open_group(&mut self) -> GroupId {
        let rates = match self.config.sampler.choice {
            TaskChoice::Rotation => BTreeMap::new(),
            TaskChoice::Variance { .. } => self.rates(),
        };
        let index = next_task(
            self.config.sampler.choice,
            &self.order,
            self.state.next_group,
            &rates,
            &mut self.state.rng,
        );
        let task = self.order[index].clone();
        let visits = self.state.tasks.get(&task).map_or(0, |stats| stats.visits);
        let seed = self.config.sampler.seed(visits);
        let id = GroupId(self.state.next_group);
        self.reopen_group(id, (&task, seed), 0);
        id
    }

    /// Opens the group `id` of a task instance with at least `least` slots.
    pub(super) fn reopen_group(&mut self, id: GroupId, (task, seed): (&TaskId, u64), least: u32) {
        let horizon = self.tasks[task].horizon;
        let stats = self.state.tasks.entry(task.clone()).or_default();
        let visit = stats.visits;
        stats.visits += 1;
        let lengths = &self.config.trajectory_length;
        let limit = step_limit(lengths, stats.longest_success, visit, horizon);
        let numbers = &self.config.rollout_number;
        let size = if numbers.enabled {
            let window = stats.rollout_number.unwrap_or(numbers.max);
            rollout_number(numbers, recent_rate(stats.rewards.iter().copied(), window))
        } else {
            self.config.rollouts_per_group
        };
        stats.rollout_number = Some(size);
        self.state.next_group = id.0 + 1;
        let group = OpenGroup::new(id, task.clone(), seed, limit, size.max(least));
        self.state.open.insert(id, group);
    }

    fn rates(&self) -> BTreeMap<TaskId, f64> {
        let rate = |stats: &TaskStats| {
            let window = stats.rewards.len() as u32;
            recent_rate(stats.rewards.iter().copied(), window)
        };
        self.state
            .tasks
            .iter()
            .filter(|(_, stats)| !stats.rewards.is_empty())
            .map(|(task, stats)| (task.clone(), rate(stats)))
            .collect()
    }
}
