//! Snapshots: what follows a restore is what would have followed without.

use std::sync::Arc;

use dart_core::{
    Batch, BatchId, Commit, Curator, ErrorKind, Outcome, PolicyVersion, RolloutRequest,
    TrajectoryId,
};
use dart_curation::{CurationConfig, DataManager, MemoryStore, SqliteStore, TrajectoryStore};

use crate::common::{answer, group, manager_on, plain, ready, request, scored, tasks};

fn commit(batch: BatchId, version: u64) -> Commit {
    Commit {
        batch,
        version: PolicyVersion(version),
    }
}

/// What a batch is, without its pixels.
fn outline(batch: &Batch) -> Vec<(TrajectoryId, u32, u64, String)> {
    let sample = |s: &dart_core::Sample| {
        let advantage = format!("{:?}", s.advantages);
        (s.trajectory, s.step, s.group.0, advantage)
    };
    batch.samples.iter().map(sample).collect()
}

fn adaptive() -> CurationConfig {
    let mut config = CurationConfig {
        groups_per_batch: 2,
        max_groups_per_batch: 3,
        max_staleness: 2,
        ..CurationConfig::default()
    };
    config.pool.from_rollouts = true;
    config.sampler.seeds_per_task = Some(2);
    config
}

/// Answers by a rule that depends on the request alone.
fn reply(request: &RolloutRequest, version: u64) -> dart_core::Trajectory {
    let outcome = match request.sampling_seed % 8 {
        0 => Outcome::Aborted,
        1..=4 => scored(0.0),
        5 => Outcome::PolicyFault,
        _ => scored(1.0),
    };
    let steps = 1 + (request.sampling_seed >> 8) % 3;
    answer(request, outcome, steps as u32, PolicyVersion(version))
}

/// Runs `rounds` batches and tells all that was seen.
async fn run(manager: &DataManager, from: u64, rounds: u64) -> Vec<String> {
    let mut seen = Vec::new();
    for version in from..from + rounds {
        while manager.status().groups_ready < manager.status().groups_needed {
            let request = request(manager).await;
            seen.push(format!("{request:?}"));
            manager.ingest(reply(&request, version)).await.unwrap();
        }
        // Nothing is too old here, so enough groups are a batch.
        let batch = manager.next_batch().await.unwrap().unwrap();
        seen.push(format!("{:?} {:?}", batch.id, outline(&batch)));
        manager.commit(commit(batch.id, version + 1)).await.unwrap();
    }
    seen
}

fn assert_same(got: &[String], expected: &[String]) {
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got, expected, "event {index}");
    }
    assert_eq!(got.len(), expected.len());
}

#[tokio::test]
async fn the_same_seed_and_answers_give_the_same_run() {
    let manager = || manager_on(adaptive(), Arc::new(MemoryStore::transient()));
    let expected = run(&manager(), 0, 6).await;
    assert_same(&run(&manager(), 0, 6).await, &expected);
    // Nor does it matter that the store lets go of what is released: nothing else is asked for.
    let keeping = manager_on(adaptive(), Arc::new(MemoryStore::new()));
    assert_same(&run(&keeping, 0, 6).await, &expected);
}

#[tokio::test]
async fn a_restored_manager_goes_on_as_if_nothing_had_happened() {
    let store: Arc<dyn TrajectoryStore> = Arc::new(MemoryStore::new());
    let manager = manager_on(adaptive(), store.clone());
    run(&manager, 0, 3).await;
    // A group half done, so that the snapshot is not a tidy one.
    for _ in 0..3 {
        let request = request(&manager).await;
        manager.ingest(reply(&request, 3)).await.unwrap();
    }
    let snapshot = manager.snapshot().await.unwrap();
    let expected = run(&manager, 3, 4).await;
    let restored = manager_on(adaptive(), store);
    restored.restore(&snapshot).await.unwrap();
    assert_eq!(restored.snapshot().await.unwrap(), snapshot);
    assert_same(&run(&restored, 3, 4).await, &expected);
}

