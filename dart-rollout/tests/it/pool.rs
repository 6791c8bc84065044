//! Routing and weight sync under load and under failures.

use std::sync::{Arc, Mutex};

use dart_core::{ErrorKind, Policy, PolicyVersion};
use dart_rollout::{EventLog, PolicyPool, PoolConfig, RolloutEvent, Watchdog};
use tokio::{task::JoinSet, time::Instant};

use crate::support::{HungPolicy, Load, ServerPolicy, blank_input, handle, millis};

fn config() -> PoolConfig {
    PoolConfig {
        act_timeout_ms: 1_000,
        drain_timeout_ms: 1_000,
        load_timeout_ms: 2_000,
    }
}

fn pool_of(workers: &[Arc<ServerPolicy>]) -> (Arc<PolicyPool>, Arc<EventLog>) {
    let log = EventLog::new();
    let workers = workers
        .iter()
        .map(|worker| Arc::clone(worker) as Arc<dyn Policy>)
        .collect();
    let pool = PolicyPool::with(workers, config(), Some(Arc::clone(&log) as _)).unwrap();
    (Arc::new(pool), log)
}

fn events(log: &EventLog) -> Vec<RolloutEvent> {
    log.entries().into_iter().map(|(_, event)| event).collect()
}

fn loaded(log: &EventLog) -> Vec<(usize, u64)> {
    let pairs = events(log).into_iter().filter_map(|event| match event {
        RolloutEvent::WeightsLoaded { policy, version } => Some((policy, version.0)),
        _ => None,
    });
    pairs.collect()
}

