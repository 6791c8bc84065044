//! The cluster's end: shutdown in time, lost workers, and what stops a run.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use dart_core::{
    Action, Curator, Demonstrate, Environment, EnvironmentFactory, Error, ErrorKind, Policy,
    Result, StopReason,
};
use dart_rollout::{RolloutCluster, RolloutConfig, RolloutEvent};
use dart_testkit::faulty::Mishap;
use tokio::{task::yield_now, time::Instant};

use crate::{
    cluster::{Run, aborted, clicker, config},
    support::{CountingCurator, HungPolicy, PlannedFactory, millis},
};

#[tokio::test(start_paused = true)]
async fn shutdown_ends_in_time_with_a_hung_environment_and_a_hung_policy() {
    let plans = vec![vec![(3, Mishap::Hang)], vec![(1, Mishap::Hang)]];
    for policy in [clicker(), Arc::new(HungPolicy) as Arc<dyn Policy>] {
        let factory = PlannedFactory::new(plans.clone());
        let config = RolloutConfig {
            decision_timeout_ms: 30_000,
            ..config(4)
        };
        let run = Run::start(config, factory, policy, CountingCurator::new(1_000));
        tokio::time::sleep(millis(2_000)).await;
        let start = Instant::now();
        let report = run.cluster.shutdown().await;
        assert!(start.elapsed() <= millis(8_000), "{:?}", start.elapsed());
        assert!(report.error.is_none() && report.drained);
        run.curator.assert_each_once();
        assert!(run.curator.left() > 0, "it was in the middle");
        let cancelled = run.curator.returned().into_iter();
        let cancelled = cancelled
            .filter(|t| t.stop == StopReason::Cancelled)
            .count();
        assert!(cancelled >= 2, "{cancelled}");
    }
}

/// Environments that cannot be closed.
struct Unclosable(PlannedFactory);

struct NeverCloses(Box<dyn Environment>);

#[async_trait]
impl Environment for NeverCloses {
    fn spec(&self) -> &dart_core::EnvSpec {
        self.0.spec()
    }

    async fn reset(&mut self, task: &dart_core::Task, seed: u64) -> Result<dart_core::Reset> {
        self.0.reset(task, seed).await
    }

    async fn step(&mut self, action: &Action) -> Result<dart_core::StepOutcome> {
        self.0.step(action).await
    }

    async fn score(&mut self) -> Result<dart_core::Reward> {
        self.0.score().await
    }

    async fn close(&mut self) -> Result<()> {
        std::future::pending().await
    }
}

#[async_trait]
impl EnvironmentFactory for Unclosable {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        Ok(Box::new(NeverCloses(self.0.create().await?)))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        self.0.create_demonstrator().await
    }
}

#[tokio::test(start_paused = true)]
async fn workers_that_cannot_end_are_cut_off_and_owe_nothing() {
    let curator = CountingCurator::new(1_000);
    let config = RolloutConfig {
        close_timeout_ms: 60_000,
        ..config(3)
    };
    let cluster = RolloutCluster::start(
        config,
        Arc::new(Unclosable(PlannedFactory::new(Vec::new()))),
        clicker(),
        Arc::clone(&curator) as Arc<dyn Curator>,
        None,
    );
    tokio::time::sleep(millis(2_000)).await;
    let start = Instant::now();
    let report = cluster.unwrap().shutdown().await;
    assert!(start.elapsed() <= millis(8_000), "{:?}", start.elapsed());
    assert!(!report.drained);
    curator.assert_each_once();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_cluster_gives_back_what_it_has() {
    let factory = PlannedFactory::new(Vec::new());
    let run = Run::start(config(4), factory, clicker(), CountingCurator::new(1_000));
    tokio::time::sleep(millis(2_000)).await;
    let Run {
        curator, cluster, ..
    } = run;
    drop(cluster);
    tokio::time::sleep(millis(8_000)).await;
    curator.assert_each_once();
    let handed_out = curator.returned().len();
    tokio::time::sleep(millis(8_000)).await;
    assert_eq!(curator.returned().len(), handed_out, "nothing goes on");
}

#[tokio::test(start_paused = true)]
async fn a_curator_that_fails_once_is_asked_again_and_one_that_cannot_store_ends_the_run() {
    let curator = CountingCurator::failing(10, 3..4);
    let factory = PlannedFactory::new(Vec::new());
    let run = Run::start(config(2), factory, clicker(), curator);
    let (curator, _, report) = run.finish().await;
    assert!(report.error.is_none());
    curator.assert_each_once();
    assert_eq!(aborted(&curator), 0, "the finished trajectory was kept");

    let curator = CountingCurator::failing(10, 3..1_000);
    let factory = PlannedFactory::new(Vec::new());
    let run = Run::start(config(2), factory, clicker(), curator);
    let (_, _, report) = run.finish().await;
    let error = report.error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Storage);
}

#[tokio::test(start_paused = true)]
async fn a_stall_is_reported_with_who_waits_for_what() {
    let config = RolloutConfig {
        decision_timeout_ms: 200_000,
        ..config(2)
    };
    let factory = PlannedFactory::new(Vec::new());
    let policy = Arc::new(HungPolicy);
    let run = Run::start(config, factory, policy, CountingCurator::new(10));
    tokio::time::sleep(millis(50_000)).await;
    let stalled = |event: &RolloutEvent| matches!(event, RolloutEvent::Stalled { .. });
    assert_eq!(run.count(stalled), 0);
    tokio::time::sleep(millis(30_000)).await;
    let waits = run
        .log
        .entries()
        .into_iter()
        .find_map(|(_, event)| match event {
            RolloutEvent::Stalled { waits } => Some(waits),
            _ => None,
        });
    let waits = waits.unwrap();
    let who: BTreeSet<_> = waits.iter().map(|wait| wait.who.as_str()).collect();
    assert_eq!(
        who,
        BTreeSet::from(["rollout worker 0", "rollout worker 1"])
    );
    assert!(waits.iter().all(|wait| wait.what == "policy.act"));
    assert!(waits.iter().all(|wait| wait.for_ms >= 60_000));
    run.cluster.shutdown().await;
}

/// A backend whose password is wrong.
struct Refused;

#[async_trait]
impl EnvironmentFactory for Refused {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        yield_now().await;
        let message = "wrong password";
        Err(Error::new(
            ErrorKind::Unauthorized,
            "fake",
            "create",
            message,
        ))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        Err(Error::new(ErrorKind::Unsupported, "fake", "create", "none"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_setting_ends_the_run_and_takes_no_request() {
    let curator = CountingCurator::new(10);
    let cluster = RolloutCluster::start(
        config(2),
        Arc::new(Refused),
        clicker(),
        Arc::clone(&curator) as Arc<dyn Curator>,
        None,
    );
    let cluster = cluster.unwrap();
    cluster.finished().await;
    let report = cluster.shutdown().await;
    assert_eq!(report.error.unwrap().kind(), ErrorKind::Unauthorized);
    assert_eq!(curator.left(), 10);

    let nobody = RolloutCluster::start(
        config(0),
        Arc::new(Refused),
        clicker(),
        curator as Arc<dyn Curator>,
        None,
    );
    assert_eq!(nobody.unwrap_err().kind(), ErrorKind::Config);
}
