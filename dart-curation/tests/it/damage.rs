//! Files are cut and garbled at random: what is left is right or is said to be wrong.

use std::{fs, path::Path, sync::Arc};

use dart_core::{Curator, ErrorKind, PolicyVersion, TrajectoryId};
use dart_curation::{SqliteArchive, SqliteConfig, SqliteStore, TrajectoryQuery, TrajectoryStore};
use dart_testkit::files::copy_folder;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sqlx::{Connection, SqliteConnection};

use crate::{
    common::{group, manager_on, plain},
    store::{assert_same, blob_files, open, trajectory},
};

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
        copy_folder(dir.path(), torn.path()).unwrap();
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
        copy_folder(dir.path(), torn.path()).unwrap();
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
        assert_eq!(archive.audit().await.problems.len(), 1, "{change}");
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

/// Case: an emptied database used to be taken for a new one.
#[tokio::test]
async fn a_store_whose_database_is_gone_is_refused() {
    for gone in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path()).await;
        store.put(Arc::new(trajectory(1))).await.unwrap();
        store.close().await.unwrap();
        let database = dir.path().join("trajectories.sqlite");
        if gone {
            fs::remove_file(&database).unwrap();
        } else {
            fs::write(&database, b"").unwrap();
        }
        for error in [
            SqliteStore::open(dir.path()).await.map(drop).unwrap_err(),
            SqliteArchive::open(dir.path()).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Storage);
            assert!(
                error
                    .to_string()
                    .contains("trajectories.sqlite is gone or empty"),
                "{error}"
            );
        }
        let left = fs::metadata(&database).map_or(0, |left| left.len());
        assert_eq!(left, 0, "nothing was made in its place");
    }
}

/// A database of several pages for each table, all in one file.
async fn many(dir: &Path, count: u128) -> std::path::PathBuf {
    let store = crate::store::open_with(dir, 64).await;
    for id in 0..count {
        store.put(Arc::new(trajectory(id))).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    // What is still in the journal would stand in for damaged pages.
    change_rows(dir, "PRAGMA wal_checkpoint(TRUNCATE)").await;
    let journal = fs::metadata(dir.join("trajectories.sqlite-wal"));
    assert_eq!(journal.map_or(0, |journal| journal.len()), 0);
    dir.join("trajectories.sqlite")
}

/// The page on which the rows of a table begin that has several.
async fn leaf(dir: &Path, table: &str) -> u64 {
    let url = format!("sqlite://{}", dir.join("trajectories.sqlite").display());
    let mut raw = SqliteConnection::connect(&url).await.unwrap();
    let (page,): (i64,) = sqlx::query_as("SELECT rootpage FROM sqlite_schema WHERE name = ?1")
        .bind(table)
        .fetch_one(&mut raw)
        .await
        .unwrap();
    raw.close().await.unwrap();
    // The rightmost child of an interior page stands at its byte 8.
    let bytes = fs::read(dir.join("trajectories.sqlite")).unwrap();
    let root = (page as usize - 1) * 4096;
    assert_eq!(bytes[root], 5, "the table has several pages");
    u64::from(u32::from_be_bytes(
        bytes[root + 8..root + 12].try_into().unwrap(),
    ))
}

/// Case: a damaged page used to end `audit` before it had listed anything.
#[tokio::test]
async fn one_bad_page_hides_no_more_than_is_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let database = many(dir.path(), 200).await;
    let page = leaf(dir.path(), "trajectories").await;
    let mut bytes = fs::read(&database).unwrap();
    let start = (page as usize - 1) * 4096;
    bytes[start..start + 64].fill(0xff);
    fs::write(&database, &bytes).unwrap();

    let error = SqliteStore::open(dir.path()).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage);
    let said = error.to_string();
    assert!(said.contains("trajectories.sqlite is damaged"), "{said}");
    assert!(said.len() < 500 && !said.contains("CREATE"), "{said}");

    let archive = SqliteArchive::open(dir.path()).await.unwrap();
    let audit = archive.audit().await;
    assert_eq!(
        audit.checked, 200,
        "the index names what the table has lost"
    );
    let lost = audit
        .problems
        .iter()
        .filter(|line| line.starts_with("0000"));
    let lost = lost.count();
    assert!((1..60).contains(&lost), "{lost} of 200 were on the page");
    assert!(
        audit.problems.iter().all(|line| line.len() < 400),
        "{:?}",
        audit.problems
    );
    let mut whole = 0;
    for id in archive.salvage().await {
        if let Ok(Some(got)) = archive.get(id).await {
            assert_same(&got, &trajectory(id.0));
            whole += 1;
        }
    }
    assert_eq!(whole, 200 - lost);
}

/// Bits flip anywhere in the database: opening it, reading everything or the checksums tell.
#[tokio::test]
async fn flipped_bits_are_told_before_training_or_when_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let database = many(dir.path(), 60).await;
    let bytes = fs::read(&database).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let (mut refused, mut found, mut harmless) = (0, 0, 0);
    for round in 0..60 {
        let torn = tempfile::tempdir().unwrap();
        copy_folder(dir.path(), torn.path()).unwrap();
        let mut flipped = bytes.clone();
        for _ in 0..[1, 16, 256][round % 3] {
            let at = rng.random_range(0..flipped.len());
            flipped[at] ^= 1 << rng.random_range(0..8);
        }
        fs::write(torn.path().join("trajectories.sqlite"), &flipped).unwrap();
        let audit = match SqliteArchive::open(torn.path()).await {
            Ok(archive) => archive.audit().await,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
                refused += 1;
                continue;
            }
        };
        if SqliteStore::open(torn.path()).await.is_err() {
            refused += 1;
            assert!(
                !audit.problems.is_empty(),
                "what opening refuses, the audit names"
            );
        } else if audit.problems.is_empty() {
            harmless += 1;
            let archive = SqliteArchive::open(torn.path()).await.unwrap();
            for id in 0..60 {
                let got = archive.get(TrajectoryId(id)).await.unwrap().unwrap();
                assert_same(&got, &trajectory(id));
            }
        } else {
            found += 1;
        }
    }
    println!(
        "flipped bits: {refused} refused at opening, {found} found by reading, {harmless} in unused bytes"
    );
    assert!(refused > 0 && found > 0);
}
