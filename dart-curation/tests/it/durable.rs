//! Claims, fences, quarantine, retention, full disks, schemas.

use std::{path::Path, sync::Arc, time::Duration};

use dart_core::{BatchId, ErrorKind, PolicyVersion, TrajectoryId};
use dart_curation::{
    CheckpointRef, Claim, MAX_FAILURES, MemoryStore, Quarantined, Retention, Seal, SqliteArchive,
    SqliteConfig, SqliteStore, TrajectoryQuery, TrajectoryStore, Use,
};
use sqlx::{Connection, SqliteConnection};

use crate::store::{assert_same, blob_files, open, open_with, trajectory};

pub(crate) const HOUR: Duration = Duration::from_hours(1);

pub(crate) fn used(batch: u64, version: u64, claim: Claim) -> Use {
    Use {
        batch: BatchId(batch),
        version: PolicyVersion(version),
        claim,
    }
}

pub(crate) fn seal(version: u64, uses: Vec<Use>) -> Seal {
    Seal {
        checkpoint: CheckpointRef {
            version: PolicyVersion(version),
            name: format!("v{version:06}"),
        },
        oldest_kept: PolicyVersion(0),
        uses,
        watermark: 3,
        needed: Vec::new(),
    }
}

pub(crate) async fn pointer(store: &dyn TrajectoryStore) -> Option<u64> {
    let pointer = store.pointer().await.unwrap();
    pointer.map(|checkpoint| checkpoint.version.0)
}

async fn claims_are_exclusive(store: &dyn TrajectoryStore) {
    for id in 1..=3 {
        store.put(Arc::new(trajectory(id))).await.unwrap();
    }
    let [one, two, three] = [1, 2, 3].map(TrajectoryId);
    let held = store.claim(&[one, two], "a", HOUR).await.unwrap();
    let refused = store.claim(&[three, two], "b", HOUR).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stale);
    assert!(refused.to_string().contains(&two.to_string()), "{refused}");
    // All or none: three is free all the same.
    let other = store.claim(&[three], "b", HOUR).await.unwrap();
    assert!(other.fence > held.fence);
    let missing = store.claim(&[TrajectoryId(9)], "b", HOUR).await;
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::Stale);
    // The owner may claim anew; the older claim is worth nothing then.
    let again = store.claim(&[one, two], "a", HOUR).await.unwrap();
    let outdated = store.seal(&seal(1, vec![used(0, 1, held)])).await;
    assert_eq!(outdated.unwrap_err().kind(), ErrorKind::Stale);
    assert_eq!(
        pointer(store).await,
        None,
        "the checkpoint was not written either"
    );
    // Given back, it is free.
    store.give_back(&again).await.unwrap();
    let late = store.seal(&seal(1, vec![used(0, 1, again)])).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Stale);
    let taken = store.claim(&[one, two], "b", HOUR).await.unwrap();
    let uses = vec![used(0, 1, taken), used(1, 2, other)];
    store.seal(&seal(2, uses)).await.unwrap();
    assert_eq!(pointer(store).await, Some(2));
}

#[tokio::test]
async fn a_claim_is_exclusive_and_an_outdated_one_is_refused() {
    claims_are_exclusive(&MemoryStore::new()).await;
    let dir = tempfile::tempdir().unwrap();
    claims_are_exclusive(&open(dir.path()).await).await;
}

async fn leases_run_out(store: &dyn TrajectoryStore) {
    store.put(Arc::new(trajectory(1))).await.unwrap();
    let ids = [TrajectoryId(1)];
    let stalled = store
        .claim(&ids, "stalled", Duration::from_millis(50))
        .await;
    let early = store.claim(&ids, "eager", HOUR).await;
    assert_eq!(early.unwrap_err().kind(), ErrorKind::Stale);
    tokio::time::sleep(Duration::from_millis(80)).await;
    let taken = store.claim(&ids, "eager", HOUR).await.unwrap();
    let late = store
        .seal(&seal(1, vec![used(0, 1, stalled.unwrap())]))
        .await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Stale);
    store.seal(&seal(1, vec![used(0, 1, taken)])).await.unwrap();
}

#[tokio::test]
async fn an_expired_lease_is_taken_over_and_the_late_acknowledgement_refused() {
    leases_run_out(&MemoryStore::new()).await;
    let dir = tempfile::tempdir().unwrap();
    leases_run_out(&open(dir.path()).await).await;
}

