//! The suite of [`Curator`]: one check for each line of its contract.
//!
//! The checks play the part of rollout workers and learner: they answer requests with made-up
//! trajectories whose rewards alternate within a group, take batches and commit them. Nothing is
//! decided by the clock, except whether a call waits.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use dart_core::{Curator, Outcome, PolicyVersion, Result, SampleOrigin, TrajectoryId};
use futures::future::join;

use crate::{
    interrupt::drop_after,
    records,
    suite::{Checked, Failure, Settings, Verdict, ensure, suite, within},
};

mod ring;

use ring::{Ring, compare};

/// What the checks need to know about a curator.
///
/// Configure it small: groups of about 4 rollouts, batches of about 2 groups, at most some dozens
/// of rollouts in flight.
#[async_trait]
pub trait CuratorHarness: Sync {
    /// Where trajectories are kept; it outlives the curator, as a file outlives a process.
    type Store: Send + Sync;

    /// How to run the checks.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// An empty store.
    async fn store(&self) -> Result<Self::Store>;

    /// A curator on this store; every call gives the same seed, configuration and tasks.
    async fn open(&self, store: &Self::Store) -> Result<Arc<dyn Curator>>;

    /// Whether the store holds this trajectory, found out without the curator.
    async fn holds(&self, store: &Self::Store, id: TrajectoryId) -> Result<bool>;

    /// The configured staleness bound.
    fn max_staleness(&self) -> u64;

    /// The most requests that may be without an answer.
    fn max_in_flight(&self) -> usize;

    /// How long a call is watched before it counts as waiting.
    fn patience(&self) -> Duration {
        Duration::from_millis(500)
    }
}

suite! {
    $
    /// Makes one `#[test]` of each check of the curator suite, and `coverage`, in a module named
    /// `curator_conformance` or, with `mod name, harness`, otherwise.
    curator_conformance in curator for CuratorHarness:
    c01_every_request_is_answered_once,
    c02_an_aborted_slot_alone_comes_again,
    c03_no_batch_holds_a_stale_sample,
    c04_a_trajectory_is_in_one_batch_at_most,
    c05_requests_wait_for_room,
    c06_an_ingested_trajectory_is_durable,
    c07_a_restored_curator_goes_on_the_same,
    c08_the_same_answers_give_the_same_requests_and_batches,
    c09_close_ends_all_waiting,
    c10_no_batch_is_empty,
}

/// Line 1. Every request is answered by exactly one `ingest`; a second one with the same id is ignored.
pub async fn c01_every_request_is_answered_once<H: CuratorHarness>(h: &H) -> Checked {
    let (mut ring, _store) = Ring::start(h).await?;
    for count in 1..=3 {
        let request = ring.request().await?;
        let trajectory = ring.answer(&request);
        ring.ingest(trajectory).await?;
        let once = ring.curator.status();
        ensure(
            once.trajectories == count,
            format!("{} trajectories after {count}", once.trajectories),
        )?;
        for outcome in [Outcome::PolicyFault, Outcome::Aborted] {
            let second = records::trajectory(&request, ring.version, 1, outcome);
            ring.ingest(second).await?;
            let twice = ring.curator.status();
            ensure(
                twice == once,
                format!("a second answer ({outcome:?}) made {twice:?} of {once:?}"),
            )?;
        }
    }
    ring.batches(2).await?;
    let mut ids: Vec<_> = ring.log.requests.iter().map(|r| r.trajectory).collect();
    ids.sort_unstable();
    ids.dedup();
    ensure(
        ids.len() == ring.log.requests.len(),
        "two requests have the same id",
    )?;
    Ok(Verdict::Passed)
}

