//! The experience pool: earlier successes, one of which stands in when every rollout failed
//! (arXiv 2509.23866 §3.3).
//!
//! The pool is an index; bodies are in the store. Pool samples keep their own recorded log-probs.

use std::collections::{BTreeMap, VecDeque};

use dart_core::{PolicyVersion, SampleOrigin, TaskId, TrajectoryId};
use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::{
    error::{CurationError, Result},
    groups::Member,
};

/// Which success is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolChoice {
    /// Any, at random (paper).
    #[default]
    Random,
    /// The one added last (released code).
    Newest,
}

/// The experience pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    /// Whether groups that failed throughout get a success. Default true (paper).
    pub enabled: bool,
    /// Whether successes of this run enter the pool too. Default false: the paper fills it
    /// beforehand.
    pub from_rollouts: bool,
    /// Which success is taken. Default random (paper).
    pub choice: PoolChoice,
    /// Successes kept for one task and seed; the oldest leaves. Default 4.
    pub per_instance: usize,
    /// Successes kept for one task, over all its seeds; the oldest leaves. Default 256: eight for
    /// each of the 32 instances that the warm start shows.
    pub per_task: usize,
    /// Successes kept in all; the oldest leaves. Default 4096.
    pub capacity: usize,
    /// Versions after which a success leaves; 0 means never. Default 0: one collected beforehand
    /// would be gone before a hard task first needs it.
    pub max_age_versions: u64,
    /// Times that one success is used; 0 means without bound. Default 0 (paper).
    pub max_uses: u32,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            from_rollouts: false,
            choice: PoolChoice::Random,
            per_instance: 4,
            per_task: 256,
            capacity: 4096,
            max_age_versions: 0,
            max_uses: 0,
        }
    }
}

impl PoolConfig {
    /// What the released code does: the newest success of the run.
    pub fn released() -> Self {
        Self {
            from_rollouts: true,
            choice: PoolChoice::Newest,
            ..Self::default()
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.per_instance == 0 || self.per_task == 0 || self.capacity == 0 {
            return Err(CurationError::BadSetting {
                key: "pool.per_instance, pool.per_task, pool.capacity",
                rule: "are at least 1; pool.enabled = false turns the pool off",
            });
        }
        Ok(())
    }
}

/// How a success came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provenance {
    /// A scripted expert showed it.
    Demonstration,
    /// It was brought in from another run.
    Imported,
    /// It was brought in, and a hint was taken out of its instruction.
    ImportedWithoutHint,
    /// It is a rollout of this run.
    Rollout,
}

/// One success in the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolEntry {
    /// Which trajectory.
    pub trajectory: TrajectoryId,
    /// Its steps.
    pub steps: u32,
    /// How it came to be.
    pub provenance: Provenance,
    /// Version of the oldest weights that acted in it.
    pub oldest_version: PolicyVersion,
    /// The learner's version when it was added.
    pub added_at: PolicyVersion,
    /// Times that it was used.
    pub uses: u32,
    order: u64,
}

impl PoolEntry {
    /// The entry as part of a group.
    pub const fn member(&self) -> Member {
        Member {
            trajectory: self.trajectory,
            reward: 1.0,
            steps: self.steps,
            oldest_version: self.oldest_version,
            origin: SampleOrigin::Pool,
        }
    }
}

/// What is told to the pool about a new success.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry {
    /// Which trajectory.
    pub trajectory: TrajectoryId,
    /// Its steps.
    pub steps: u32,
    /// How it came to be.
    pub provenance: Provenance,
    /// Version of the oldest weights that acted in it.
    pub oldest_version: PolicyVersion,
}

/// Successes by task and seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    instances: BTreeMap<TaskId, BTreeMap<u64, VecDeque<PoolEntry>>>,
    next_order: u64,
    len: usize,
}

impl Pool {
    /// Successes kept.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds nothing.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The successes of one task and seed, oldest first.
    pub fn entries(&self, task: &TaskId, seed: u64) -> impl Iterator<Item = &PoolEntry> {
        self.instances
            .get(task)
            .and_then(|seeds| seeds.get(&seed))
            .into_iter()
            .flatten()
    }

