//! Files are cut and garbled at random: what is left is right or is said to be wrong.

use std::{fs, path::Path, sync::Arc};

use dart_core::{Curator, ErrorKind, PolicyVersion, TrajectoryId};
use dart_curation::{SqliteArchive, SqliteConfig, SqliteStore, TrajectoryQuery, TrajectoryStore};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sqlx::{Connection, SqliteConnection};

use crate::{
    common::{group, manager_on, plain},
    store::{assert_same, blob_files, open, trajectory},
};

/// Copies a store as a crash leaves it: nobody closes it first.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Cuts the end of `path` off, or garbles some of it.
fn tear(path: &Path, rng: &mut ChaCha8Rng) {
    let mut bytes = fs::read(path).unwrap();
    if bytes.is_empty() {
        return;
    }
    let from = rng.random_range(bytes.len() / 2..bytes.len());
    if rng.random() {
        bytes.truncate(from);
    } else {
        for byte in bytes.iter_mut().skip(from).take(64) {
            *byte ^= rng.random_range(1..=255);
        }
    }
    fs::write(path, bytes).unwrap();
}

/// The last file written before a power failure is the journal: whatever is left of it, the store
/// opens, and everything in it is as it was put.
#[tokio::test]
async fn a_torn_journal_costs_the_latest_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for id in 0..20 {
        store.put(Arc::new(trajectory(id))).await.unwrap();
    }
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut kept = Vec::new();
    for _ in 0..40 {
        let torn = tempfile::tempdir().unwrap();
        copy(dir.path(), torn.path());
        tear(&torn.path().join("trajectories.sqlite-wal"), &mut rng);
        let _ = fs::remove_file(torn.path().join("trajectories.sqlite-shm"));
        let store = open(torn.path()).await;
        let query = TrajectoryQuery {
            limit: 1000,
            ..TrajectoryQuery::default()
        };
        let found = store.list(&query).await.unwrap();
        // A prefix of what was put, each as it was.
        let mut ids: Vec<_> = found.iter().map(|found| found.id.0).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..ids.len() as u128).collect::<Vec<_>>());
        for id in &ids {
            let got = store.get(TrajectoryId(*id)).await.unwrap().unwrap();
            assert_same(&got, &trajectory(*id));
        }
        kept.push(ids.len());
        store.put(Arc::new(trajectory(100))).await.unwrap();
        store.close().await.unwrap();
    }
    println!("kept of 20 after a torn journal: {kept:?}");
    assert!(kept.iter().any(|kept| *kept < 20), "nothing was torn");
}

/// Files that were whole and are damaged later: nothing wrong is ever given out.
#[tokio::test]
async fn damage_anywhere_is_told_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for id in 0..12 {
        store.put(Arc::new(trajectory(id))).await.unwrap();
    }
    store.close().await.unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let (mut told, mut harmless) = (0, 0);
    for round in 0..40 {
        let torn = tempfile::tempdir().unwrap();
        copy(dir.path(), torn.path());
        let mut files = blob_files(torn.path());
        files.push(torn.path().join("trajectories.sqlite"));
        let target = if round % 2 == 0 {
            files.len() - 1
        } else {
            rng.random_range(0..files.len())
        };
        tear(&files[target], &mut rng);
        let Ok(store) = SqliteStore::open(torn.path()).await else {
            told += 1;
            continue;
        };
        let mut faults = 0;
        for id in 0..12 {
            match store.get(TrajectoryId(id)).await {
                Ok(Some(got)) => assert_same(&got, &trajectory(id)),
                Ok(None) | Err(_) => faults += 1,
            }
        }
        if faults > 0 {
            told += 1;
        } else {
            harmless += 1;
        }
    }
    println!("damage told {told} times, harmless {harmless} times");
    assert!(told > 0);
}

#[tokio::test]
async fn changed_rows_are_told_by_their_checksum() {
    let changes = [
        "UPDATE trajectories SET reward = 0.5",
        "UPDATE trajectories SET instruction = 'other'",
        "UPDATE steps SET log_probs = zeroblob(12) WHERE step = 1",
        "UPDATE steps SET version = 4 WHERE step = 2",
        "DELETE FROM steps WHERE step = 2",
    ];
    for change in changes {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path()).await;
        store.put(Arc::new(trajectory(1))).await.unwrap();
        store.close().await.unwrap();
        change_rows(dir.path(), change).await;
        let archive = SqliteArchive::open(dir.path()).await.unwrap();
        let error = archive.get(TrajectoryId(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage, "{change}");
        assert_eq!(archive.audit().await.unwrap().problems.len(), 1, "{change}");
    }
}

async fn change_rows(dir: &Path, change: &'static str) {
    let url = format!("sqlite://{}", dir.join("trajectories.sqlite").display());
    let mut raw = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(change).execute(&mut raw).await.unwrap();
    raw.close().await.unwrap();
}

/// Case: a corrupt image used to end the run.
#[tokio::test]
async fn a_corrupt_image_is_quarantined_and_the_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let config = SqliteConfig {
        cache_megabytes: 0,
        inline_kilobytes: 0,
        ..SqliteConfig::default()
    };
    let store = SqliteStore::open_with(dir.path(), config).await.unwrap();
    let store = Arc::new(store);
    let manager = manager_on(plain(), store.clone());
    for _ in 0..2 {
        group(&manager, &[1.0, 0.0], PolicyVersion(0)).await;
    }
    let victim = store.list(&TrajectoryQuery::default()).await.unwrap()[0].id;
    let body = store.get(victim).await.unwrap().unwrap();
    let hash = blake3::hash(body.steps[0].observation.frame.rgb()).to_hex();
    let path = dir.path().join("blobs").join(&hash[..2]).join(&hash[2..]);
    fs::write(&path, b"torn").unwrap();
    // Its group is too small without it; another one takes its place.
    let batch = tokio::spawn({
        let manager = Arc::new(manager);
        async move {
            let batch = manager.next_batch();
            tokio::pin!(batch);
            loop {
                tokio::select! {
                    batch = &mut batch => return batch.unwrap().unwrap(),
                    () = group(&manager, &[1.0, 0.0], PolicyVersion(0)) => {}
                }
            }
        }
    });
    let batch = tokio::time::timeout(std::time::Duration::from_secs(30), batch);
    let batch = batch.await.expect("the run stands still").unwrap();
    assert!(
        batch
            .samples
            .iter()
            .all(|sample| sample.trajectory != victim)
    );
    let all = store.list(&TrajectoryQuery::default()).await.unwrap();
    let found = all.iter().find(|found| found.id == victim).unwrap();
    let reason = found.quarantined.as_deref().unwrap();
    assert!(reason.contains(&hash[2..]), "{reason}");
}
