//! Both stores keep what they are given.

use std::{path::Path, sync::Arc, time::Instant};

use dart_core::{
    Action, BatchId, ErrorKind, GroupId, Outcome, ParsedAction, PolicyVersion, StopReason,
    Trajectory, TrajectoryId,
};
use dart_curation::{
    MemoryStore, SqliteConfig, SqliteStore, Synchronous, TrajectoryQuery, TrajectoryStore,
};

use crate::{
    common::{scored, step, task},
    durable::{HOUR, pointer, seal, used},
};

pub(crate) fn trajectory(id: u128) -> Trajectory {
    Trajectory {
        id: TrajectoryId(id),
        group: GroupId(7),
        task: task("t"),
        seed: u64::MAX - 1,
        instruction: "click \"OK\"\n\u{1f600}".into(),
        steps: (0..3)
            .map(|index| {
                step(
                    index,
                    (id as u8).wrapping_add(index as u8 / 2),
                    PolicyVersion(3),
                )
            })
            .collect(),
        outcome: scored(1.0 / 3.0),
        stop: StopReason::StepLimit,
        error: None,
    }
}

/// Everything about a trajectory, pixels included.
fn contents(trajectory: &Trajectory) -> String {
    let pixels: Vec<_> = trajectory
        .steps
        .iter()
        .map(|step| step.observation.frame.rgb())
        .collect();
    format!("{trajectory:?} {pixels:?}")
}

pub(crate) fn assert_same(got: &Trajectory, put: &Trajectory) {
    assert_eq!(contents(got), contents(put));
}

/// Without a cache, every image a file.
pub(crate) async fn open(dir: &Path) -> SqliteStore {
    open_with(dir, 0).await
}

pub(crate) async fn open_with(dir: &Path, inline_kilobytes: usize) -> SqliteStore {
    let config = SqliteConfig {
        cache_megabytes: 0,
        inline_kilobytes,
        synchronous: Synchronous::Full,
        ..SqliteConfig::default()
    };
    SqliteStore::open_with(dir, config).await.unwrap()
}

#[tokio::test]
async fn what_comes_back_is_what_was_put() {
    let mut other = trajectory(2);
    other.outcome = Outcome::Aborted;
    other.error = Some("cut".into());
    other.steps[0].decision.action = ParsedAction::Invalid("no".into());
    other.steps[1].decision.action = ParsedAction::Valid(Action::Type {
        text: "a\0b".into(),
    });
    let mut empty = trajectory(3);
    empty.steps.clear();
    empty.outcome = Outcome::PolicyFault;
    let all = [trajectory(1), other, empty, trajectory(u128::MAX)];
    // The second time images that are files become rows, and the other way round.
    for (inline, reopened_inline) in [(0, 64), (64, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let store = open_with(dir.path(), inline).await;
        for put in &all {
            store.put(Arc::new(put.clone())).await.unwrap();
            assert_same(&store.get(put.id).await.unwrap().unwrap(), put);
        }
        store.close().await.unwrap();
        drop(store);
        let store = open_with(dir.path(), reopened_inline).await;
        for put in &all {
            assert_same(&store.get(put.id).await.unwrap().unwrap(), put);
            store.put(Arc::new(put.clone())).await.unwrap();
            assert_same(&store.get(put.id).await.unwrap().unwrap(), put);
        }
        assert!(store.get(TrajectoryId(99)).await.unwrap().is_none());
    }
}

async fn keeps_the_contract(store: &dyn TrajectoryStore) {
    for id in 1..=3 {
        store.put(Arc::new(trajectory(id))).await.unwrap();
    }
    // The same id again replaces the body.
    let mut again = trajectory(2);
    again.steps.truncate(1);
    again.outcome = scored(1.0);
    store.put(Arc::new(again.clone())).await.unwrap();
    assert_same(&store.get(again.id).await.unwrap().unwrap(), &again);

    let ids = [TrajectoryId(1), TrajectoryId(2)];
    let claim = store.claim(&ids, "me", HOUR).await.unwrap();
    let first = seal(1, vec![used(0, 1, claim)]);
    store.seal(&first).await.unwrap();
    store.seal(&first).await.unwrap();
    let twice = [TrajectoryId(3), TrajectoryId(1)];
    let error = store.claim(&twice, "me", HOUR).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale);
    let error = store.put(Arc::new(trajectory(2))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse, "what is used stays");

    let used_in = async |id| {
        let all = store.list(&TrajectoryQuery::default()).await.unwrap();
        assert_eq!(all.len(), 3);
        let found = all
            .into_iter()
            .find(|summary| summary.id == TrajectoryId(id));
        found.unwrap().used_in
    };
    assert_eq!(used_in(1).await, Some(BatchId(0)));
    assert_eq!(used_in(3).await, None, "all or nothing");
    assert_eq!(pointer(store).await, Some(1));
    assert_eq!(store.rewind(PolicyVersion(0)).await.unwrap(), None);
    assert_eq!(used_in(1).await, None);
    assert_eq!(pointer(store).await, None);
    let claim = store.claim(&twice, "me", HOUR).await.unwrap();
    store.seal(&seal(1, vec![used(0, 1, claim)])).await.unwrap();
    assert_eq!(store.rewind(PolicyVersion(1)).await.unwrap(), Some(3));
    assert_eq!(used_in(3).await, Some(BatchId(0)));

    let successes = TrajectoryQuery {
        success: Some(true),
        task: Some(task("t").id.clone()),
        ..TrajectoryQuery::default()
    };
    let found = store.list(&successes).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].id, found[0].steps), (again.id, 1));
    assert_eq!(found[0].oldest_version, Some(PolicyVersion(3)));
    assert_eq!(found[0].seed, again.seed);
    store.close().await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    keeps_the_contract(&MemoryStore::new()).await;
}

