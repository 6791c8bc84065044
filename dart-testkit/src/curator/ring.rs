//! [`Ring`]: plays workers and learner for one curator.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use dart_core::{
    Batch, Commit, Curator, GroupId, Outcome, PolicyVersion, Reward, RolloutRequest, Trajectory,
    TrajectoryId,
};

use super::CuratorHarness;
use crate::{
    interrupt::drop_after,
    records,
    suite::{Failure, ensure, within},
};

/// What is compared between two runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Log {
    pub(super) requests: Vec<RolloutRequest>,
    pub(super) batches: Vec<Vec<SampleLog>>,
}

/// Trajectory, step, response and advantages (their bits) of a sample.
pub(super) type SampleLog = (TrajectoryId, u32, Vec<u32>, Vec<u64>);

/// Plays workers and learner for one curator.
#[derive(Clone)]
pub(super) struct Ring {
    pub(super) curator: Arc<dyn Curator>,
    deadline: Duration,
    /// How long a batch that is said to be ready may take.
    patience: Duration,
    pub(super) version: PolicyVersion,
    /// Rollouts of each group that were scored; decides the next reward.
    pub(super) scored: BTreeMap<GroupId, u32>,
    /// Oldest version in each trajectory that was ingested.
    pub(super) oldest: BTreeMap<TrajectoryId, PolicyVersion>,
    /// Every how many requests one is aborted; 0 for never.
    pub(super) abort_every: usize,
    /// Whether all rollouts fail.
    pub(super) hopeless: bool,
    pub(super) log: Log,
}

impl Ring {
    pub(super) async fn start<H: CuratorHarness>(h: &H) -> Result<(Self, H::Store), Failure> {
        let store = h.store().await?;
        let ring = Self {
            curator: h.open(&store).await?,
            deadline: h.settings().deadline,
            patience: h.patience() * 4,
            version: PolicyVersion(0),
            scored: BTreeMap::new(),
            oldest: BTreeMap::new(),
            abort_every: 0,
            hopeless: false,
            log: Log::default(),
        };
        Ok((ring, store))
    }

    pub(super) async fn request(&mut self) -> Result<RolloutRequest, Failure> {
        let next = within(self.deadline, "next_request", self.curator.next_request());
        let request = next.await??.ok_or("no request before close")?;
        self.log.requests.push(request.clone());
        Ok(request)
    }

    /// What comes back for a request: an abort now and then, otherwise rewards 1, 0, 1, 0 … within
    /// each group.
    pub(super) fn answer(&mut self, request: &RolloutRequest) -> Trajectory {
        let count = self.log.requests.len();
        if self.abort_every > 0 && count.is_multiple_of(self.abort_every) {
            return records::trajectory(request, self.version, 0, Outcome::Aborted);
        }
        let index = self.scored.entry(request.group).or_default();
        let success = index.is_multiple_of(2) && !self.hopeless;
        let steps = 2 + *index % 3;
        *index += 1;
        self.oldest.insert(request.trajectory, self.version);
        let reward = Reward::from(success);
        records::trajectory(request, self.version, steps, Outcome::Scored { reward })
    }

    pub(super) async fn ingest(&self, trajectory: Trajectory) -> Result<(), Failure> {
        Ok(within(self.deadline, "ingest", self.curator.ingest(trajectory)).await??)
    }

    pub(super) fn batch_is_ready(&self) -> bool {
        let status = self.curator.status();
        status.groups_ready >= status.groups_needed.max(1)
    }

    /// Takes a batch that is said to be ready, and commits it. `None` if the curator finds only
    /// now that some of it is too old, and waits for more.
    pub(super) async fn train(&mut self) -> Result<Option<Batch>, Failure> {
        let Some(given) = drop_after(self.patience, self.curator.next_batch()).await else {
            return Ok(None);
        };
        let batch = given?.ok_or("no batch before close")?;
        ensure(!batch.samples.is_empty(), "a batch without samples")?;
        let sample = |s: &dart_core::Sample| {
            let response = s.response.to_vec();
            let advantages = s.advantages.iter().map(|a| a.to_bits()).collect();
            (s.trajectory, s.step, response, advantages)
        };
        self.log
            .batches
            .push(batch.samples.iter().map(sample).collect());
        self.version = self.version.next();
        let commit = Commit {
            batch: batch.id,
            version: self.version,
        };
        within(self.deadline, "commit", self.curator.commit(commit)).await??;
        Ok(Some(batch))
    }

    /// Answers requests until a batch is ready; takes and commits it.
    pub(super) async fn next_batch(&mut self) -> Result<Batch, Failure> {
        for _ in 0..10_000 {
            if self.batch_is_ready()
                && let Some(batch) = self.train().await?
            {
                return Ok(batch);
            }
            let request = self.request().await?;
            let trajectory = self.answer(&request);
            self.ingest(trajectory).await?;
        }
        Err("no batch after 10,000 answered requests".into())
    }

    pub(super) async fn batches(&mut self, count: usize) -> Result<Vec<Batch>, Failure> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.next_batch().await?);
        }
        Ok(all)
    }

    /// Takes requests without answering until the curator makes us wait.
    pub(super) async fn exhaust<H: CuratorHarness>(
        &mut self,
        h: &H,
    ) -> Result<Vec<RolloutRequest>, Failure> {
        let mut taken = Vec::new();
        while let Some(next) = drop_after(h.patience(), self.curator.next_request()).await {
            let request = next?.ok_or("no request before close")?;
            self.log.requests.push(request.clone());
            taken.push(request);
            ensure(
                taken.len() <= h.max_in_flight(),
                format!("{} requests without an answer", taken.len()),
            )?;
        }
        ensure(!taken.is_empty(), "not a single request")?;
        Ok(taken)
    }
}

/// The first difference between two logs, if there is one, is a failure of `who`.
pub(super) fn compare(expected: &Log, got: &Log, who: &str) -> Result<(), Failure> {
    let pairs = expected.requests.iter().zip(&got.requests);
    if let Some((number, (a, b))) = pairs.enumerate().find(|(_, (a, b))| a != b) {
        return Err(format!("request {number} of {who} is {b:?}, expected {a:?}").into());
    }
    ensure(
        expected.requests.len() == got.requests.len(),
        format!("{who} makes another number of requests"),
    )?;
    let pairs = expected.batches.iter().zip(&got.batches);
    if let Some((number, _)) = pairs.enumerate().find(|(_, (a, b))| a != b) {
        return Err(format!("batch {number} of {who} is another one").into());
    }
    Ok(())
}