#[tokio::test]
async fn a_restart_ends_all_claims() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    store.put(Arc::new(trajectory(1))).await.unwrap();
    let ids = [TrajectoryId(1)];
    let before = store.claim(&ids, "before", HOUR).await.unwrap();
    store.close().await.unwrap();
    let store = open(dir.path()).await;
    let late = store.seal(&seal(1, vec![used(0, 1, before.clone())])).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Stale);
    let after = store.claim(&ids, "after", HOUR).await.unwrap();
    assert!(after.fence > before.fence, "fences grow across restarts");
}

async fn fails_three_times(store: &dyn TrajectoryStore) {
    store.put(Arc::new(trajectory(1))).await.unwrap();
    let id = TrajectoryId(1);
    for attempt in 1..MAX_FAILURES {
        let failed = store.fail(id, "torn").await.unwrap();
        assert_eq!(failed, Quarantined::NotYet(attempt));
        let claim = store.claim(&[id], "a", HOUR).await.unwrap();
        store.give_back(&claim).await.unwrap();
    }
    assert_eq!(
        store.fail(id, "torn image").await.unwrap(),
        Quarantined::Yes
    );
    let error = store.claim(&[id], "a", HOUR).await.unwrap_err();
    assert!(error.to_string().contains("torn image"), "{error}");
    let found = store.list(&TrajectoryQuery::default()).await.unwrap();
    assert_eq!(found[0].quarantined.as_deref(), Some("torn image"));
    // A new answer to the same request is a new chance.
    store.put(Arc::new(trajectory(1))).await.unwrap();
    store.claim(&[id], "a", HOUR).await.unwrap();
}

#[tokio::test]
async fn the_third_failure_is_the_last() {
    fails_three_times(&MemoryStore::new()).await;
    let dir = tempfile::tempdir().unwrap();
    fails_three_times(&open(dir.path()).await).await;
}

/// Case: a lease that ran out used to cost nothing, so that what ends every attempt was tried for ever.
async fn leases_that_run_out_count(store: &dyn TrajectoryStore) {
    for id in 1..=2 {
        store.put(Arc::new(trajectory(id))).await.unwrap();
    }
    let [bad, good] = [1, 2].map(TrajectoryId);
    let mut late = Vec::new();
    for attempt in 0..MAX_FAILURES {
        // The other one fails only once.
        let wish = if attempt == 0 {
            vec![bad, good]
        } else {
            vec![bad]
        };
        late.push(
            store
                .claim(&wish, "stalled", Duration::from_millis(20))
                .await
                .unwrap(),
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let refused = store.claim(&[bad, good], "eager", HOUR).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stale);
    let said = refused.to_string();
    assert!(
        said.contains("quarantine") && said.contains("stalled"),
        "{said}"
    );
    let found = store.list(&TrajectoryQuery::default()).await.unwrap();
    let bad_row = found.iter().find(|found| found.id == bad).unwrap();
    assert!(bad_row.quarantined.as_deref().unwrap().contains("stalled"));
    let claim = store.claim(&[good], "eager", HOUR).await.unwrap();
    // None of those whose time was over may still say that it has trained.
    for (batch, claim) in late.into_iter().enumerate() {
        let acknowledged = store
            .seal(&seal(1, vec![used(batch as u64, 1, claim)]))
            .await;
        assert_eq!(acknowledged.unwrap_err().kind(), ErrorKind::Stale);
    }
    store.seal(&seal(1, vec![used(9, 1, claim)])).await.unwrap();
    let found = store.list(&TrajectoryQuery::default()).await.unwrap();
    let used_in = |id| found.iter().find(|found| found.id == id).unwrap().used_in;
    assert_eq!((used_in(bad), used_in(good)), (None, Some(BatchId(9))));
}

#[tokio::test]
async fn the_third_lease_that_runs_out_is_the_last() {
    leases_that_run_out_count(&MemoryStore::new()).await;
    let dir = tempfile::tempdir().unwrap();
    leases_that_run_out_count(&open(dir.path()).await).await;
}

/// Whoever uses it in time has not failed, however late it is, and the end of a process is no failure.
#[tokio::test]
async fn only_leases_that_are_taken_over_count() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..=MAX_FAILURES {
        let store = open(dir.path()).await;
        store.put(Arc::new(trajectory(1))).await.unwrap();
        store
            .claim(&[TrajectoryId(1)], "killed", HOUR)
            .await
            .unwrap();
        store.close().await.unwrap();
    }
    let store = open(dir.path()).await;
    let short = store
        .claim(&[TrajectoryId(1)], "slow", Duration::from_millis(20))
        .await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    store
        .seal(&seal(1, vec![used(0, 1, short.unwrap())]))
        .await
        .unwrap();
}

