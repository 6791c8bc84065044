//! A disk that is really full: a small file system in memory, mounted in a name space of its own.

use std::{env, path::Path, process::Command, sync::Arc, time::Duration};

use dart_core::ErrorKind;
use dart_curation::{SqliteArchive, SqliteConfig, SqliteStore, TrajectoryStore};
use dart_testkit::suite::gate;

use crate::store::{assert_same, trajectory};

/// Set in the process that sees the small file system: where it is.
const FOLDER: &str = "DART_TEST_FULL_DISK";
/// Set there: kilobytes up to which images are rows.
const INLINE: &str = "DART_TEST_FULL_DISK_INLINE";

/// The other half of the test below: fills the disk, makes room, goes on.
#[tokio::test]
async fn fills_the_disk() {
    let Ok(folder) = env::var(FOLDER) else {
        println!("not applicable: only of use as the child of another test");
        return;
    };
    let folder = Path::new(&folder);
    let ballast = folder.join("ballast");
    let spare = folder.join("spare");
    for file in [&ballast, &spare] {
        std::fs::write(file, vec![1; 1 << 20]).unwrap();
    }
    let dir = folder.join("store");
    let config = SqliteConfig {
        inline_kilobytes: env::var(INLINE).unwrap().parse().unwrap(),
        cache_megabytes: 0,
        full_patience_seconds: 20,
        ..SqliteConfig::default()
    };
    let store = Arc::new(SqliteStore::open_with(&dir, config).await.unwrap());
    let (stored, waiting) = fill(&store).await;
    std::fs::remove_file(&ballast).unwrap();
    waiting.await.unwrap().unwrap();
    store.close().await.unwrap();
    let archive = SqliteArchive::open(&dir).await.unwrap();
    let audit = archive.audit().await;
    assert_eq!((audit.checked, audit.problems), (stored + 1, Vec::new()));
    let first = archive.get(dart_core::TrajectoryId(0)).await.unwrap();
    assert_same(&first.unwrap(), &padded(0));
    // A new store needs a little room before it can run out of it.
    std::fs::remove_file(&spare).unwrap();
    impatient(&folder.join("impatient")).await;
}

fn padded(id: u128) -> dart_core::Trajectory {
    let mut padded = trajectory(id);
    padded.steps[0].decision.text = "x".repeat(50_000);
    padded
}

/// Stores until one has to wait.
async fn fill(store: &Arc<SqliteStore>) -> (u64, tokio::task::JoinHandle<dart_core::Result<()>>) {
    for id in 0..200 {
        let put = store.clone();
        let mut put = tokio::spawn(async move { put.put(Arc::new(padded(id))).await });
        match tokio::time::timeout(Duration::from_secs(2), &mut put).await {
            Ok(stored) => stored.unwrap().unwrap(),
            Err(_) => return (id as u64, put),
        }
    }
    panic!("the disk never fills");
}

async fn impatient(dir: &Path) {
    let config = SqliteConfig {
        full_patience_seconds: 1,
        ..SqliteConfig::default()
    };
    let store = SqliteStore::open_with(dir, config).await.unwrap();
    for id in 0..200 {
        if let Err(error) = store.put(Arc::new(padded(id))).await {
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
            assert!(error.to_string().contains(dir.to_str().unwrap()), "{error}");
            return;
        }
    }
    panic!("the disk never fills");
}

#[test]
fn a_disk_that_is_really_full_holds_writers_back() {
    for inline_kilobytes in ["0", "64"] {
        if let Some(why) = on_a_small_disk(inline_kilobytes) {
            println!("skipped: a full disk; {why} (DART_TEST_REQUIRE=tmpfs insists)");
        }
    }
}

/// Why it cannot be tried, if so.
fn on_a_small_disk(inline_kilobytes: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let me = env::current_exe().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=5m none '{path}' || exit 77
         exec '{}' --exact full_disk::fills_the_disk --nocapture",
        me.display()
    );
    let child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .env(FOLDER, folder.path())
        .env(INLINE, inline_kilobytes)
        .output();
    let available = match &child {
        Err(error) => Err(format!("unshare cannot be started: {error}")),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let refused = output.status.code() == Some(77) || said.contains("unshare:");
            let why = format!("no file system can be mounted here: {}", said.trim());
            if refused { Err(why) } else { Ok(()) }
        }
    };
    if let Some(why) = gate("tmpfs", available) {
        return Some(why);
    }
    let output = child.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{out}");
    None
}