/// Calls one after another from `callers` tasks; gives every version answered.
async fn load_of_calls(pool: &Arc<PolicyPool>, callers: usize, calls: usize) -> Vec<PolicyVersion> {
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let pool = Arc::clone(pool);
        tasks.spawn(async move {
            tokio::time::sleep(millis(caller as u64 * 3)).await;
            let mut versions = Vec::new();
            for _ in 0..calls {
                versions.push(pool.act(blank_input()).await.unwrap().version);
            }
            versions
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

#[tokio::test(start_paused = true)]
async fn calls_spread_evenly() {
    let workers: Vec<_> = (0..4).map(|_| Arc::new(ServerPolicy::new(50, 1))).collect();
    let (pool, _) = pool_of(&workers);
    let answers = load_of_calls(&pool, 16, 5).await;
    assert_eq!(answers.len(), 80);
    for worker in &workers {
        let state = worker.state.lock().unwrap();
        assert_eq!(state.most_in_flight, 4);
        assert_eq!(state.answered.len(), 20);
    }
}

#[tokio::test(start_paused = true)]
async fn publishing_under_load_loses_no_call_and_mixes_no_weights() {
    let workers: Vec<_> = (0..3)
        .map(|_| Arc::new(ServerPolicy::new(50, 400)))
        .collect();
    let (pool, log) = pool_of(&workers);
    let least = Arc::new(Mutex::new(usize::MAX));
    let watch = {
        let (pool, least) = (Arc::clone(&pool), Arc::clone(&least));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(millis(1)).await;
                let serving = pool.serving();
                let mut least = least.lock().unwrap();
                *least = (*least).min(serving);
            }
        })
    };
    let publish = async {
        for version in 1..=10 {
            tokio::time::sleep(millis(700)).await;
            pool.publish(handle(version));
        }
    };
    let (answers, ()) = tokio::join!(load_of_calls(&pool, 12, 200), publish);
    pool.settled().await;
    watch.abort();
    assert_eq!(answers.len(), 2_400, "every call was answered");
    assert_eq!(*least.lock().unwrap(), 2, "one worker at a time");
    assert_eq!(pool.versions(), [PolicyVersion(10); 3], "newest wins");
    assert_eq!(pool.version(), PolicyVersion(10));
    for worker in &workers {
        let state = worker.state.lock().unwrap();
        assert_eq!(state.overlaps, 0, "never loaded with calls in flight");
        assert!(state.answered.is_sorted(), "versions only grow");
    }
    // 30 loads of 400 ms do not fit into 7 s: some were given up for newer weights.
    assert!(loaded(&log).len() < 30, "{:?}", loaded(&log));
    let skipped = events(&log)
        .iter()
        .any(|event| matches!(event, RolloutEvent::WeightsSuperseded { .. }));
    assert!(skipped);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_weights_reaches_every_worker() {
    let workers: Vec<_> = (0..4)
        .map(|_| Arc::new(ServerPolicy::new(10, 100)))
        .collect();
    let (pool, _) = pool_of(&workers);
    // Each set is superseded before two workers have it.
    for version in 1..=40 {
        pool.publish(handle(version));
        tokio::time::sleep(millis(130)).await;
    }
    for worker in &workers {
        assert!(
            worker.version() >= PolicyVersion(30),
            "{:?}",
            pool.versions()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_worker_is_loaded_between_calls() {
    let worker = Arc::new(ServerPolicy::new(50, 400));
    let (pool, _) = pool_of(&[Arc::clone(&worker)]);
    let publish = async {
        tokio::time::sleep(millis(70)).await;
        pool.publish(handle(1));
    };
    let (answers, ()) = tokio::join!(load_of_calls(&pool, 3, 4), publish);
    assert_eq!(answers.len(), 12);
    assert_eq!(worker.state.lock().unwrap().overlaps, 0);
    assert_eq!(answers.iter().max(), Some(&PolicyVersion(1)));
}

#[tokio::test(start_paused = true)]
async fn refused_weights_leave_the_old_ones_serving() {
    let good = Arc::new(ServerPolicy::new(50, 10));
    let picky = Arc::new(ServerPolicy::new(50, 10).loading(1, Load::Refuses));
    let (pool, log) = pool_of(&[good, Arc::clone(&picky)]);
    let (loading, answers) = tokio::join!(
        async { pool.load(&handle(1)).await },
        load_of_calls(&pool, 4, 10)
    );
    assert_eq!(loading.unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(answers.len(), 40);
    assert_eq!(pool.versions(), [PolicyVersion(1), PolicyVersion(0)]);
    assert_eq!(pool.serving(), 2);
    assert_eq!(
        pool.version(),
        PolicyVersion(0),
        "a call may get the old ones"
    );
    assert!(events(&log).iter().any(|event| matches!(
        event,
        RolloutEvent::WeightsFailed {
            policy: 1,
            serving: true,
            ..
        }
    )));
    pool.load(&handle(2)).await.unwrap();
    assert_eq!(pool.versions(), [PolicyVersion(2); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_lost_while_loading_is_left_out_until_a_load_succeeds() {
    for how in [Load::Hangs, Load::Panics, Load::Vanishes, Load::Lies] {
        let good = Arc::new(ServerPolicy::new(50, 10));
        let bad = Arc::new(ServerPolicy::new(50, 10).loading(1, how));
        let (pool, log) = pool_of(&[Arc::clone(&bad), good]);
        let error = pool.load(&handle(1)).await.unwrap_err();
        assert_eq!(pool.serving(), 1, "{how:?}: {error}");
        assert_eq!(load_of_calls(&pool, 4, 5).await, [PolicyVersion(1); 20]);
        assert!(bad.state.lock().unwrap().answered.is_empty());
        assert!(events(&log).iter().any(|event| matches!(
            event,
            RolloutEvent::WeightsFailed {
                policy: 0,
                serving: false,
                ..
            }
        )));
        bad.state.lock().unwrap().loading = false;
        pool.load(&handle(2)).await.unwrap();
        assert_eq!(pool.serving(), 2, "{how:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_call_delays_its_worker_alone_and_no_longer_than_its_deadline() {
    let log = EventLog::new();
    let good = Arc::new(ServerPolicy::new(50, 10));
    let workers = vec![
        Arc::new(HungPolicy) as Arc<dyn Policy>,
        Arc::clone(&good) as _,
    ];
    let pool = PolicyPool::with(workers, config(), Some(Arc::clone(&log) as _)).unwrap();
    let start = Instant::now();
    let hung = pool.act(blank_input());
    let publish = async {
        tokio::time::sleep(millis(10)).await;
        pool.publish(handle(1));
        pool.settled().await;
        start.elapsed()
    };
    let (hung, settled) = tokio::join!(hung, publish);
    assert_eq!(hung.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(good.version(), PolicyVersion(1));
    // 1 s for the call, then 2 s for a load that hangs as well.
    assert!(settled < millis(3_200), "{settled:?}");
    assert_eq!(pool.serving(), 1);
    assert!(pool.act(blank_input()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn calls_do_not_wait_for_ever_for_a_worker() {
    let worker = Arc::new(ServerPolicy::new(50, 10).loading(1, Load::Hangs));
    let (pool, _) = pool_of(&[worker]);
    pool.publish(handle(1));
    tokio::time::sleep(millis(1)).await;
    let start = Instant::now();
    let (a, b) = tokio::join!(pool.act(blank_input()), pool.act(blank_input()));
    for error in [a.unwrap_err(), b.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("no policy worker"), "{error}");
    }
    assert_eq!(start.elapsed(), millis(1_000));
}

#[tokio::test(start_paused = true)]
async fn older_weights_do_not_replace_newer_ones() {
    let worker = Arc::new(ServerPolicy::new(50, 100));
    let (pool, log) = pool_of(&[Arc::clone(&worker)]);
    pool.publish(handle(5));
    pool.publish(handle(4));
    let error = pool.load(&handle(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale);
    pool.settled().await;
    assert_eq!(worker.state.lock().unwrap().load_calls, [5]);
    let (version, by) = (PolicyVersion(4), PolicyVersion(5));
    assert!(events(&log).contains(&RolloutEvent::WeightsSuperseded { version, by }));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_pool_ends_the_sync() {
    let worker = Arc::new(ServerPolicy::new(50, 10).loading(1, Load::Hangs));
    let (pool, _) = pool_of(&[Arc::clone(&worker)]);
    pool.publish(handle(1));
    tokio::time::sleep(millis(1)).await;
    assert_eq!(Arc::strong_count(&worker), 2);
    drop(pool);
    tokio::time::sleep(millis(1)).await;
    assert_eq!(Arc::strong_count(&worker), 1, "the task let go of it");
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_sees_what_the_sync_waits_for() {
    let (pool, _) = pool_of(&[Arc::new(ServerPolicy::new(50, 10).loading(1, Load::Hangs))]);
    let watchdog = Watchdog::new(millis(500));
    pool.watched_by(&watchdog);
    pool.publish(handle(1));
    tokio::time::sleep(millis(600)).await;
    let waits = watchdog.check().unwrap();
    assert_eq!(
        (&*waits[0].who, &*waits[0].what),
        ("weight sync", "policy.load")
    );
}

#[test]
fn weights_may_be_published_from_a_thread_without_a_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let (pool, _) = runtime.block_on(async { pool_of(&[Arc::new(ServerPolicy::new(1, 1))]) });
    let publisher = Arc::clone(&pool);
    std::thread::spawn(move || publisher.publish(handle(1)))
        .join()
        .unwrap();
    runtime.block_on(pool.settled());
    assert_eq!(pool.version(), PolicyVersion(1));
}

#[test]
fn a_pool_without_workers_is_refused() {
    let error = PolicyPool::with(Vec::new(), config(), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}