/// Waits until the store has let go of what it may.
async fn settled(dir: &Path, bodies: u64) {
    let archive = SqliteArchive::open(dir).await.unwrap();
    for _ in 0..200 {
        if archive.overview().await.unwrap().with_steps == bodies {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{:?}", archive.overview().await.unwrap());
}

#[tokio::test]
async fn what_nobody_needs_goes_with_its_images() {
    for inline_kilobytes in [0, 64] {
        let dir = tempfile::tempdir().unwrap();
        let config = SqliteConfig {
            cache_megabytes: 0,
            inline_kilobytes,
            retention: Retention::Newest { trajectories: 2 },
            ..SqliteConfig::default()
        };
        let store = SqliteStore::open_with(dir.path(), config).await.unwrap();
        for id in 0..10 {
            store.put(Arc::new(trajectory(id * 7))).await.unwrap();
        }
        let kept = TrajectoryId(14);
        let end = Seal {
            watermark: 9,
            needed: vec![kept],
            ..seal(1, Vec::new())
        };
        store.seal(&end).await.unwrap();
        // Two newest, of which the checkpoint knows the older one only, and the needed one.
        settled(dir.path(), 3).await;
        for id in [kept, TrajectoryId(56), TrajectoryId(63)] {
            let got = store.get(id).await.unwrap().unwrap();
            assert_same(&got, &trajectory(id.0));
        }
        assert!(store.get(TrajectoryId(7)).await.unwrap().is_none());
        assert_eq!(
            store.list(&TrajectoryQuery::default()).await.unwrap().len(),
            10
        );
        let archive = SqliteArchive::open(dir.path()).await.unwrap();
        let overview = archive.overview().await.unwrap();
        let images = overview.images as usize + blob_files(dir.path()).len();
        assert_eq!(images, 6, "two images each");
        // What was let go can be stored again, image and all.
        store.put(Arc::new(trajectory(7))).await.unwrap();
        let got = store.get(TrajectoryId(7)).await.unwrap().unwrap();
        assert_same(&got, &trajectory(7));
        assert!(archive.audit().await.problems.is_empty());
    }
}

#[tokio::test]
async fn images_of_a_crash_are_swept_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    store.put(Arc::new(trajectory(1))).await.unwrap();
    store.close().await.unwrap();
    let before = blob_files(dir.path());
    let orphan = dir.path().join("blobs/ab");
    std::fs::create_dir_all(&orphan).unwrap();
    std::fs::write(orphan.join("c".repeat(62)), b"without a row").unwrap();
    assert_eq!(blob_files(dir.path()).len(), before.len() + 1);
    let store = open(dir.path()).await;
    assert_eq!(blob_files(dir.path()), before);
    let got = store.get(TrajectoryId(1)).await.unwrap().unwrap();
    assert_same(&got, &trajectory(1));
}

#[tokio::test]
async fn a_full_disk_holds_writers_back_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = SqliteConfig {
        max_megabytes: Some(1),
        full_patience_seconds: 1,
        ..SqliteConfig::default()
    };
    let store = SqliteStore::open_with(dir.path(), config).await.unwrap();
    let mut stored = 0;
    let full = loop {
        let mut large = trajectory(stored);
        large.steps[0].decision.text = "x".repeat(100_000);
        match store.put(Arc::new(large)).await {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 100, "it never fills");
    };
    assert_eq!(full.kind(), ErrorKind::Exhausted, "{full}");
    let said = full.to_string();
    assert!(
        said.contains("full") && said.contains("max_megabytes"),
        "{said}"
    );
    assert!(stored >= 3);
    // What is read is as it was, and what is small still fits once there is room.
    store.close().await.unwrap();
    let store = open(dir.path()).await;
    store.put(Arc::new(trajectory(1000))).await.unwrap();
    let archive = SqliteArchive::open(dir.path()).await.unwrap();
    let audit = archive.audit().await;
    assert_eq!(audit.problems, Vec::<String>::new());
    assert_eq!(u128::from(audit.checked), stored + 1);
}

