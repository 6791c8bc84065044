//! Requests, groups, batches and commits.

use std::sync::{Arc, Mutex};

use dart_core::{BatchId, Commit, Curator, ErrorKind, Outcome, PolicyVersion, Split, StopReason};
use dart_curation::{
    CurationConfig, CurationEvent, DataManager, MemoryStore, TrajectoryQuery, TrajectoryStore,
};

use crate::{
    common::{answer, group, manager, manager_on, plain, ready, request, scored, task, tasks},
    recovery::seal,
};

const V0: PolicyVersion = PolicyVersion(0);

fn commit(batch: u64, version: u64) -> Commit {
    Commit {
        batch: BatchId(batch),
        version: PolicyVersion(version),
    }
}

#[tokio::test]
async fn a_group_shares_task_and_seed_but_not_the_draws() {
    let manager = manager(plain());
    let (a, b, c) = (
        request(&manager).await,
        request(&manager).await,
        request(&manager).await,
    );
    assert_eq!((a.group, &a.task, a.seed), (b.group, &b.task, b.seed));
    assert_ne!(a.trajectory, b.trajectory);
    assert_ne!(a.sampling_seed, b.sampling_seed);
    assert_ne!(a.group, c.group);
    assert_ne!(a.task.id, c.task.id, "tasks take turns");
    assert_eq!(a.step_limit, 10);
    assert_eq!(a.temperature, 1.0);
}