#[tokio::test]
async fn requests_in_flight_are_handed_out_again_as_they_were() {
    let store: Arc<dyn TrajectoryStore> = Arc::new(MemoryStore::new());
    let manager = manager_on(plain(), store.clone());
    let (a, b, c) = (
        request(&manager).await,
        request(&manager).await,
        request(&manager).await,
    );
    let snapshot = manager.snapshot().await.unwrap();
    // b comes back after the snapshot and before the crash; c is aborted by the shutdown.
    let late = answer(&b, scored(0.0), 2, PolicyVersion(0));
    manager.ingest(late).await.unwrap();
    manager
        .ingest(answer(&c, Outcome::Aborted, 0, PolicyVersion(0)))
        .await
        .unwrap();
    drop(manager);

    let restored = manager_on(plain(), store);
    restored.restore(&snapshot).await.unwrap();
    assert_eq!(restored.status().in_flight, 0);
    assert_eq!(restored.status().trajectories, 1, "b is not made twice");
    assert_eq!(request(&restored).await, a);
    assert_eq!(request(&restored).await, c);
}

#[tokio::test]
async fn a_batch_that_was_not_committed_comes_again() {
    let store: Arc<dyn TrajectoryStore> = Arc::new(MemoryStore::new());
    let manager = manager_on(plain(), store.clone());
    for _ in 0..4 {
        group(&manager, &[1.0, 0.0], PolicyVersion(0)).await;
    }
    let first = manager.next_batch().await.unwrap().unwrap();
    let snapshot = manager.snapshot().await.unwrap();
    let second = manager.next_batch().await.unwrap().unwrap();
    manager.commit(commit(first.id, 1)).await.unwrap();
    manager.commit(commit(second.id, 2)).await.unwrap();

    let restored = manager_on(plain(), store.clone());
    restored.restore(&snapshot).await.unwrap();
    assert_eq!(restored.status().groups_ready, 4);
    assert!(
        ready(restored.next_request()).await.is_none(),
        "the bound still holds"
    );
    for expected in [&first, &second] {
        let batch = restored.next_batch().await.unwrap().unwrap();
        assert_eq!(batch.id, expected.id);
        assert_eq!(outline(&batch), outline(expected));
    }
    restored.commit(commit(first.id, 1)).await.unwrap();

    // The learner's checkpoint may hold the batch although the snapshot does not know it yet.
    let knowing = manager_on(plain(), store);
    knowing.restore(&snapshot).await.unwrap();
    knowing.commit(commit(first.id, 1)).await.unwrap();
    let batch = knowing.next_batch().await.unwrap().unwrap();
    assert_eq!(outline(&batch), outline(&second));
}

#[tokio::test]
async fn sqlite_alone_is_enough_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(dir.path()).await.unwrap());
    let manager = manager_on(adaptive(), store.clone());
    run(&manager, 0, 2).await;
    let snapshot = manager.snapshot().await.unwrap();
    let expected = run(&manager, 2, 3).await;
    store.close().await.unwrap();
    drop((manager, store));

    let store = Arc::new(SqliteStore::open(dir.path()).await.unwrap());
    let restored = manager_on(adaptive(), store);
    restored.restore(&snapshot).await.unwrap();
    assert_same(&run(&restored, 2, 3).await, &expected);
}

#[tokio::test]
async fn wrong_snapshots_are_refused() {
    let store: Arc<dyn TrajectoryStore> = Arc::new(MemoryStore::new());
    let manager = manager_on(plain(), store.clone());
    group(&manager, &[1.0, 0.0], PolicyVersion(0)).await;
    let snapshot = manager.snapshot().await.unwrap();
    let late = manager.restore(&snapshot).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Misuse);

    let fresh = || manager_on(plain(), store.clone());
    for bad in [
        &b""[..],
        b"{}",
        b"not json",
        &snapshot[..snapshot.len() / 2],
    ] {
        let error = fresh().restore(bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
    }
    let other_format =
        String::from_utf8(snapshot.clone())
            .unwrap()
            .replacen("\"format\":1", "\"format\":2", 1);
    let error = fresh().restore(other_format.as_bytes()).await.unwrap_err();
    assert!(error.to_string().contains("format 2"), "{error}");

    let other_tasks = vec![crate::common::task("something-else")];
    let other = DataManager::new(plain(), other_tasks, 0, store.clone()).unwrap();
    let error = other.restore(&snapshot).await.unwrap_err();
    assert!(error.to_string().contains("task-0"), "{error}");
    assert_eq!(tasks(1)[0].id.as_str(), "task-0");
}
