//! [`MemoryCurator`]: the smallest curator that keeps its contract.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use dart_core::{
    Batch, BatchId, BatchImage, Commit, Curator, CuratorStatus, Error, ErrorKind, Group, GroupId,
    Objective, Outcome, PolicyVersion, Prompt, Result, RolloutRequest, Sample, SampleOrigin, Task,
    Trajectory, TrajectoryId,
    advantage::{Deviation, step_wise_advantages},
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// Where a [`MemoryCurator`] keeps trajectories. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct TrajectoryShelf(Arc<Mutex<BTreeMap<TrajectoryId, Arc<Trajectory>>>>);

impl TrajectoryShelf {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TrajectoryId, Arc<Trajectory>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One trajectory.
    pub fn get(&self, id: TrajectoryId) -> Option<Arc<Trajectory>> {
        self.lock().get(&id).cloned()
    }

    /// Adds one.
    pub fn put(&self, trajectory: Trajectory) {
        self.lock().insert(trajectory.id, Arc::new(trajectory));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

/// The sizes of a [`MemoryCurator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCuratorConfig {
    /// Rollouts of a group. Default 4.
    pub group_size: u32,
    /// Groups of a batch. Default 2.
    pub groups_per_batch: usize,
    /// Staleness bound. Default 1.
    pub max_staleness: u64,
    /// Rollouts in flight at most. Default 16.
    pub max_in_flight: usize,
}

impl Default for MemoryCuratorConfig {
    fn default() -> Self {
        Self {
            group_size: 4,
            groups_per_batch: 2,
            max_staleness: 1,
            max_in_flight: 16,
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct OpenGroup {
    slots_left: u32,
    in_flight: BTreeSet<TrajectoryId>,
    scored: Vec<TrajectoryId>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    version: PolicyVersion,
    groups: u64,
    requests: u64,
    batches: u64,
    trajectories: u64,
    successes: u64,
    aborted: u64,
    without_spread: u64,
    stale: u64,
    open: BTreeMap<GroupId, OpenGroup>,
    ready: Vec<(GroupId, Vec<TrajectoryId>)>,
    /// Groups in batches that are not committed yet.
    given: BTreeMap<BatchId, usize>,
}

impl State {
    fn in_flight(&self) -> usize {
        self.open.values().map(|group| group.in_flight.len()).sum()
    }
}

/// A curator in memory: tasks in turn, complete groups only, no adaptation, no pool.
#[derive(Debug)]
pub struct MemoryCurator {
    config: MemoryCuratorConfig,
    tasks: Vec<Arc<Task>>,
    shelf: TrajectoryShelf,
    state: Mutex<State>,
    closed: Mutex<bool>,
    changed: Notify,
}

impl MemoryCurator {
    /// A curator of these tasks.
    ///
    /// # Panics
    /// If there is no task.
    pub fn new(config: MemoryCuratorConfig, tasks: Vec<Arc<Task>>, shelf: TrajectoryShelf) -> Self {
        assert!(!tasks.is_empty(), "a curator needs a task");
        Self {
            config,
            tasks,
            shelf,
            state: Mutex::default(),
            closed: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries `attempt` now and after every change, until it gives something or all is closed.
    async fn wait_for<T>(&self, attempt: impl Fn(&Self) -> Option<T> + Send + Sync) -> Option<T> {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the look, so that no change between look and wait is lost.
            changed.as_mut().enable();
            if self.is_closed() {
                return None;
            }
            if let Some(found) = attempt(self) {
                return Some(found);
            }
            changed.await;
        }
    }

    fn try_request(&self) -> Option<RolloutRequest> {
        let mut state = self.state();
        if state.in_flight() >= self.config.max_in_flight {
            return None;
        }
        let waiting = state.open.iter().find(|(_, group)| group.slots_left > 0);
        let id = match waiting {
            Some((id, _)) => *id,
            None => self.open_group(&mut state)?,
        };
        state.requests += 1;
        let number = state.requests;
        let group = state.open.get_mut(&id)?;
        group.slots_left -= 1;
        group.in_flight.insert(TrajectoryId(number.into()));
        let task = &self.tasks[id.0 as usize % self.tasks.len()];
        Some(RolloutRequest {
            trajectory: TrajectoryId(number.into()),
            group: id,
            task: task.clone(),
            seed: id.0,
            step_limit: task.horizon,
            temperature: 1.0,
            sampling_seed: number,
        })
    }

    /// A new group, unless a trajectory begun now might be too old when it is used.
    fn open_group(&self, state: &mut State) -> Option<GroupId> {
        let ahead = state.open.len() + state.ready.len() + state.given.values().sum::<usize>();
        let room = self.config.groups_per_batch * (self.config.max_staleness as usize + 1);
        if ahead >= room {
            return None;
        }
        let id = GroupId(state.groups);
        state.groups += 1;
        let group = OpenGroup {
            slots_left: self.config.group_size,
            ..OpenGroup::default()
        };
        state.open.insert(id, group);
        Some(id)
    }

    fn group(&self, id: GroupId, members: &[TrajectoryId]) -> Group {
        let trajectories = members
            .iter()
            .filter_map(|id| self.shelf.get(*id))
            .collect();
        Group { id, trajectories }
    }

    /// Called after every change, so that `status` and batches know fresh groups only.
    fn drop_stale(&self, state: &mut State) {
        let (version, bound) = (state.version, self.config.max_staleness);
        let mut kept = Vec::new();
        for (id, mut members) in std::mem::take(&mut state.ready) {
            let all = members.len();
            let fresh = |t: Arc<Trajectory>| t.staleness(version) <= bound;
            members.retain(|member| self.shelf.get(*member).is_some_and(fresh));
            state.stale += (all - members.len()) as u64;
            if self.group(id, &members).has_spread() {
                kept.push((id, members));
            }
        }
        state.ready = kept;
    }

    fn try_batch(&self) -> Option<Batch> {
        let mut state = self.state();
        let count = self.config.groups_per_batch;
        if state.ready.len() < count {
            return None;
        }
        let taken: Vec<_> = state.ready.drain(..count).collect();
        let id = BatchId(state.batches);
        state.batches += 1;
        state.given.insert(id, count);
        let groups = taken.iter().map(|(id, members)| self.group(*id, members));
        Some(collate(id, groups))
    }
}

/// The samples of whole groups.
fn collate(id: BatchId, groups: impl Iterator<Item = Group>) -> Batch {
    let mut batch = Batch {
        id,
        objective: Objective::PolicyGradient,
        images: Vec::new(),
        samples: Vec::new(),
    };
    for group in groups {
        let rewards: Vec<_> = group.rewards().iter().map(|r| r.value()).collect();
        let advantages = step_wise_advantages(&rewards, &group.lengths(), Deviation::Population);
        for (trajectory, advantage) in group.trajectories.iter().zip(advantages) {
            add(&mut batch, trajectory, advantage);
        }
    }
    batch
}

fn add(batch: &mut Batch, trajectory: &Trajectory, advantage: f64) {
    let first = batch.images.len() as u32;
    for (step, record) in trajectory.steps.iter().enumerate() {
        batch.images.push(BatchImage {
            frame: record.observation.frame.clone(),
            ui: record.observation.ui.clone(),
        });
        let decision = &record.decision;
        let mut images = decision.prompt.images.clone();
        for span in &mut images {
            span.image += first;
        }
        batch.samples.push(Sample {
            trajectory: trajectory.id,
            step: step as u32,
            group: trajectory.group,
            origin: SampleOrigin::Rollout,
            prompt: Prompt {
                token_ids: decision.prompt.token_ids.clone(),
                images,
            },
            response: decision.token_ids.clone(),
            rollout_log_probs: decision.rollout_log_probs.clone(),
            log_prob_kind: decision.log_prob_kind,
            temperature: decision.temperature,
            version: decision.version,
            advantages: vec![advantage; decision.token_ids.len()].into(),
        });
    }
}

fn fault(operation: &'static str, why: impl std::fmt::Display) -> Error {
    let message = format!("not a snapshot: {why}");
    Error::new(ErrorKind::Protocol, "memory curator", operation, message)
}

#[async_trait]
impl Curator for MemoryCurator {
    async fn next_request(&self) -> Result<Option<RolloutRequest>> {
        Ok(self.wait_for(Self::try_request).await)
    }

    async fn ingest(&self, trajectory: Trajectory) -> Result<()> {
        let mut state = self.state();
        let Some(group) = state.open.get_mut(&trajectory.group) else {
            return Ok(());
        };
        if !group.in_flight.remove(&trajectory.id) {
            return Ok(());
        }
        if trajectory.outcome == Outcome::Aborted {
            group.slots_left += 1;
            state.aborted += 1;
        } else {
            group.scored.push(trajectory.id);
            let complete = group.scored.len() == self.config.group_size as usize;
            let id = trajectory.group;
            state.trajectories += 1;
            state.successes += u64::from(trajectory.outcome.is_success());
            self.shelf
                .lock()
                .insert(trajectory.id, Arc::new(trajectory));
            let done = complete.then(|| state.open.remove(&id)).flatten();
            if let Some(done) = done {
                if self.group(id, &done.scored).has_spread() {
                    state.ready.push((id, done.scored));
                } else {
                    state.without_spread += 1;
                }
            }
        }
        self.drop_stale(&mut state);
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    async fn next_batch(&self) -> Result<Option<Batch>> {
        Ok(self.wait_for(Self::try_batch).await)
    }

    async fn commit(&self, commit: Commit) -> Result<()> {
        let mut state = self.state();
        state.given.remove(&commit.batch);
        state.version = commit.version;
        self.drop_stale(&mut state);
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    async fn snapshot(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(&*self.state()).map_err(|error| fault("snapshot", error))
    }

    async fn restore(&self, snapshot: &[u8]) -> Result<()> {
        let mut restored: State =
            serde_json::from_slice(snapshot).map_err(|error| fault("restore", error))?;
        // What was in flight is lost with the process: its slots are handed out again.
        for group in restored.open.values_mut() {
            group.slots_left += std::mem::take(&mut group.in_flight).len() as u32;
        }
        *self.state() = restored;
        Ok(())
    }

    fn status(&self) -> CuratorStatus {
        let state = self.state();
        CuratorStatus {
            in_flight: state.in_flight(),
            groups_ready: state.ready.len(),
            groups_needed: self.config.groups_per_batch,
            trajectories: state.trajectories,
            aborted: state.aborted,
            groups_without_spread: state.without_spread,
            stale: state.stale,
            recent_success: state.successes as f64 / state.trajectories.max(1) as f64,
        }
    }

    fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_waiters();
    }
}