/// Line 2. An aborted trajectory changes no statistic; its slot alone is handed out again.
pub async fn c02_an_aborted_slot_alone_comes_again<H: CuratorHarness>(h: &H) -> Checked {
    let (mut ring, _store) = Ring::start(h).await?;
    let aborted = ring.request().await?;
    let before = ring.curator.status();
    let marker = records::trajectory(&aborted, ring.version, 0, Outcome::Aborted);
    ring.ingest(marker).await?;
    let after = ring.curator.status();
    ensure(
        after.aborted == before.aborted + 1,
        format!("{} aborted rollouts", after.aborted),
    )?;
    ensure(
        after.trajectories == before.trajectories
            && after.recent_success.to_bits() == before.recent_success.to_bits()
            && after.groups_without_spread == before.groups_without_spread,
        format!("an abort made {after:?} of {before:?}"),
    )?;
    let batch = ring.next_batch().await?;
    let again = ring.log.requests[1..].iter().find(|request| {
        request.group == aborted.group
            && request.seed == aborted.seed
            && request.task == aborted.task
    });
    ensure(again.is_some(), "the slot does not come again")?;
    ensure(
        batch
            .samples
            .iter()
            .all(|s| s.trajectory != aborted.trajectory),
        "the aborted rollout is in the batch",
    )?;
    let (mut twin, _store) = Ring::start(h).await?;
    twin.next_batch().await?;
    let (with, without) = (ring.scored, twin.scored);
    ensure(
        with == without,
        format!("scored rollouts of each group with an abort {with:?}, without {without:?}"),
    )?;
    Ok(Verdict::Passed)
}

/// Line 3. No batch holds a sample older than the staleness bound.
pub async fn c03_no_batch_holds_a_stale_sample<H: CuratorHarness>(h: &H) -> Checked {
    let bound = h.max_staleness();
    let (mut ring, _store) = Ring::start(h).await?;
    // A straggler: its group is complete only when its first members are too old.
    let straggler = ring.request().await?;
    let late = ring.answer(&straggler);
    ring.oldest.remove(&straggler.trajectory);
    for round in 0..bound + 5 {
        if round == bound + 2 {
            ring.oldest.insert(late.id, PolicyVersion(0));
            ring.ingest(late.clone()).await?;
        }
        let learner = ring.version;
        let batch = ring.next_batch().await?;
        for sample in batch
            .samples
            .iter()
            .filter(|s| s.origin == SampleOrigin::Rollout)
        {
            let Some(oldest) = ring.oldest.get(&sample.trajectory) else {
                return Err("a batch holds a trajectory that was never ingested".into());
            };
            let staleness = learner.since(*oldest).max(learner.since(sample.version));
            ensure(
                staleness <= bound,
                format!("a sample of staleness {staleness} at version {learner}, bound {bound}"),
            )?;
        }
    }
    Ok(Verdict::Passed)
}

/// Line 4. Each trajectory is in at most one batch of a lineage, pool samples excepted.
pub async fn c04_a_trajectory_is_in_one_batch_at_most<H: CuratorHarness>(h: &H) -> Checked {
    let (mut ring, _store) = Ring::start(h).await?;
    let mut seen: BTreeMap<TrajectoryId, usize> = BTreeMap::new();
    for (number, batch) in ring.batches(5).await?.iter().enumerate() {
        let rollouts = batch
            .samples
            .iter()
            .filter(|s| s.origin == SampleOrigin::Rollout);
        let mut steps: Vec<_> = rollouts.map(|s| (s.trajectory, s.step)).collect();
        for (id, _) in &steps {
            let first = *seen.entry(*id).or_insert(number);
            ensure(
                first == number,
                format!("a trajectory of batch {first} is in batch {number} as well"),
            )?;
        }
        let count = steps.len();
        steps.sort_unstable();
        steps.dedup();
        ensure(
            steps.len() == count,
            format!("batch {number} holds a step twice"),
        )?;
    }
    Ok(Verdict::Passed)
}

/// Line 5. `next_request` waits while more rollouts would break the staleness bound or the bound on
/// rollouts in flight, and goes on after a `commit` or an `ingest`.
pub async fn c05_requests_wait_for_room<H: CuratorHarness>(h: &H) -> Checked {
    let (mut ring, _store) = Ring::start(h).await?;
    let mut outstanding = ring.exhaust(h).await?;
    for _ in 0..3 {
        let curator = ring.curator.clone();
        let waiting = within(
            h.settings().deadline,
            "next_request after room was made",
            curator.next_request(),
        );
        let make_room = async {
            for request in std::mem::take(&mut outstanding) {
                let trajectory = ring.answer(&request);
                ring.ingest(trajectory).await?;
            }
            while ring.batch_is_ready() && ring.train().await?.is_some() {}
            Ok::<_, Failure>(())
        };
        let (resumed, room) = join(waiting, make_room).await;
        room?;
        let request = resumed??.ok_or("no request before close")?;
        ring.log.requests.push(request.clone());
        outstanding = vec![request];
    }
    // Rollouts that nobody trains on do not pile up for ever either.
    let mut answered = 0;
    while let Some(next) = drop_after(h.patience(), ring.curator.next_request()).await {
        let request = next?.ok_or("no request before close")?;
        ring.log.requests.push(request.clone());
        let trajectory = ring.answer(&request);
        ring.ingest(trajectory).await?;
        answered += 1;
        ensure(
            answered <= 10_000,
            "10,000 rollouts are answered, none is trained on, and more are asked for",
        )?;
    }
    Ok(Verdict::Passed)
}

