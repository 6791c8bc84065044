//! The books of the data manager: which slot is where, which group waits for which batch.
//!
//! Plain synchronous state without I/O, clock or threads; the manager keeps it behind one lock.
//! Bodies of trajectories are in the store: here are only their numbers. What a snapshot needs is
//! [`State`], all of it; the rest is derived or given.

mod batching;
mod dispatch;
mod intake;
mod restore;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use dart_core::{
    BatchId, CuratorStatus, GroupId, PolicyVersion, Split, Task, TaskId, TrajectoryId,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

pub(crate) use self::batching::{Pending, Plan};
use crate::{
    config::CurationConfig,
    error::{CurationError, Result},
    event::{CurationEvent, CurationEventSink},
    groups::{OpenGroup, ReadyGroup},
    pool::Pool,
    store::{Claim, Use},
};

/// Rewards over which the success rate of a progress display is taken.
const RECENT: usize = 100;

/// What is known of one task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskStats {
    /// Groups opened.
    visits: u64,
    /// Rollouts of its latest group.
    rollout_number: Option<u32>,
    /// Latest rewards, oldest first; as many as the largest rollout number.
    rewards: VecDeque<f64>,
    /// Steps of its longest success.
    longest_success: Option<u32>,
}

/// Numbers for displays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counters {
    trajectories: u64,
    aborted: u64,
    groups_without_spread: u64,
    groups_too_small: u64,
    groups_stale: u64,
    stale: u64,
    unreadable: u64,
}

/// Everything that a snapshot holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct State {
    format: u32,
    version: PolicyVersion,
    batches_consumed: u64,
    next_group: u64,
    next_batch: u64,
    rng: ChaCha8Rng,
    tasks: BTreeMap<TaskId, TaskStats>,
    open: BTreeMap<GroupId, OpenGroup>,
    ready: BTreeMap<GroupId, ReadyGroup>,
    /// Handed out before a restore, not committed: handed out again before all others.
    redo: BTreeMap<BatchId, Vec<ReadyGroup>>,
    /// Handed out, not committed.
    outstanding: BTreeMap<BatchId, Vec<ReadyGroup>>,
    pool: Pool,
    counters: Counters,
    recent: VecDeque<f64>,
}

impl State {
    const FORMAT: u32 = 1;

    fn new(seed: u64) -> Self {
        Self {
            format: Self::FORMAT,
            version: PolicyVersion::default(),
            batches_consumed: 0,
            next_group: 0,
            next_batch: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            tasks: BTreeMap::new(),
            open: BTreeMap::new(),
            ready: BTreeMap::new(),
            redo: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            pool: Pool::default(),
            counters: Counters::default(),
            recent: VecDeque::new(),
        }
    }

    /// Groups that wait for a batch or for the commit of theirs.
    fn pending(&self) -> impl Iterator<Item = &ReadyGroup> {
        let batches = self.redo.values().chain(self.outstanding.values());
        self.ready.values().chain(batches.flatten())
    }
}

/// Where a rollout in flight belongs.
#[derive(Clone, Copy, Debug)]
struct Place {
    group: GroupId,
    slot: usize,
}