#[tokio::test]
async fn writers_go_on_when_there_is_room_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = SqliteConfig {
        max_megabytes: Some(1),
        full_patience_seconds: 60,
        retention: Retention::Newest { trajectories: 0 },
        ..SqliteConfig::default()
    };
    let store = Arc::new(SqliteStore::open_with(dir.path(), config).await.unwrap());
    let large = |id| {
        let mut large = trajectory(id);
        large.steps[0].decision.text = "x".repeat(200_000);
        Arc::new(large)
    };
    for id in 0..3 {
        store.put(large(id)).await.unwrap();
    }
    // Another connection takes the rest of the room, then gives it back.
    let mut hog = raw(dir.path()).await;
    sqlx::raw_sql("CREATE TABLE hog (b BLOB); INSERT INTO hog VALUES (zeroblob(400000))")
        .execute(&mut hog)
        .await
        .unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.put(large(3)).await }
    });
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(!waiting.is_finished(), "it waits for room");
    sqlx::raw_sql("DROP TABLE hog")
        .execute(&mut hog)
        .await
        .unwrap();
    hog.close().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(store.get(TrajectoryId(3)).await.unwrap().is_some());
}

async fn raw(dir: &Path) -> SqliteConnection {
    let url = format!("sqlite://{}", dir.join("trajectories.sqlite").display());
    SqliteConnection::connect(&url).await.unwrap()
}

#[tokio::test]
async fn onlookers_see_what_a_live_store_writes() {
    let dir = tempfile::tempdir().unwrap();
    let error = SqliteArchive::open(dir.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let store = open_with(dir.path(), 0).await;
    store.put(Arc::new(trajectory(1))).await.unwrap();
    let archive = SqliteArchive::open(dir.path()).await.unwrap();
    store.put(Arc::new(trajectory(2))).await.unwrap();
    let got = archive.get(TrajectoryId(2)).await.unwrap().unwrap();
    assert_same(&got, &trajectory(2));
    assert_eq!(archive.overview().await.unwrap().trajectories, 2);
    store.close().await.unwrap();
    let audit = archive.audit().await;
    assert_eq!((audit.checked, audit.problems.len()), (2, 0));
}

/// The first schema, with one trajectory of one step, as its program left it.
async fn old_store(dir: &Path) {
    let migrations = tempfile::tempdir().unwrap();
    let first = "0001_trajectories.sql";
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    std::fs::copy(ours.join(first), migrations.path().join(first)).unwrap();
    // A store of today writes the rows; what the old schema lacks is left out in copying them.
    let today = tempfile::tempdir().unwrap();
    let store = open_with(today.path(), 64).await;
    store.put(Arc::new(trajectory(5))).await.unwrap();
    store.close().await.unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(dir.join("trajectories.sqlite"))
        .create_if_missing(true);
    let mut old = sqlx::ConnectOptions::connect(&options).await.unwrap();
    let migrator = sqlx::migrate::Migrator::new(migrations.path())
        .await
        .unwrap();
    migrator.run_direct(None, &mut old, false).await.unwrap();
    let attach = format!(
        "ATTACH '{}' AS today",
        today.path().join("trajectories.sqlite").display()
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(attach))
        .execute(&mut old)
        .await
        .unwrap();
    sqlx::raw_sql(
        "INSERT INTO tasks SELECT * FROM today.tasks;
         INSERT INTO trajectories SELECT seq, id, group_id, task, task_id, seed, instruction,
             outcome, reward, stop, error, steps, oldest_version FROM today.trajectories;
         INSERT INTO images SELECT * FROM today.images;
         INSERT INTO steps SELECT * FROM today.steps;
         INSERT INTO commits VALUES (0, 1, NULL);
         INSERT INTO used VALUES (1, 0, 1);",
    )
    .execute(&mut old)
    .await
    .unwrap();
    old.close().await.unwrap();
}

#[tokio::test]
async fn a_store_of_the_first_schema_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    old_store(dir.path()).await;
    // Whoever only looks may do it too.
    let archive = SqliteArchive::open(dir.path()).await.unwrap();
    assert_eq!(archive.overview().await.unwrap().schema, 2);
    let store = open_with(dir.path(), 64).await;
    let got = store.get(TrajectoryId(5)).await.unwrap().unwrap();
    assert_same(&got, &trajectory(5));
    let found = store.list(&TrajectoryQuery::default()).await.unwrap();
    assert_eq!(found[0].used_in, Some(BatchId(0)));
    assert_eq!(found[0].newest_version, Some(PolicyVersion(3)));
    store.put(Arc::new(trajectory(6))).await.unwrap();
    assert_eq!(pointer(&store).await, None);
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).await.close().await.unwrap();
    let mut raw = raw(dir.path()).await;
    sqlx::raw_sql("UPDATE _sqlx_migrations SET version = 99 WHERE version = 2")
        .execute(&mut raw)
        .await
        .unwrap();
    raw.close().await.unwrap();
    for error in [
        SqliteStore::open(dir.path()).await.map(drop).unwrap_err(),
        SqliteArchive::open(dir.path()).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("newer version"), "{error}");
    }
}
