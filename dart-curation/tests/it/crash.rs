//! What was acknowledged survives kill -9.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::Arc,
};

use dart_core::TrajectoryId;
use dart_curation::{SqliteConfig, SqliteStore, TrajectoryStore};

use crate::store::{assert_same, trajectory};

/// Set in the process that is killed: the folder that it writes to.
const FOLDER: &str = "DART_TEST_CRASH_FOLDER";
/// Set in the process that is killed: its first id.
const FIRST: &str = "DART_TEST_CRASH_FIRST";

/// The other half of the test below: writes until it is killed.
#[tokio::test]
async fn writes_until_it_is_killed() {
    let (Ok(folder), Ok(first)) = (env::var(FOLDER), env::var(FIRST)) else {
        println!("not applicable: only of use as the child of another test");
        return;
    };
    let config = SqliteConfig {
        inline_kilobytes: 0,
        ..SqliteConfig::default()
    };
    let store = Arc::new(SqliteStore::open_with(folder, config).await.unwrap());
    let first: u128 = first.parse().unwrap();
    // An end, in case nobody kills it.
    for id in first..first + 100_000 {
        store.put(Arc::new(trajectory(id))).await.unwrap();
        println!("stored {id}");
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..5u128 {
        let first = round * 1_000_000;
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "crash::writes_until_it_is_killed", "--nocapture"])
            .env(FOLDER, folder.path())
            .env(FIRST, first.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The test runner prints its own words before the first of ours.
        let mut ids = lines.filter_map(|line| {
            let line = line.ok()?;
            line.rsplit_once("stored ")?.1.parse::<u128>().ok()
        });
        let enough = 3 + 17 * round as usize;
        // The pipe stays open until the end, so that the child does not stop by itself.
        let seen: Vec<_> = ids.by_ref().take(enough).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen.len(), enough, "the child ended early");
        acknowledged.extend(seen);
    }
    // Nothing in the way of the next owner, and all is there, pixels included.
    let store = SqliteStore::open(folder.path()).await.unwrap();
    for id in acknowledged {
        let got = store.get(TrajectoryId(id)).await.unwrap();
        let got = got.unwrap_or_else(|| panic!("trajectory {id} was acknowledged and is gone"));
        assert_same(&got, &trajectory(id));
    }
}
