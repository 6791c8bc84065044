//! Demonstrations on their way from the experts to the learner.

use std::{collections::VecDeque, sync::Arc};

use anyhow::{Context, Result};
use dart_core::{Batch, BatchId, DemonstrationEncoder, EnvironmentFactory, Task, Trajectory};
use dart_curation::imitation_batch;
use dart_rollout::{Demonstration, DemonstrationPlan, run_demonstration_with};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

/// First seed of demonstrations: far from those of rollouts, which count from 0, and without the
/// high bit that marks held-out seeds.
const FIRST_SEED: u64 = 1 << 40;

/// Demonstrations that wait for the learner at most.
const QUEUE: usize = 64;

/// What experts need in order to demonstrate.
#[derive(Clone)]
pub(crate) struct Experts {
    pub(crate) factory: Arc<dyn EnvironmentFactory>,
    pub(crate) encoder: Arc<dyn DemonstrationEncoder>,
    pub(crate) tasks: Vec<Arc<Task>>,
    pub(crate) perturb: f64,
    pub(crate) seed: u64,
    pub(crate) cancel: CancellationToken,
    /// Episodes that were shown before, by the same experts in an earlier process.
    pub(crate) skip: usize,
}

impl Experts {
    /// Starts `environments` experts, which demonstrate the tasks in turn, `limit` episodes in all
    /// (endlessly without one). Only successes arrive. The experts end when the receiver is dropped.
    pub(crate) fn start(
        &self,
        environments: usize,
        limit: Option<usize>,
    ) -> (mpsc::Receiver<Demonstration>, JoinSet<Result<()>>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut running = JoinSet::new();
        for first in 0..environments {
            let episodes = (self.skip + first..limit.unwrap_or(usize::MAX)).step_by(environments);
            running.spawn(self.clone().demonstrate(episodes, sender.clone()));
        }
        (receiver, running)
    }

    async fn demonstrate(
        self,
        episodes: impl Iterator<Item = usize> + Send,
        sender: mpsc::Sender<Demonstration>,
    ) -> Result<()> {
        let mut environment = self.factory.create_demonstrator().await?;
        for episode in episodes {
            let plan = self.plan(episode);
            let shown = run_demonstration_with(&mut *environment, &*self.encoder, &plan).await;
            let shown = shown.with_context(|| format!("demonstrating {}", plan.task.id))?;
            if self.cancel.is_cancelled() {
                break;
            }
            if shown.trajectory.outcome.is_success() && sender.send(shown).await.is_err() {
                break;
            }
        }
        Ok(environment.close().await?)
    }

    fn plan(&self, episode: usize) -> DemonstrationPlan {
        let task = Arc::clone(&self.tasks[episode % self.tasks.len()]);
        let visit = (episode / self.tasks.len()) as u64;
        // Runs of different seeds see different demonstrations.
        let seed = FIRST_SEED + ((self.seed % (1 << 20)) << 32) % (1 << 40) + visit;
        let mut plan = DemonstrationPlan::new(task, seed);
        plan.perturb = self.perturb;
        plan.perturb_seed = self.seed;
        plan
    }

    /// One demonstration of each task for each of `seeds`, for the experience pool.
    pub(crate) async fn instances(&self, seeds: std::ops::Range<u64>) -> Result<Vec<Trajectory>> {
        let mut environment = self.factory.create_demonstrator().await?;
        let mut shown = Vec::new();
        for seed in seeds {
            for task in &self.tasks {
                if self.cancel.is_cancelled() {
                    break;
                }
                let plan = DemonstrationPlan::new(Arc::clone(task), seed);
                let demonstration =
                    run_demonstration_with(&mut *environment, &*self.encoder, &plan).await?;
                shown.push(demonstration.trajectory);
            }
        }
        environment.close().await?;
        shown.retain(|trajectory| trajectory.outcome.is_success());
        Ok(shown)
    }
}

/// Demonstrations that the learner draws its batches from.
#[derive(Debug)]
pub(crate) struct Buffer {
    items: VecDeque<Item>,
    capacity: usize,
    reuse: u32,
    /// Whether no new ones will come, so that none may leave.
    complete: bool,
    arrived: usize,
    rng: ChaCha8Rng,
}

#[derive(Debug)]
struct Item {
    demonstration: Demonstration,
    uses: u32,
}

impl Buffer {
    pub(crate) fn new(capacity: usize, reuse: u32, rng: ChaCha8Rng) -> Self {
        Self {
            items: VecDeque::new(),
            capacity,
            reuse,
            complete: false,
            arrived: 0,
            rng,
        }
    }

    pub(crate) fn push(&mut self, demonstration: Demonstration) {
        self.arrived += 1;
        if self.items.len() >= self.capacity {
            self.items.pop_front();
        }
        self.items.push_back(Item {
            demonstration,
            uses: 0,
        });
    }

    /// Demonstrations that were ever in it.
    pub(crate) const fn arrived(&self) -> usize {
        self.arrived
    }

    /// No new ones will come.
    pub(crate) fn complete(&mut self) {
        self.complete = true;
    }

    /// Whether a batch of `samples` can be drawn now.
    pub(crate) fn holds(&self, samples: usize) -> bool {
        if self.complete {
            return !self.items.is_empty();
        }
        let mut left = samples;
        self.items.iter().any(|item| {
            left = left.saturating_sub(item.demonstration.trajectory.steps.len());
            left == 0
        })
    }

    /// A batch of about `samples` samples, out of demonstrations drawn at random.
    pub(crate) fn draw(&mut self, id: BatchId, samples: usize) -> Result<Batch> {
        let mut drawn: Vec<Demonstration> = Vec::new();
        let mut count = 0;
        while count < samples && !self.items.is_empty() {
            let index = self.rng.random_range(0..self.items.len());
            let item = &mut self.items[index];
            item.uses += 1;
            let demonstration = item.demonstration.clone();
            if item.uses >= self.reuse && !self.complete {
                self.items.swap_remove_back(index);
            }
            count += demonstration
                .by_expert
                .iter()
                .filter(|by_expert| **by_expert)
                .count();
            drawn.push(demonstration);
        }
        batch_of(id, &drawn)
    }
}

/// The steps that experts took, as one imitation batch.
fn batch_of(id: BatchId, demonstrations: &[Demonstration]) -> Result<Batch> {
    let trajectories: Vec<Trajectory> = demonstrations
        .iter()
        .map(|shown| shown.trajectory.clone())
        .collect();
    let mut batch = imitation_batch(id, &trajectories)?;
    let teaches: Vec<bool> = demonstrations
        .iter()
        .flat_map(|shown| shown.by_expert.iter().copied())
        .collect();
    let mut index = 0;
    batch.samples.retain(|_| {
        index += 1;
        teaches[index - 1]
    });
    Ok(batch)
}