/// Line 6. A trajectory is durable before `ingest` returns.
pub async fn c06_an_ingested_trajectory_is_durable<H: CuratorHarness>(h: &H) -> Checked {
    let (mut ring, store) = Ring::start(h).await?;
    for _ in 0..5 {
        let request = ring.request().await?;
        let trajectory = ring.answer(&request);
        ring.ingest(trajectory).await?;
        let held = h.holds(&store, request.trajectory).await?;
        ensure(held, "the store does not hold what ingest took")?;
    }
    Ok(Verdict::Passed)
}

/// Line 7. `snapshot` then `restore` gives the same following requests and batches.
pub async fn c07_a_restored_curator_goes_on_the_same<H: CuratorHarness>(h: &H) -> Checked {
    let (mut going_on, _store) = Ring::start(h).await?;
    let (mut stopped, store) = Ring::start(h).await?;
    for ring in [&mut going_on, &mut stopped] {
        ring.batches(2).await?;
        // Into the middle of a group.
        let request = ring.request().await?;
        let trajectory = ring.answer(&request);
        ring.ingest(trajectory).await?;
    }
    let snapshot = stopped.curator.snapshot().await?;
    stopped.curator.close();
    drop(stopped);
    let curator = h.open(&store).await?;
    curator.restore(&snapshot).await?;
    let mut restored = going_on.clone();
    restored.curator = curator;
    going_on.batches(3).await?;
    restored.batches(3).await?;
    compare(&going_on.log, &restored.log, "a restored curator")?;
    Ok(Verdict::Passed)
}

/// Line 8. The same seed and the same answers give the same requests and batches.
pub async fn c08_the_same_answers_give_the_same_requests_and_batches<H: CuratorHarness>(
    h: &H,
) -> Checked {
    let (mut first, _store) = Ring::start(h).await?;
    let (mut second, _other_store) = Ring::start(h).await?;
    for ring in [&mut first, &mut second] {
        ring.abort_every = 7;
        ring.batches(4).await?;
    }
    compare(&first.log, &second.log, "a second run")?;
    Ok(Verdict::Passed)
}

/// Line 9. After `close`, `next_request` and `next_batch` give `None` at once, waiting calls included.
pub async fn c09_close_ends_all_waiting<H: CuratorHarness>(h: &H) -> Checked {
    let (mut ring, _store) = Ring::start(h).await?;
    ring.exhaust(h).await?;
    let curator = ring.curator.clone();
    let limit = h.patience() * 2;
    let close = async {
        tokio::time::sleep(h.patience() / 2).await;
        curator.close();
    };
    let waiting = join(
        within(limit, "next_request across close", curator.next_request()),
        within(limit, "next_batch across close", curator.next_batch()),
    );
    let ((request, batch), ()) = join(waiting, close).await;
    ensure(request??.is_none(), "a request after close")?;
    ensure(batch??.is_none(), "a batch after close")?;
    curator.close();
    let request = within(limit, "next_request after close", curator.next_request()).await??;
    ensure(request.is_none(), "a request after close")?;
    let batch = within(limit, "next_batch after close", curator.next_batch()).await??;
    ensure(batch.is_none(), "a batch after close")?;
    Ok(Verdict::Passed)
}

/// Line 10. A batch without samples is never given.
pub async fn c10_no_batch_is_empty<H: CuratorHarness>(h: &H) -> Checked {
    let (mut ring, _store) = Ring::start(h).await?;
    ring.hopeless = true;
    ring.abort_every = 5;
    for _ in 0..100 {
        // `train` refuses a batch without samples; one with pool samples is all right.
        if ring.batch_is_ready() {
            ring.train().await?;
        }
        let request = ring.request().await?;
        let trajectory = ring.answer(&request);
        ring.ingest(trajectory).await?;
    }
    if let Some(given) = drop_after(h.patience(), ring.curator.next_batch()).await {
        let samples = given?.map_or(0, |batch| batch.samples.len());
        ensure(samples > 0, "a batch without samples")?;
    }
    Ok(Verdict::Passed)
}