#[tokio::test]
async fn room_made_by_handing_out_a_batch_wakes_whoever_waits_for_it() {
    let mut config = plain();
    config.groups_per_batch = 1;
    config.max_groups_per_batch = 1;
    let manager = Arc::new(manager(config));
    manager.start_at(PolicyVersion(1));
    for _ in 0..2 {
        group(&manager, &[1.0, 0.0], V0).await;
    }
    let waiting = tokio::spawn({
        let manager = manager.clone();
        async move { manager.next_request().await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    // The second group would be trained on at version 2: it is too old as soon as the first one
    // is handed out, and another group has room.
    manager.next_batch().await.unwrap().unwrap();
    let request = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!(request.group.0, 2);
    assert_eq!(manager.status().groups_ready, 0);
}

#[tokio::test]
async fn a_batch_holds_the_groups_with_spread() {
    let manager = manager(plain());
    group(&manager, &[1.0, 1.0], V0).await;
    group(&manager, &[1.0, 0.0], V0).await;
    assert!(ready(manager.next_batch()).await.is_none());
    group(&manager, &[0.0, 1.0], V0).await;
    let batch = manager.next_batch().await.unwrap().unwrap();
    assert_eq!(batch.id, BatchId(0));
    let groups: Vec<_> = batch.samples.iter().map(|sample| sample.group.0).collect();
    assert_eq!(groups, [1, 1, 1, 1, 2, 2, 2, 2]);
    let sum: f64 = batch
        .samples
        .iter()
        .map(|sample| sample.advantages[0])
        .sum();
    assert!(sum.abs() < 1e-9);
    let status = manager.status();
    assert_eq!(status.groups_without_spread, 1);
    assert_eq!(status.trajectories, 6);
    assert_eq!(status.groups_ready, 0);
    assert_eq!(status.recent_success, 4.0 / 6.0);
}

#[tokio::test]
async fn dispatch_stops_at_the_bound_and_goes_on_after_a_commit() {
    let manager = manager(plain());
    // η = 1 and two groups a batch: four groups of two may be in the making.
    for _ in 0..2 {
        group(&manager, &[1.0, 0.0], V0).await;
    }
    for _ in 0..4 {
        request(&manager).await;
    }
    assert!(ready(manager.next_request()).await.is_none());
    let batch = manager.next_batch().await.unwrap().unwrap();
    assert!(
        ready(manager.next_request()).await.is_none(),
        "not trained on yet"
    );
    manager.commit(commit(batch.id.0, 1)).await.unwrap();
    for _ in 0..4 {
        request(&manager).await;
    }
    assert!(ready(manager.next_request()).await.is_none());
}

#[tokio::test]
async fn a_waiting_request_is_woken() {
    let config = CurationConfig {
        max_in_flight: 1,
        ..plain()
    };
    let manager = Arc::new(manager(config));
    let first = request(&manager).await;
    let waiting = tokio::spawn({
        let manager = manager.clone();
        async move { manager.next_request().await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    manager
        .ingest(answer(&first, scored(1.0), 1, V0))
        .await
        .unwrap();
    let second = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!(second.group, first.group);
}

#[tokio::test]
async fn what_is_too_old_is_dropped_and_counted() {
    let manager = manager(plain());
    // Groups 0 and 1 become batch 0, group 2 waits, group 3 replaces it.
    for _ in 0..3 {
        group(&manager, &[1.0, 0.0], V0).await;
    }
    let batch = manager.next_batch().await.unwrap().unwrap();
    // The warm start put the learner far ahead of the policies that made group 2.
    manager.commit(commit(batch.id.0, 5)).await.unwrap();
    assert_eq!(manager.status().stale, 2);
    for _ in 0..2 {
        group(&manager, &[1.0, 0.0], PolicyVersion(4)).await;
    }
    let batch = manager.next_batch().await.unwrap().unwrap();
    assert!(
        batch
            .samples
            .iter()
            .all(|sample| sample.version == PolicyVersion(4))
    );
}

#[tokio::test]
async fn a_batch_handed_out_counts_as_trained_for_the_next() {
    let mut config = plain();
    config.max_staleness = 0;
    config.groups_per_batch = 1;
    config.max_groups_per_batch = 1;
    let manager = manager(config);
    group(&manager, &[1.0, 0.0], V0).await;
    let first = manager.next_batch().await.unwrap().unwrap();
    // A second batch of version 0 would be trained on at version 1.
    assert!(ready(manager.next_request()).await.is_none());
    manager.commit(commit(first.id.0, 1)).await.unwrap();
    group(&manager, &[1.0, 0.0], PolicyVersion(1)).await;
    assert!(manager.next_batch().await.unwrap().is_some());
}

#[tokio::test]
async fn an_aborted_slot_alone_is_handed_out_again() {
    let manager = manager(plain());
    let (a, b) = (request(&manager).await, request(&manager).await);
    manager
        .ingest(answer(&a, Outcome::Aborted, 1, V0))
        .await
        .unwrap();
    let again = request(&manager).await;
    assert_eq!((again.group, again.seed), (a.group, a.seed));
    assert_ne!(again.trajectory, a.trajectory);
    manager
        .ingest(answer(&b, scored(1.0), 1, V0))
        .await
        .unwrap();
    manager
        .ingest(answer(&again, scored(0.0), 1, V0))
        .await
        .unwrap();
    let status = manager.status();
    assert_eq!((status.groups_ready, status.aborted), (1, 1));
    assert_eq!(status.trajectories, 2);
}

#[tokio::test]
async fn a_group_that_loses_too_many_slots_is_dropped() {
    let mut config = plain();
    config.max_attempts = 2;
    let (events, sink) = recorder();
    let manager = manager(config).with_events(sink);
    let first = request(&manager).await;
    manager
        .ingest(answer(&first, scored(1.0), 1, V0))
        .await
        .unwrap();
    for _ in 0..2 {
        let other = request(&manager).await;
        assert_eq!(other.group, first.group);
        manager
            .ingest(answer(&other, Outcome::Aborted, 0, V0))
            .await
            .unwrap();
    }
    assert_ne!(request(&manager).await.group, first.group);
    let events = events.lock().unwrap();
    assert!(
        events.iter().any(|event| event.contains("too-small")),
        "{events:#?}"
    );
}

#[tokio::test]
async fn strange_answers_change_nothing() {
    let manager = manager(plain());
    let first = request(&manager).await;
    let good = answer(&first, scored(1.0), 1, V0);
    let mut foreign = good.clone();
    foreign.seed += 1;
    let error = manager.ingest(foreign).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse);
    let mut unknown = good.clone();
    unknown.id.0 ^= 1;
    manager.ingest(unknown).await.unwrap();
    manager.ingest(good.clone()).await.unwrap();
    manager.ingest(good).await.unwrap();
    assert_eq!(manager.status().trajectories, 1);
}

#[tokio::test]
async fn an_unsound_decision_costs_the_slot_not_the_run() {
    let manager = manager(plain());
    let first = request(&manager).await;
    let mut short = answer(&first, scored(1.0), 2, V0);
    short.steps[1].decision.rollout_log_probs = vec![-1.0].into();
    manager.ingest(short).await.unwrap();
    let second = request(&manager).await;
    let mut future = answer(&second, scored(1.0), 2, V0);
    future.steps[0].decision.prompt.images[0].image = 1;
    manager.ingest(future).await.unwrap();
    let status = manager.status();
    assert_eq!((status.aborted, status.trajectories), (2, 0));
}

#[tokio::test]
async fn close_ends_all_waiting() {
    let config = CurationConfig {
        max_in_flight: 1,
        ..plain()
    };
    let manager = Arc::new(manager(config));
    request(&manager).await;
    let (requests, batches) = (manager.clone(), manager.clone());
    let requests = tokio::spawn(async move { requests.next_request().await });
    let batches = tokio::spawn(async move { batches.next_batch().await });
    tokio::task::yield_now().await;
    manager.close();
    assert!(requests.await.unwrap().unwrap().is_none());
    assert!(batches.await.unwrap().unwrap().is_none());
    assert!(manager.next_request().await.unwrap().is_none());
}

#[tokio::test]
async fn commits_are_checked_and_may_be_repeated() {
    let store = Arc::new(MemoryStore::new());
    let manager = manager_on(plain(), store.clone());
    let unknown = manager.commit(commit(0, 1)).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Misuse);
    for _ in 0..2 {
        group(&manager, &[1.0, 0.0], V0).await;
    }
    manager.next_batch().await.unwrap().unwrap();
    manager.commit(commit(0, 1)).await.unwrap();
    manager.commit(commit(0, 1)).await.unwrap();
    let before = store.list(&TrajectoryQuery::default()).await.unwrap();
    assert!(before.iter().all(|summary| summary.used_in.is_none()));
    seal(&manager).await;
    let used = store.list(&TrajectoryQuery::default()).await.unwrap();
    assert_eq!(used.len(), 4);
    assert!(
        used.iter()
            .all(|summary| summary.used_in == Some(BatchId(0)))
    );
}

#[tokio::test]
async fn fewer_rollouts_and_shorter_ones_for_solved_tasks() {
    let mut config = CurationConfig {
        groups_per_batch: 4,
        max_groups_per_batch: 4,
        max_staleness: 100,
        ..CurationConfig::default()
    };
    config.pool.enabled = false;
    let manager = DataManager::new(config, tasks(1), 3, Arc::new(MemoryStore::new())).unwrap();
    group(&manager, &[1.0; 8], V0).await;
    let next = request(&manager).await;
    assert_eq!(next.step_limit, 3, "two steps and half as much again");
    manager
        .ingest(answer(&next, scored(1.0), 2, V0))
        .await
        .unwrap();
    let second = request(&manager).await;
    assert_eq!(second.group, next.group);
    assert_ne!(request(&manager).await.group, next.group, "a group of two");
}

#[tokio::test]
async fn start_at_moves_the_version_before_the_first_batch() {
    let mut config = plain();
    config.max_staleness = 0;
    let manager = manager(config);
    manager.start_at(PolicyVersion(100));
    // Trajectories of an older policy are too old at once.
    group(&manager, &[1.0, 0.0], PolicyVersion(99)).await;
    group(&manager, &[1.0, 0.0], PolicyVersion(100)).await;
    assert!(ready(manager.next_batch()).await.is_none());
    assert_eq!(manager.status().stale, 2);
    group(&manager, &[1.0, 0.0], PolicyVersion(100)).await;
    assert!(manager.next_batch().await.unwrap().is_some());
}

#[tokio::test]
async fn wrong_task_lists_are_refused() {
    let store = || Arc::new(MemoryStore::new());
    let make = |tasks| DataManager::new(plain(), tasks, 0, store()).unwrap_err();
    let mut held_out = (*task("x")).clone();
    held_out.split = Split::Words;
    for (tasks, named) in [
        (vec![], "no tasks"),
        (vec![task("a"), task("a")], "task a is listed twice"),
        (vec![Arc::new(held_out)], "task x is held out"),
    ] {
        let error = make(tasks);
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[tokio::test]
async fn a_lost_body_costs_its_group_alone() {
    let store = Arc::new(MemoryStore::transient());
    let manager = manager_on(plain(), store.clone());
    let first = request(&manager).await;
    manager
        .ingest(answer(&first, scored(1.0), 1, V0))
        .await
        .unwrap();
    group(&manager, &[0.0], V0).await;
    group(&manager, &[1.0, 0.0], V0).await;
    store.release(&[first.trajectory]);
    assert!(ready(manager.next_batch()).await.is_none());
    group(&manager, &[1.0, 0.0], V0).await;
    let batch = manager.next_batch().await.unwrap().unwrap();
    assert!(
        batch
            .samples
            .iter()
            .all(|sample| sample.group != first.group)
    );
}

#[tokio::test]
async fn a_called_off_rollout_is_not_counted_against_its_slot() {
    let mut config = plain();
    config.max_attempts = 1;
    let manager = manager(config);
    let first = request(&manager).await;
    let mut cancelled = answer(&first, Outcome::Aborted, 0, V0);
    cancelled.stop = StopReason::Cancelled;
    manager.ingest(cancelled).await.unwrap();
    assert_eq!(request(&manager).await.group, first.group);
}

type Recorded = Arc<Mutex<Vec<String>>>;

fn recorder() -> (Recorded, dart_curation::CurationEventSink) {
    let events = Recorded::default();
    let sink = events.clone();
    let record = move |event: &CurationEvent| {
        let line = serde_json::to_string(event).unwrap();
        sink.lock().unwrap().push(line);
    };
    (events, Arc::new(record))
}

#[tokio::test]
async fn the_event_log_tells_the_story() {
    let (events, sink) = recorder();
    let manager = manager(plain()).with_events(sink);
    for _ in 0..2 {
        group(&manager, &[1.0, 0.0], V0).await;
    }
    manager.next_batch().await.unwrap().unwrap();
    manager.commit(commit(0, 1)).await.unwrap();
    let kinds: Vec<_> = events
        .lock()
        .unwrap()
        .iter()
        .map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            event["event"].as_str().unwrap().to_owned()
        })
        .collect();
    let group = ["request", "ingest", "request", "ingest", "group-ready"];
    let expected = [&group[..], &group[..], &["batch", "commit"]].concat();
    assert_eq!(kinds, expected);
}
