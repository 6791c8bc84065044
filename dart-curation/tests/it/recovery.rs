//! What was finished between a checkpoint and a crash is taken in.

use std::sync::Arc;

use dart_core::{Commit, Curator, PolicyVersion};
use dart_curation::{DataManager, MemoryStore, SqliteStore, TrajectoryStore};

use crate::{
    common::{answer, group, manager_on, plain, request, scored},
    store::trajectory,
};

pub(crate) async fn seal(manager: &DataManager) -> Vec<u8> {
    let checkpoint = manager.checkpoint().unwrap();
    let snapshot = checkpoint.snapshot.clone();
    let sealed = manager.seal(checkpoint, "v".into(), PolicyVersion(0));
    sealed.await.unwrap();
    snapshot
}

async fn nothing_finished_is_lost(store: Arc<dyn TrajectoryStore>) {
    let manager = manager_on(plain(), store.clone());
    group(&manager, &[1.0, 0.0], PolicyVersion(0)).await;
    let snapshot = seal(&manager).await;
    // After the checkpoint: one group of two is finished, one half done.
    group(&manager, &[0.0, 1.0], PolicyVersion(0)).await;
    let half = request(&manager).await;
    let ids_before = [half.trajectory, request(&manager).await.trajectory];
    let done = answer(&half, scored(1.0), 2, PolicyVersion(0));
    manager.ingest(done).await.unwrap();
    drop(manager);

    // A demonstration that was shown again meanwhile is no rollout.
    store.import(Arc::new(trajectory(77))).await.unwrap();

    let restored = manager_on(plain(), store.clone());
    restored.restore(&snapshot).await.unwrap();
    assert_eq!(restored.status().groups_ready, 1);
    let recovered = restored.recover().await.unwrap();
    assert_eq!((recovered.taken_in, recovered.left), (3, 0));
    assert_eq!(restored.status().groups_ready, 2);
    assert_eq!(restored.status().trajectories, 5);
    // The half group waits for its other slot, under an identity that nobody had before.
    let next = request(&restored).await;
    assert_eq!((next.group, next.seed), (half.group, half.seed));
    assert!(!ids_before.contains(&next.trajectory));
    let batch = restored.next_batch().await.unwrap().unwrap();
    let commit = Commit {
        batch: batch.id,
        version: PolicyVersion(1),
    };
    restored.commit(commit).await.unwrap();
    seal(&restored).await;
}

#[tokio::test]
async fn what_was_finished_after_the_checkpoint_is_taken_in() {
    nothing_finished_is_lost(Arc::new(MemoryStore::new())).await;
    let dir = tempfile::tempdir().unwrap();
    nothing_finished_is_lost(Arc::new(SqliteStore::open(dir.path()).await.unwrap())).await;
}

#[tokio::test]
async fn weights_that_were_lost_teach_nothing() {
    let store: Arc<dyn TrajectoryStore> = Arc::new(MemoryStore::new());
    let manager = manager_on(plain(), store.clone());
    let snapshot = seal(&manager).await;
    group(&manager, &[0.0, 1.0], PolicyVersion(1)).await;
    drop(manager);
    let restored = manager_on(plain(), store.clone());
    restored.restore(&snapshot).await.unwrap();
    let recovered = restored.recover().await.unwrap();
    assert_eq!((recovered.taken_in, recovered.left), (0, 2));
    assert_eq!(restored.status().groups_ready, 0);
}

#[tokio::test]
async fn the_bounds_hold_for_what_is_taken_in() {
    let store: Arc<dyn TrajectoryStore> = Arc::new(MemoryStore::new());
    let manager = manager_on(plain(), store.clone());
    let snapshot = seal(&manager).await;
    // Two batches before the crash leave more groups than may wait now.
    for version in 1..=2 {
        for _ in 0..2 {
            group(&manager, &[0.0, 1.0], PolicyVersion(0)).await;
        }
        let batch = manager.next_batch().await.unwrap().unwrap();
        let commit = Commit {
            batch: batch.id,
            version: PolicyVersion(version),
        };
        manager.commit(commit).await.unwrap();
    }
    group(&manager, &[0.0, 1.0], PolicyVersion(0)).await;
    drop(manager);
    let restored = manager_on(plain(), store.clone());
    restored.restore(&snapshot).await.unwrap();
    let recovered = restored.recover().await.unwrap();
    // Two groups of two for each of two batches: staleness 0 and 1.
    assert_eq!((recovered.taken_in, recovered.left), (8, 2));
    assert!(restored.status().groups_ready <= 4);
}
