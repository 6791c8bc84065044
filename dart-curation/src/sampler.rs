//! Which task comes next, and with which seed.

use std::collections::BTreeMap;

use dart_core::TaskId;
use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::error::{CurationError, Result};

/// How tasks are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TaskChoice {
    /// In the order of the task list, over and over (paper: rotate after the last used task).
    #[default]
    Rotation,
    /// At random, weighted by p(1 − p) of the recent success rate p, the variance of a success:
    /// tasks that sometimes work teach most.
    Variance {
        /// Least weight of a task, so that none is forgotten; p(1 − p) is at most 0.25.
        floor: f64,
    },
}

/// Which tasks and seeds come next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplerConfig {
    /// How tasks are chosen. Default rotation (paper).
    pub choice: TaskChoice,
    /// First seed of the training range. Default 0.
    pub first_seed: u64,
    /// Seeds of a task, used in turn; without it every group gets a new seed. Default none: the
    /// simulator has endless layouts, and what is seen once is not learnt by heart.
    pub seeds_per_task: Option<u64>,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            choice: TaskChoice::Rotation,
            first_seed: 0,
            seeds_per_task: None,
        }
    }
}

impl SamplerConfig {
    pub(crate) fn check(&self) -> Result<()> {
        if self.seeds_per_task == Some(0) {
            return Err(CurationError::BadSetting {
                key: "sampler.seeds_per_task",
                rule: "is at least 1",
            });
        }
        if let TaskChoice::Variance { floor } = self.choice
            && (!floor.is_finite() || floor <= 0.0)
        {
            return Err(CurationError::BadSetting {
                key: "sampler.choice.floor",
                rule: "is a finite number above 0",
            });
        }
        Ok(())
    }

    /// The seed of the `visit`-th group (from 0) of a task.
    pub fn seed(&self, visit: u64) -> u64 {
        let offset = self.seeds_per_task.map_or(visit, |count| visit % count);
        self.first_seed.wrapping_add(offset)
    }
}

/// The index of the next task.
///
/// `turn` counts the groups opened so far; `rates` are recent success rates by task, 0.5 (the
/// largest weight) for tasks without any.
///
/// # Panics
/// If `tasks` is empty: checked when the curator is made.
pub fn next_task(
    choice: TaskChoice,
    tasks: &[TaskId],
    turn: u64,
    rates: &BTreeMap<TaskId, f64>,
    rng: &mut impl Rng,
) -> usize {
    match choice {
        TaskChoice::Rotation => (turn % tasks.len() as u64) as usize,
        TaskChoice::Variance { floor } => {
            let weight = |task: &TaskId| {
                let rate = rates.get(task).copied().unwrap_or(0.5);
                (rate * (1.0 - rate)).max(floor)
            };
            let mut left = rng.random::<f64>() * tasks.iter().map(weight).sum::<f64>();
            tasks
                .iter()
                .position(|task| {
                    left -= weight(task);
                    left < 0.0
                })
                .unwrap_or(tasks.len() - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn tasks() -> Vec<TaskId> {
        ["a", "b", "c"]
            .map(|name| TaskId::new(name).unwrap())
            .into()
    }

    #[test]
    fn rotation_visits_all_equally() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let turns: Vec<_> = (0..6)
            .map(|turn| {
                next_task(
                    TaskChoice::Rotation,
                    &tasks(),
                    turn,
                    &BTreeMap::new(),
                    &mut rng,
                )
            })
            .collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn variance_prefers_tasks_that_sometimes_work() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let rates = BTreeMap::from([
            (TaskId::new("a").unwrap(), 1.0),
            (TaskId::new("b").unwrap(), 0.5),
            (TaskId::new("c").unwrap(), 0.0),
        ]);
        let choice = TaskChoice::Variance { floor: 0.025 };
        let mut visits = [0; 3];
        for turn in 0..3000 {
            visits[next_task(choice, &tasks(), turn, &rates, &mut rng)] += 1;
        }
        // Weights .025 : .25 : .025, so 1/12, 10/12, 1/12 of 3000; ± 5 standard deviations.
        assert!((2398..=2602).contains(&visits[1]), "{visits:?}");
        assert!((174..=326).contains(&visits[0]), "{visits:?}");
    }

    #[test]
    fn seeds_stay_in_their_range() {
        let finite = SamplerConfig {
            first_seed: 100,
            seeds_per_task: Some(3),
            ..SamplerConfig::default()
        };
        let seeds: Vec<_> = (0..5).map(|visit| finite.seed(visit)).collect();
        assert_eq!(seeds, [100, 101, 102, 100, 101]);
        assert_eq!(SamplerConfig::default().seed(41), 41);
    }
}