    /// Every trajectory in the pool.
    pub fn trajectories(&self) -> impl Iterator<Item = TrajectoryId> {
        self.instances
            .values()
            .flat_map(BTreeMap::values)
            .flatten()
            .map(|entry| entry.trajectory)
    }

    /// Adds a success; the oldest leave if there are too many. A trajectory that is in the pool
    /// already is not added again. Returns those that left.
    pub fn add(
        &mut self,
        config: &PoolConfig,
        (task, seed): (&TaskId, u64),
        new: NewEntry,
        learner: PolicyVersion,
    ) -> Vec<TrajectoryId> {
        if self
            .entries(task, seed)
            .any(|e| e.trajectory == new.trajectory)
        {
            return Vec::new();
        }
        let entry = PoolEntry {
            trajectory: new.trajectory,
            steps: new.steps,
            provenance: new.provenance,
            oldest_version: new.oldest_version,
            added_at: learner,
            uses: 0,
            order: self.next_order,
        };
        self.next_order += 1;
        self.len += 1;
        let instance = self.instances.entry(task.clone()).or_default();
        instance.entry(seed).or_default().push_back(entry);
        let mut left = Vec::new();
        if self.entries(task, seed).count() > config.per_instance {
            left.extend(self.remove_first(task, seed));
        }
        while self.of_task(task) > config.per_task
            && let Some((_, seed)) = self.oldest_instance(|other| other == task)
        {
            left.extend(self.remove_first(task, seed));
        }
        while self.len > config.capacity
            && let Some((task, seed)) = self.oldest_instance(|_| true)
        {
            left.extend(self.remove_first(&task, seed));
        }
        left
    }

    /// Successes of one task, over all its seeds.
    pub fn of_task(&self, task: &TaskId) -> usize {
        let seeds = self.instances.get(task).into_iter();
        seeds.flat_map(BTreeMap::values).map(VecDeque::len).sum()
    }

    /// A success of this task and seed, counted as used once more, and those that left because
    /// they are too old or used up.
    pub fn take(
        &mut self,
        config: &PoolConfig,
        (task, seed): (&TaskId, u64),
        learner: PolicyVersion,
        rng: &mut impl Rng,
    ) -> (Option<PoolEntry>, Vec<TrajectoryId>) {
        let Some(entries) = self
            .instances
            .get_mut(task)
            .and_then(|seeds| seeds.get_mut(&seed))
        else {
            return (None, Vec::new());
        };
        let expired = |entry: &PoolEntry| {
            let too_old = config.max_age_versions > 0
                && learner.since(entry.added_at) > config.max_age_versions;
            too_old || (config.max_uses > 0 && entry.uses >= config.max_uses)
        };
        let left: Vec<_> = entries
            .iter()
            .filter(|entry| expired(entry))
            .map(|entry| entry.trajectory)
            .collect();
        entries.retain(|entry| !expired(entry));
        self.len -= left.len();
        let chosen = match (config.choice, entries.len()) {
            (_, 0) => None,
            (PoolChoice::Newest, count) => Some(count - 1),
            (PoolChoice::Random, count) => Some(rng.random_range(0..count)),
        };
        let taken = chosen.map(|index| {
            entries[index].uses += 1;
            entries[index].clone()
        });
        (taken, left)
    }

    /// Forgets a trajectory whose body is gone.
    pub fn forget(&mut self, trajectory: TrajectoryId) {
        for entries in self.instances.values_mut().flat_map(BTreeMap::values_mut) {
            let before = entries.len();
            entries.retain(|entry| entry.trajectory != trajectory);
            self.len -= before - entries.len();
        }
    }

    fn remove_first(&mut self, task: &TaskId, seed: u64) -> Option<TrajectoryId> {
        let seeds = self.instances.get_mut(task)?;
        let entries = seeds.get_mut(&seed)?;
        let first = entries.pop_front()?;
        if entries.is_empty() {
            seeds.remove(&seed);
        }
        self.len -= 1;
        Some(first.trajectory)
    }

