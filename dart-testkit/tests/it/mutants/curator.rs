//! Curators that break one line each.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use async_trait::async_trait;
use dart_core::{
    Batch, BatchId, Commit, Curator, CuratorStatus, Objective, Outcome, Result, RolloutRequest,
    Trajectory, TrajectoryId,
};
use dart_testkit::{
    Settings,
    curator::{self, CuratorHarness},
    fakes::{MemoryCurator, MemoryCuratorConfig, TrajectoryShelf, task},
    poll_once_then_drop,
};

use super::{Expectations, lock};
use crate::curator::Memory;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    CountsSecondAnswers,
    ScoresAborts,
    LosesAbortedSlots,
    TrainsOnTheStale,
    RepeatsASample,
    AsksForTooMany,
    NeverWakesUp,
    StoresLate,
    ForgetsItsSnapshot,
    DependsOnTheInstance,
    SleepsThroughClose,
    GivesEmptyBatches,
}

/// Makes instances tell-tale.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

struct Mutant {
    inner: MemoryCurator,
    flaw: Flaw,
    instance: u64,
    answered: Mutex<Vec<TrajectoryId>>,
    second_answers: AtomicU64,
    unstored: Mutex<Vec<Trajectory>>,
    shelf: TrajectoryShelf,
    closed: AtomicBool,
}

impl Mutant {
    fn new(flaw: Flaw, shelf: &TrajectoryShelf) -> Self {
        let mut config = MemoryCuratorConfig::default();
        match flaw {
            Flaw::TrainsOnTheStale => config.max_staleness = 50,
            Flaw::AsksForTooMany => {
                config.max_in_flight = 17;
                config.group_size = 6;
            }
            _ => {}
        }
        let own = match flaw {
            Flaw::StoresLate => TrajectoryShelf::default(),
            _ => shelf.clone(),
        };
        let tasks = vec![Arc::new(task(10)), Arc::new(task(6))];
        Self {
            inner: MemoryCurator::new(config, tasks, own),
            flaw,
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
            answered: Mutex::default(),
            second_answers: AtomicU64::new(0),
            unstored: Mutex::default(),
            shelf: shelf.clone(),
            closed: AtomicBool::new(false),
        }
    }

    /// Does not notice what happens meanwhile, except the end.
    async fn request_or_sleep(&self) -> Result<Option<RolloutRequest>> {
        if let Some(request) = poll_once_then_drop(self.inner.next_request()).await {
            return request;
        }
        while !self.closed.load(Ordering::Relaxed) {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        Ok(None)
    }

    fn store(&self) {
        for trajectory in lock(&self.unstored).drain(..) {
            self.shelf.put(trajectory);
        }
    }

    fn twist(&self, trajectory: &mut Trajectory) {
        if trajectory.outcome != Outcome::Aborted {
            return;
        }
        match self.flaw {
            Flaw::ScoresAborts => trajectory.outcome = Outcome::PolicyFault,
            // An id that nobody waits for: the slot stays taken.
            Flaw::LosesAbortedSlots => trajectory.id = TrajectoryId(u128::MAX),
            _ => {}
        }
    }
}

#[async_trait]
impl Curator for Mutant {
    async fn next_request(&self) -> Result<Option<RolloutRequest>> {
        self.store();
        let mut request = if self.flaw == Flaw::NeverWakesUp {
            self.request_or_sleep().await?
        } else {
            self.inner.next_request().await?
        };
        let aborted = self.inner.status().aborted > 1;
        if let (Flaw::DependsOnTheInstance, Some(request)) = (self.flaw, &mut request)
            && aborted
        {
            request.seed ^= self.instance;
        }
        Ok(request)
    }

    async fn ingest(&self, mut trajectory: Trajectory) -> Result<()> {
        let mut answered = std::mem::take(&mut *lock(&self.answered));
        if answered.contains(&trajectory.id) {
            self.second_answers.fetch_add(1, Ordering::Relaxed);
        }
        answered.push(trajectory.id);
        *lock(&self.answered) = answered;
        self.twist(&mut trajectory);
        if self.flaw == Flaw::StoresLate {
            lock(&self.unstored).push(trajectory.clone());
        }
        self.inner.ingest(trajectory).await
    }

    async fn next_batch(&self) -> Result<Option<Batch>> {
        if self.flaw == Flaw::GivesEmptyBatches && self.status().groups_without_spread > 10 {
            return Ok(Some(Batch {
                id: BatchId(99),
                objective: Objective::PolicyGradient,
                images: Vec::new(),
                samples: Vec::new(),
            }));
        }
        let mut batch = self.inner.next_batch().await?;
        if let (Flaw::RepeatsASample, Some(batch)) = (self.flaw, &mut batch) {
            batch.samples.extend(batch.samples.first().cloned());
        }
        Ok(batch)
    }

    async fn commit(&self, commit: Commit) -> Result<()> {
        self.inner.commit(commit).await
    }

    async fn snapshot(&self) -> Result<Vec<u8>> {
        self.store();
        self.inner.snapshot().await
    }

    async fn restore(&self, snapshot: &[u8]) -> Result<()> {
        match self.flaw {
            Flaw::ForgetsItsSnapshot => Ok(()),
            _ => self.inner.restore(snapshot).await,
        }
    }

    fn status(&self) -> CuratorStatus {
        let mut status = self.inner.status();
        if self.flaw == Flaw::CountsSecondAnswers {
            status.trajectories += self.second_answers.load(Ordering::Relaxed);
        }
        status
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if self.flaw != Flaw::SleepsThroughClose {
            self.inner.close();
        }
    }
}

struct Harness(Flaw);

#[async_trait]
impl CuratorHarness for Harness {
    type Store = TrajectoryShelf;

    fn settings(&self) -> Settings {
        Memory.settings()
    }

    async fn store(&self) -> Result<TrajectoryShelf> {
        Memory.store().await
    }

    async fn open(&self, store: &TrajectoryShelf) -> Result<Arc<dyn Curator>> {
        Ok(Arc::new(Mutant::new(self.0, store)))
    }

    async fn holds(&self, store: &TrajectoryShelf, id: TrajectoryId) -> Result<bool> {
        Memory.holds(store, id).await
    }

    fn max_staleness(&self) -> u64 {
        Memory.max_staleness()
    }

    fn max_in_flight(&self) -> usize {
        Memory.max_in_flight()
    }
}

#[tokio::test(start_paused = true)]
async fn each_flaw_is_found_by_its_line() {
    use Flaw::*;
    let table = [
        (None, ""),
        (CountsSecondAnswers, "c01"),
        (ScoresAborts, "c02"),
        // Without its slot the group never ends, and everything that needs batches waits.
        (LosesAbortedSlots, "c02 c08 c10"),
        (TrainsOnTheStale, "c03"),
        (RepeatsASample, "c04"),
        // Closing is tried on an exhausted curator.
        (AsksForTooMany, "c05 c09"),
        (NeverWakesUp, "c05"),
        // What was not stored in time is missing after a restart.
        (StoresLate, "c06 c07"),
        (ForgetsItsSnapshot, "c07"),
        (DependsOnTheInstance, "c08"),
        (SleepsThroughClose, "c09"),
        (GivesEmptyBatches, "c10"),
    ];
    let mut expectations = Expectations::default();
    for (flaw, expected) in table {
        let results = curator::run_all(&Harness(flaw)).await;
        expectations.compare(&format!("{flaw:?}"), &results, expected);
    }
    expectations.assert_met();
}
