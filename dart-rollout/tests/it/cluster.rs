//! The cluster: every request comes back exactly once, whatever breaks.

use std::sync::Arc;

use dart_core::{
    Action, Curator, Error, ErrorKind, ImageSpan, Outcome, ParsedAction, Policy, PolicyVersion,
};
use dart_rollout::{
    EventLog, PolicyPool, PoolConfig, RolloutCluster, RolloutConfig, RolloutEvent, RolloutReport,
};
use dart_testkit::{
    fakes::{FakePolicy, FakeWeights},
    faulty::Mishap,
};
use proptest::prelude::*;
use tokio::time::Instant;

use crate::support::{
    CountingCurator, FnPolicy, PlannedFactory, ServerPolicy, decision, millis, weights,
};

pub(crate) fn config(environments: usize) -> RolloutConfig {
    RolloutConfig {
        environments,
        decision_timeout_ms: 5_000,
        call_timeout_ms: 10_000,
        episode_timeout_ms: 60_000,
        quarantine_ms: 20_000,
        stall_timeout_ms: 60_000,
        ..RolloutConfig::default()
    }
}

pub(crate) fn clicker() -> Arc<dyn Policy> {
    Arc::new(FakePolicy::new(FakeWeights::blank(4, 3)).with_latency_ms(20, 200))
}

pub(crate) struct Run {
    pub(crate) curator: Arc<CountingCurator>,
    pub(crate) log: Arc<EventLog>,
    pub(crate) cluster: RolloutCluster,
    pub(crate) start: Instant,
}

impl Run {
    pub(crate) fn start(
        config: RolloutConfig,
        factory: PlannedFactory,
        policy: Arc<dyn Policy>,
        curator: Arc<CountingCurator>,
    ) -> Self {
        let log = EventLog::new();
        let cluster = RolloutCluster::start(
            config,
            Arc::new(factory),
            policy,
            Arc::clone(&curator) as Arc<dyn Curator>,
            Some(Arc::clone(&log) as _),
        );
        Self {
            curator,
            log,
            cluster: cluster.unwrap(),
            start: Instant::now(),
        }
    }

    pub(crate) fn count(&self, which: impl Fn(&RolloutEvent) -> bool) -> usize {
        let entries = self.log.entries();
        entries.iter().filter(|(_, event)| which(event)).count()
    }

    /// Waits until the curator has everything back.
    pub(crate) async fn finish(self) -> (Arc<CountingCurator>, Arc<EventLog>, RolloutReport) {
        let day = millis(86_400_000);
        tokio::time::timeout(day, self.cluster.finished())
            .await
            .unwrap();
        let report = self.cluster.shutdown().await;
        (self.curator, self.log, report)
    }
}

pub(crate) fn aborted(curator: &CountingCurator) -> usize {
    let outcomes = curator.outcomes();
    outcomes.iter().filter(|o| **o == Outcome::Aborted).count()
}

#[tokio::test(start_paused = true)]
async fn without_faults_everything_is_scored() {
    let factory = PlannedFactory::new(Vec::new());
    let run = Run::start(config(4), factory, clicker(), CountingCurator::new(60));
    let (curator, log, report) = run.finish().await;
    curator.assert_each_once();
    assert_eq!(aborted(&curator), 0);
    assert!(report.drained && report.error.is_none());
    assert_eq!(report.metrics.episodes, 60);
    assert_eq!(report.metrics.aborted, 0);
    let steps: usize = curator.returned().iter().map(|t| t.steps.len()).sum();
    assert_eq!(report.metrics.steps, steps as u64);
    let used = report.metrics.utilisation;
    assert!((0.5..1.0).contains(&used), "{used}");
    let last = log.entries().pop().unwrap().1;
    let (drained, error) = (true, None);
    assert_eq!(last, RolloutEvent::ClusterStopped { drained, error });
}