/// The books.
pub(crate) struct Ledger {
    config: CurationConfig,
    tasks: BTreeMap<TaskId, Arc<Task>>,
    order: Vec<TaskId>,
    state: State,
    in_flight: BTreeMap<TrajectoryId, Place>,
    requested: bool,
    released: Vec<TrajectoryId>,
    /// Claims on the batches that are handed out.
    claims: BTreeMap<BatchId, Claim>,
    /// Uses since the last checkpoint.
    unsealed: Vec<Use>,
    events: Option<CurationEventSink>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl Ledger {
    pub(crate) fn new(config: CurationConfig, tasks: Vec<Arc<Task>>, seed: u64) -> Result<Self> {
        if tasks.is_empty() {
            return Err(CurationError::NoTasks);
        }
        let order: Vec<_> = tasks.iter().map(|task| task.id.clone()).collect();
        let mut by_id = BTreeMap::new();
        for task in tasks {
            if task.split != Split::Train {
                return Err(CurationError::HeldOutTask(
                    task.id.clone(),
                    task.split.name(),
                ));
            }
            if let Some(other) = by_id.insert(task.id.clone(), task) {
                return Err(CurationError::DuplicateTask(other.id.clone()));
            }
        }
        Ok(Self {
            config,
            tasks: by_id,
            order,
            state: State::new(seed),
            in_flight: BTreeMap::new(),
            requested: false,
            released: Vec::new(),
            claims: BTreeMap::new(),
            unsealed: Vec::new(),
            events: None,
        })
    }

    pub(crate) const fn config(&self) -> &CurationConfig {
        &self.config
    }

    pub(crate) const fn pool_len(&self) -> usize {
        self.state.pool.len()
    }

    pub(crate) fn set_events(&mut self, sink: CurationEventSink) {
        self.events = Some(sink);
    }

    /// The learner's version before the first commit.
    pub(crate) fn start_at(&mut self, version: PolicyVersion) {
        self.state.version = self.state.version.max(version);
        self.drop_stale();
    }

    pub(crate) fn status(&self) -> CuratorStatus {
        let State {
            counters, recent, ..
        } = &self.state;
        let redo = self.state.redo.values().map(Vec::len).sum::<usize>();
        CuratorStatus {
            in_flight: self.in_flight.len(),
            groups_ready: self.state.ready.len() + redo,
            groups_needed: self.config.groups_per_batch,
            trajectories: counters.trajectories,
            aborted: counters.aborted,
            groups_without_spread: counters.groups_without_spread,
            stale: counters.stale,
            recent_success: recent.iter().sum::<f64>() / recent.len().max(1) as f64,
        }
    }

    /// Trajectories whose bodies will not be asked for again, since the last call.
    pub(crate) fn take_released(&mut self) -> Vec<TrajectoryId> {
        std::mem::take(&mut self.released)
    }

    /// The learner's version.
    pub(crate) const fn version(&self) -> PolicyVersion {
        self.state.version
    }

    /// Remembers the claim on a batch that is handed out.
    pub(crate) fn hold(&mut self, batch: BatchId, claim: Claim) {
        self.claims.insert(batch, claim);
    }

    /// What was trained on since the last checkpoint, in order.
    pub(crate) fn unsealed(&self) -> &[Use] {
        &self.unsealed
    }

    /// The first `count` of these are in a checkpoint now.
    pub(crate) fn sealed(&mut self, count: usize) {
        self.unsealed.drain(..count.min(self.unsealed.len()));
    }

    /// What may still be asked for: by groups, the pool, and rollouts that may be stored already.
    pub(crate) fn needed(&self) -> Vec<TrajectoryId> {
        let state = &self.state;
        let open = state.open.values().flat_map(OpenGroup::members);
        let pending = state.pending().flat_map(|group| &group.members);
        let members = open.chain(pending.copied()).map(|member| member.trajectory);
        let recalled = self.recalled().into_iter().map(|issue| issue.trajectory);
        let in_flight = self.in_flight.keys().copied().chain(recalled);
        let mut needed: Vec<_> = members
            .chain(state.pool.trajectories())
            .chain(in_flight)
            .collect();
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// Gives up bodies, unless the pool or a group still needs them.
    fn release(&mut self, trajectories: impl IntoIterator<Item = TrajectoryId>) {
        let state = &self.state;
        let open = state.open.values().flat_map(OpenGroup::members);
        let pending = state.pending().flat_map(|group| &group.members);
        let needed: BTreeSet<_> = open
            .chain(pending.copied())
            .map(|member| member.trajectory)
            .chain(state.pool.trajectories())
            .collect();
        let free = trajectories.into_iter().filter(|id| !needed.contains(id));
        self.released.extend(free);
    }

    fn emit(&self, event: &CurationEvent) {
        if let Some(sink) = &self.events {
            sink(event);
        }
    }
}
