//! Memory does not grow with what is stored.

use std::{fs, sync::Arc};

use dart_curation::{SqliteConfig, SqliteStore, TrajectoryStore};

use crate::store::trajectory;

/// Megabytes that the process occupies.
fn resident_megabytes() -> f64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0);
    pages * 4096.0 / 1e6
}

/// A million steps with `DART_TEST_SOAK=1`, a hundredth of that otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_flat_however_much_is_stored() {
    let steps: u128 = match std::env::var("DART_TEST_SOAK") {
        Ok(_) => 1_000_000,
        Err(_) => 10_000,
    };
    let dir = tempfile::tempdir().unwrap();
    let config = SqliteConfig {
        cache_megabytes: 4,
        ..SqliteConfig::default()
    };
    let store = Arc::new(SqliteStore::open_with(dir.path(), config).await.unwrap());
    let total = steps / 3;
    let part = total / 10;
    let start = std::time::Instant::now();
    let mut after_warm_up = 0.0;
    for tenth in 0..10 {
        let mut next = tenth * part;
        while next < (tenth + 1) * part {
            let end = (next + 256).min((tenth + 1) * part);
            let puts = (next..end).map(|id| {
                let store = store.clone();
                tokio::spawn(async move { store.put(Arc::new(trajectory(id))).await })
            });
            for put in puts.collect::<Vec<_>>() {
                put.await.unwrap().unwrap();
            }
            next = end;
        }
        let now = resident_megabytes();
        println!("{} steps: {now:.0} MB", (tenth + 1) * part * 3);
        if tenth == 2 {
            after_warm_up = now;
        }
    }
    let rate = (10 * part) as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} trajectories/s");
    let grown = resident_megabytes() - after_warm_up;
    assert!(grown < 32.0, "grew by {grown:.0} MB");
}
