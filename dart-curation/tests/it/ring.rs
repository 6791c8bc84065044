//! Many workers and a learner on real threads.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use dart_core::{Commit, Curator, Outcome, PolicyVersion};
use dart_curation::{CurationConfig, DataManager, SqliteStore, TrajectoryQuery, TrajectoryStore};

use crate::common::{answer, scored, tasks};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_workers_and_a_learner() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(dir.path()).await.unwrap());
    let config = CurationConfig {
        groups_per_batch: 4,
        max_groups_per_batch: 4,
        max_in_flight: 16,
        max_staleness: 2,
        ..CurationConfig::default()
    };
    let manager = DataManager::new(config, tasks(4), 5, store.clone()).unwrap();
    let manager = Arc::new(manager);
    let workers: Vec<_> = (0..16)
        .map(|_| tokio::spawn(work(manager.clone())))
        .collect();
    let trained = tokio::time::timeout(Duration::from_mins(1), train(&manager, 15)).await;
    let trained = trained.expect("the ring stands still");
    manager.close();
    for worker in workers {
        worker.await.unwrap();
    }
    let checkpoint = manager.checkpoint().unwrap();
    let sealed = manager.seal(checkpoint, "v15".into(), PolicyVersion(15));
    sealed.await.unwrap();
    store.close().await.unwrap();

    let store = SqliteStore::open(dir.path()).await.unwrap();
    let query = TrajectoryQuery {
        limit: u32::MAX,
        ..TrajectoryQuery::default()
    };
    let all = store.list(&query).await.unwrap();
    let used: BTreeSet<_> = all
        .iter()
        .filter(|summary| summary.used_in.is_some())
        .map(|summary| summary.id)
        .collect();
    assert_eq!(
        used, trained,
        "what was trained on is marked as used, nothing else"
    );
    let status = manager.status();
    assert_eq!(status.in_flight, 0);
    assert_eq!(all.len() as u64, status.trajectories + status.aborted);
}

/// Answers requests until the end: one in ten is aborted, half of the others succeed.
async fn work(manager: Arc<DataManager>) {
    while let Some(request) = manager.next_request().await.unwrap() {
        tokio::task::yield_now().await;
        let outcome = match request.sampling_seed % 10 {
            0 => Outcome::Aborted,
            1..=4 => scored(1.0),
            _ => scored(0.0),
        };
        // The policies know the version of the group's first days, which is what workers see.
        let version = PolicyVersion(request.group.0 / 4);
        let answer = answer(&request, outcome, 2, version);
        manager.ingest(answer).await.unwrap();
    }
}

async fn train(manager: &DataManager, batches: u64) -> BTreeSet<dart_core::TrajectoryId> {
    let mut trained = BTreeSet::new();
    for version in 1..=batches {
        let batch = manager.next_batch().await.unwrap().unwrap();
        trained.extend(batch.samples.iter().map(|sample| sample.trajectory));
        let commit = Commit {
            batch: batch.id,
            version: PolicyVersion(version),
        };
        manager.commit(commit).await.unwrap();
    }
    trained
}