/// Runs 500 rollouts on unreliable environments, with weights published meanwhile.
async fn unreliable(seed: u64) -> (Arc<CountingCurator>, Arc<EventLog>, RolloutReport) {
    let log = EventLog::new();
    let workers = vec![clicker(), clicker(), clicker()];
    let sink = Some(Arc::clone(&log) as _);
    let pool = Arc::new(PolicyPool::with(workers, PoolConfig::default(), sink).unwrap());
    let curator = CountingCurator::new(500);
    let cluster = RolloutCluster::start(
        config(8),
        Arc::new(PlannedFactory::unreliable(seed)),
        Arc::clone(&pool) as Arc<dyn Policy>,
        Arc::clone(&curator) as Arc<dyn Curator>,
        Some(Arc::clone(&log) as _),
    )
    .unwrap();
    for version in 1..=5 {
        tokio::time::sleep(millis(5_000)).await;
        pool.publish(weights(version));
    }
    let run = Run {
        curator,
        log,
        cluster,
        start: Instant::now(),
    };
    run.finish().await
}

fn on_paused_clock<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

fn quiet_planned_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.payload_as_str().unwrap_or_default();
            if !text.contains("planned") {
                before(info);
            }
        }));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_500_rollouts_with_faults_each_comes_back_exactly_once(seed in any::<u64>()) {
        quiet_planned_panics();
        let (curator, _, report) = on_paused_clock(unreliable(seed));
        curator.assert_each_once();
        prop_assert_eq!(curator.returned().len(), 500);
        prop_assert!(report.error.is_none(), "{:?}", report.error);
        let lost = aborted(&curator);
        prop_assert!((20..120).contains(&lost), "{} of 500 aborted", lost);
        prop_assert_eq!(report.metrics.aborted as usize, lost);
        prop_assert_eq!(report.metrics.episodes as usize, 500 - lost);
        prop_assert!(report.metrics.panics > 0);
        for trajectory in curator.returned() {
            let failed = trajectory.outcome == Outcome::Aborted;
            prop_assert_eq!(failed, trajectory.error.is_some());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_event_log() {
    quiet_planned_panics();
    let run = |seed| {
        let (_, log, _) = on_paused_clock(unreliable(seed));
        serde_json::to_string(&log.entries()).unwrap()
    };
    let (first, second, other) = (run(1), run(1), run(2));
    assert!(first.len() > 100_000, "{} bytes", first.len());
    assert_eq!(first, second);
    assert_ne!(first, other);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_environments_run_at_once() {
    let workers = (0..4).map(|_| clicker()).collect();
    let pool = Arc::new(PolicyPool::new(workers));
    let factory = PlannedFactory::new(Vec::new());
    let run = Run::start(config(1_000), factory, pool, CountingCurator::new(4_000));
    let start = run.start;
    let (curator, _, report) = run.finish().await;
    curator.assert_each_once();
    assert_eq!(report.metrics.episodes, 4_000);
    // Four episodes after another of at most 6 steps of 0.2 s and twice 0.05 s.
    assert!(start.elapsed() < millis(15_000), "{:?}", start.elapsed());
}

/// Real threads and real time: what the simulated clock cannot show are races.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_several_threads_nothing_is_lost_or_mixed() {
    let workers: Vec<_> = (0..3).map(|_| Arc::new(ServerPolicy::new(1, 1))).collect();
    let policies = workers
        .iter()
        .map(|worker| Arc::clone(worker) as _)
        .collect();
    let pool = Arc::new(PolicyPool::new(policies));
    let mut factory = PlannedFactory::new(Vec::new());
    factory.device.latency_ms = (0, 0);
    let policy = Arc::clone(&pool) as Arc<dyn Policy>;
    let run = Run::start(config(16), factory, policy, CountingCurator::new(2_000));
    for version in 1..=40 {
        tokio::time::sleep(millis(5)).await;
        pool.publish(weights(version));
    }
    let (curator, _, report) = run.finish().await;
    pool.settled().await;
    curator.assert_each_once();
    assert_eq!(
        (report.metrics.episodes, report.metrics.aborted),
        (2_000, 0)
    );
    assert_eq!(pool.versions(), [PolicyVersion(40); 3]);
    assert_eq!(pool.in_flight(), 0);
    for worker in &workers {
        let state = worker.state.lock().unwrap();
        assert_eq!(state.overlaps, 0);
        assert!(state.answered.is_sorted());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_environment_aborts_within_its_deadline_and_the_others_go_on() {
    let factory = PlannedFactory::new(vec![vec![(3, Mishap::Hang)]]);
    let run = Run::start(config(4), factory, clicker(), CountingCurator::new(80));
    tokio::time::sleep(millis(9_000)).await;
    let others = run.curator.returned().len();
    assert!(others > 20, "{others} came back while one environment hung");
    assert_eq!(aborted(&run.curator), 0);
    tokio::time::sleep(millis(1_500)).await;
    assert_eq!(aborted(&run.curator), 1, "after its 10 s");
    let (curator, log, _) = run.finish().await;
    curator.assert_each_once();
    let created = log
        .entries()
        .iter()
        .filter(|(_, event)| matches!(event, RolloutEvent::EnvironmentCreated { .. }))
        .count();
    assert_eq!(created, 5, "it was replaced");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_environment_does_not_lose_its_slot_or_its_request() {
    quiet_planned_panics();
    let factory = PlannedFactory::new(vec![vec![(6, Mishap::Panic)], Vec::new()]);
    let run = Run::start(config(1), factory, clicker(), CountingCurator::new(10));
    let (curator, log, report) = run.finish().await;
    curator.assert_each_once();
    assert_eq!(aborted(&curator), 1);
    assert_eq!(report.metrics.panics, 1);
    let recovered = curator.returned().into_iter().find(|t| t.error.is_some());
    let recovered = recovered.unwrap();
    assert_eq!(recovered.outcome, Outcome::Aborted);
    let trajectory = recovered.id;
    let events: Vec<_> = log.entries().into_iter().map(|(_, event)| event).collect();
    assert!(events.contains(&RolloutEvent::RolloutRecovered { trajectory }));
}

#[tokio::test(start_paused = true)]
async fn three_errors_in_a_row_quarantine_the_slot_for_a_while() {
    // The first environment stays cut; the second works.
    let factory = PlannedFactory::new(vec![vec![(1, Mishap::Cut)], Vec::new()]);
    let run = Run::start(config(1), factory, clicker(), CountingCurator::new(5));
    let start = run.start;
    let (curator, log, _) = run.finish().await;
    curator.assert_each_once();
    assert_eq!(aborted(&curator), 3, "recovery was tried twice");
    let quarantined = log.entries().into_iter().find_map(|(at, event)| {
        matches!(event, RolloutEvent::EnvironmentQuarantined { .. }).then_some(at)
    });
    assert!(quarantined.unwrap() < 1_000);
    assert!(start.elapsed() > millis(20_000));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_down_costs_rollouts_slowly_and_no_environment() {
    let away = FnPolicy::new(|_| {
        let message = "the server is away";
        Err(Error::new(ErrorKind::Disconnected, "fake", "act", message))
    });
    let factory = PlannedFactory::new(Vec::new());
    let run = Run::start(config(1), factory, Arc::new(away), CountingCurator::new(20));
    let start = run.start;
    let (curator, log, report) = run.finish().await;
    assert_eq!(aborted(&curator), 20);
    assert_eq!(report.metrics.environment_errors, 0);
    assert!(start.elapsed() > millis(20 * 500));
    let replaced = log
        .entries()
        .iter()
        .any(|(_, event)| matches!(event, RolloutEvent::EnvironmentFailed { .. }));
    assert!(!replaced);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_shows_images_where_there_are_none_ends_the_run() {
    let confused = FnPolicy::new(|input| {
        let action = ParsedAction::Valid(Action::Done);
        let mut decision = decision(action, input, PolicyVersion::default());
        let (image, start, len) = (0, 5, 3);
        decision.prompt.images = vec![ImageSpan { image, start, len }];
        Ok(decision)
    });
    let factory = PlannedFactory::new(Vec::new());
    let policy = Arc::new(confused);
    let run = Run::start(config(2), factory, policy, CountingCurator::new(100));
    let (curator, _, report) = run.finish().await;
    assert_eq!(report.error.unwrap().kind(), ErrorKind::Internal);
    curator.assert_each_once();
    assert!(curator.left() > 90, "{} left", curator.left());
}