#[tokio::test]
async fn sqlite_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    keeps_the_contract(&open(dir.path()).await).await;
    let cached = tempfile::tempdir().unwrap();
    keeps_the_contract(&SqliteStore::open(cached.path()).await.unwrap()).await;
}

#[tokio::test]
async fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).await;
    let error = SqliteStore::open(dir.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let pid = std::process::id().to_string();
    assert!(error.to_string().contains(&pid), "{error}");
    first.close().await.unwrap();
    open(dir.path()).await;
    let late = first.put(Arc::new(trajectory(1))).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Storage);
}

#[tokio::test]
async fn a_damaged_image_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    store.put(Arc::new(trajectory(1))).await.unwrap();
    let blobs = blob_files(dir.path());
    assert_eq!(blobs.len(), 2, "three steps show two images");
    for blob in &blobs {
        let mut bytes = std::fs::read(blob).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        std::fs::write(blob, bytes).unwrap();
    }
    let error = store.get(TrajectoryId(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage);
    assert!(
        blobs
            .iter()
            .any(|blob| error.to_string().contains(blob.to_str().unwrap())),
        "{error}"
    );
    std::fs::remove_file(&blobs[0]).unwrap();
    std::fs::remove_file(&blobs[1]).unwrap();
    let error = store.get(TrajectoryId(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage);
}

#[tokio::test]
async fn images_without_rows_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    // A crash between images and row leaves the images of a trajectory that nobody knows.
    let store = open(dir.path()).await;
    store.put(Arc::new(trajectory(1))).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    for rows in [
        "made",
        "trajectories.sqlite",
        "trajectories.sqlite-wal",
        "trajectories.sqlite-shm",
    ] {
        let _ = std::fs::remove_file(dir.path().join(rows));
    }
    let before = blob_files(dir.path());
    let store = open(dir.path()).await;
    assert!(store.get(TrajectoryId(1)).await.unwrap().is_none());
    store.put(Arc::new(trajectory(1))).await.unwrap();
    assert_eq!(
        blob_files(dir.path()),
        before,
        "the same images are the same files"
    );
    assert_same(
        &store.get(TrajectoryId(1)).await.unwrap().unwrap(),
        &trajectory(1),
    );
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let mut large = trajectory(1);
    large.steps[0].decision.text = "x".repeat(5 << 20);
    let (refused, kept) = tokio::join!(
        store.put(Arc::new(large)),
        store.put(Arc::new(trajectory(2)))
    );
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Exhausted);
    kept.unwrap();
    assert!(store.get(TrajectoryId(1)).await.unwrap().is_none());
    assert!(store.get(TrajectoryId(2)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_dropped_put_leaves_all_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for id in 0..20 {
        let put = store.put(Arc::new(trajectory(id)));
        tokio::select! {
            biased;
            _ = put => {}
            () = async {
                for _ in 0..id {
                    tokio::task::yield_now().await;
                }
            } => {}
        }
    }
    // Whatever was still under way is written before this one.
    store.put(Arc::new(trajectory(100))).await.unwrap();
    for id in 0..20 {
        if let Some(got) = store.get(TrajectoryId(id)).await.unwrap() {
            assert_same(&got, &trajectory(id));
        }
    }
}

/// Not a gate: prints what it measures. 3 steps of 128x96, four distinct frames in five.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throughput_of_concurrent_puts() {
    for synchronous in [Synchronous::Normal, Synchronous::Full] {
        let dir = tempfile::tempdir().unwrap();
        let config = SqliteConfig {
            synchronous,
            ..SqliteConfig::default()
        };
        let store = SqliteStore::open_with(dir.path(), config).await.unwrap();
        let store = Arc::new(store);
        let count = 400u32;
        let made: Vec<_> = (0..count).map(|n| Arc::new(screen_trajectory(n))).collect();
        let start = Instant::now();
        let put = |made| {
            let store = store.clone();
            tokio::spawn(async move { store.put(made).await })
        };
        for put in made.into_iter().map(put).collect::<Vec<_>>() {
            put.await.unwrap().unwrap();
        }
        let rate = f64::from(count) / start.elapsed().as_secs_f64();
        println!("{synchronous:?}: {rate:.0} trajectories/s");
        let query = TrajectoryQuery {
            limit: u32::MAX,
            ..TrajectoryQuery::default()
        };
        assert_eq!(store.list(&query).await.unwrap().len(), count as usize);
    }
}

fn screen_trajectory(n: u32) -> Trajectory {
    use dart_core::{Frame, Observation, Size};
    let size = Size::new(128, 96);
    let mut made = trajectory(u128::from(n));
    for (index, step) in made.steps.iter_mut().enumerate() {
        let mut rgb = vec![230u8; size.area() * 3];
        let mark = (n as usize * 3 + index) * 4 / 5;
        for (row, line) in rgb.chunks_mut(size.width as usize * 3).enumerate() {
            if row % 12 < 7 {
                for (x, byte) in line.iter_mut().enumerate() {
                    *byte = ((x / 9 + mark) % 7 * 31) as u8;
                }
            }
        }
        rgb[..8].copy_from_slice(&(mark as u64).to_le_bytes());
        step.observation = Observation::of(Frame::new(size, rgb).unwrap());
    }
    made
}

pub(crate) fn blob_files(dir: &Path) -> Vec<std::path::PathBuf> {
    let shelves = std::fs::read_dir(dir.join("blobs")).unwrap();
    let mut files: Vec<_> = shelves
        .flat_map(|shelf| std::fs::read_dir(shelf.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
}
