//! Earlier successes that help groups which failed throughout.

use std::sync::Arc;

use dart_core::{BatchId, Commit, Curator, ErrorKind, PolicyVersion, SampleOrigin};
use dart_curation::{DataManager, MemoryStore, Provenance};

use crate::common::{answer, group, manager, plain, request, scored, tasks};

const V0: PolicyVersion = PolicyVersion(0);

#[tokio::test]
async fn the_pool_helps_groups_that_failed_throughout() {
    let mut config = plain();
    config.pool.enabled = true;
    config.groups_per_batch = 1;
    config.max_groups_per_batch = 1;
    let manager = manager(config);
    let (a, b) = (request(&manager).await, request(&manager).await);
    let mut expert = answer(&a, scored(1.0), 3, V0);
    expert.id.0 ^= 1;
    manager.add_to_pool(expert.clone()).await.unwrap();
    let mut failure = answer(&a, scored(0.5), 3, V0);
    failure.id.0 ^= 2;
    assert_eq!(
        manager.add_to_pool(failure).await.unwrap_err().kind(),
        ErrorKind::Misuse
    );
    for request in [&a, &b] {
        manager
            .ingest(answer(request, scored(0.0), 2, V0))
            .await
            .unwrap();
    }
    let batch = manager.next_batch().await.unwrap().unwrap();
    let pool: Vec<_> = batch
        .samples
        .iter()
        .filter(|sample| sample.origin == SampleOrigin::Pool)
        .collect();
    assert_eq!(pool.len(), 3);
    for (sample, step) in pool.iter().zip(&expert.steps) {
        assert_eq!(sample.trajectory, expert.id);
        assert_eq!(sample.group, a.group);
        assert_eq!(sample.rollout_log_probs, step.decision.rollout_log_probs);
        assert!(sample.advantages.iter().all(|a| *a > 0.0));
    }
    assert_eq!(batch.samples.len(), 5);
    manager
        .commit(Commit {
            batch: BatchId(0),
            version: PolicyVersion(9),
        })
        .await
        .unwrap();
    assert_eq!(manager.pool_len(), 1, "pool samples are not used up");
}

#[tokio::test]
async fn successes_of_the_run_enter_the_pool_if_wanted() {
    let mut config = plain();
    config.pool.enabled = true;
    config.pool.from_rollouts = true;
    config.sampler.seeds_per_task = Some(1);
    config.max_staleness = 9;
    let manager =
        DataManager::new(config, tasks(1), 3, Arc::new(MemoryStore::transient())).unwrap();
    group(&manager, &[1.0, 1.0], V0).await;
    assert_eq!(manager.pool_len(), 2);
    group(&manager, &[0.0, 0.0], V0).await;
    group(&manager, &[0.0, 0.0], V0).await;
    let batch = manager.next_batch().await.unwrap().unwrap();
    let pool = batch
        .samples
        .iter()
        .filter(|sample| sample.origin == SampleOrigin::Pool);
    assert_eq!(pool.count(), 4, "a success of two steps in each group");
}

#[tokio::test]
async fn imported_successes_keep_their_provenance_apart() {
    let mut config = plain();
    config.pool.per_instance = 1;
    let manager = manager(config);
    let first = request(&manager).await;
    for n in 1..=3 {
        let mut expert = answer(&first, scored(1.0), 1, V0);
        expert.id.0 ^= n;
        manager
            .add_to_pool_as(expert, Provenance::Imported)
            .await
            .unwrap();
    }
    assert_eq!(manager.pool_len(), 1, "capacity of one instance");
}