    /// Where the oldest success of all such tasks is.
    fn oldest_instance(&self, among: impl Fn(&TaskId) -> bool) -> Option<(TaskId, u64)> {
        self.instances
            .iter()
            .filter(|(task, _)| among(task))
            .flat_map(|(task, seeds)| {
                seeds
                    .iter()
                    .map(move |(seed, entries)| (task, seed, entries))
            })
            .filter_map(|(task, seed, entries)| Some((entries.front()?.order, task, *seed)))
            .min_by_key(|(order, ..)| *order)
            .map(|(_, task, seed)| (task.clone(), seed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn task(n: u8) -> TaskId {
        TaskId::new(format!("t{n}")).unwrap()
    }

    fn entry(n: u128) -> NewEntry {
        NewEntry {
            trajectory: TrajectoryId(n),
            steps: 3,
            provenance: Provenance::Demonstration,
            oldest_version: PolicyVersion(0),
        }
    }

    #[test]
    fn the_newest_or_any() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut pool = Pool::default();
        let config = PoolConfig::default();
        for n in 0..4 {
            pool.add(&config, (&task(0), 7), entry(n), PolicyVersion(0));
        }
        let newest = PoolConfig {
            choice: PoolChoice::Newest,
            ..config
        };
        let mut take = |config: &PoolConfig, seed| {
            pool.take(config, (&task(0), seed), PolicyVersion(1), &mut rng)
                .0
                .map(|entry| entry.trajectory.0)
        };
        assert_eq!(take(&newest, 7), Some(3));
        assert_eq!(take(&newest, 8), None, "another seed is another instance");
        let mut seen: Vec<_> = (0..100).filter_map(|_| take(&config, 7)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [0, 1, 2, 3]);
    }

    #[test]
    fn age_and_uses_are_bounded() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let config = PoolConfig {
            max_uses: 2,
            max_age_versions: 5,
            ..PoolConfig::default()
        };
        let mut pool = Pool::default();
        pool.add(&config, (&task(0), 0), entry(1), PolicyVersion(10));
        let mut take =
            |version| pool.take(&config, (&task(0), 0), PolicyVersion(version), &mut rng);
        assert_eq!(take(15).0.unwrap().uses, 1);
        assert_eq!(take(15).0.unwrap().uses, 2);
        assert_eq!(take(15), (None, vec![TrajectoryId(1)]), "used up");
        pool.add(&config, (&task(0), 0), entry(2), PolicyVersion(10));
        let taken = pool.take(&config, (&task(0), 0), PolicyVersion(16), &mut rng);
        assert_eq!(taken, (None, vec![TrajectoryId(2)]), "too old");
        assert!(pool.is_empty());
    }

    proptest! {
        #[test]
        fn bounds_hold_and_nothing_is_lost_silently(
            added in prop::collection::vec((0u8..3, 0u64..3), 1..60),
            per_instance in 1usize..4, per_task in 1usize..6, capacity in 1usize..10,
        ) {
            let config = PoolConfig { per_instance, per_task, capacity, ..PoolConfig::default() };
            let mut pool = Pool::default();
            let mut gone = 0;
            for (n, (t, seed)) in added.iter().enumerate() {
                gone += pool.add(&config, (&task(*t), *seed), entry(n as u128), PolicyVersion(0)).len();
                prop_assert!(pool.len() <= capacity);
                prop_assert!(pool.entries(&task(*t), *seed).count() <= per_instance);
                prop_assert!(pool.of_task(&task(*t)) <= per_task);
                prop_assert_eq!(pool.trajectories().count(), pool.len());
                prop_assert_eq!(pool.len() + gone, n + 1);
            }
            let newest = TrajectoryId(added.len() as u128 - 1);
            prop_assert!(pool.trajectories().any(|t| t == newest), "the newest always stays");
        }
    }
}
