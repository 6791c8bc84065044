//! Throughput of the SQLite store with full durability: every call returns when its data is on the
//! disk. Calls that wait at the same time share a transaction, as those of many workers do.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dart_core::{BatchId, PolicyVersion, TrajectoryId};
use dart_curation::{
    CheckpointRef, Seal, SqliteConfig, SqliteStore, Synchronous, TrajectoryStore, Use,
};
use tokio::runtime::Runtime;

#[path = "../tests/it/common.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod common;

/// Trajectories of one round.
const ROUND: u64 = 512;

fn trajectory(id: u128) -> Arc<dart_core::Trajectory> {
    let request = dart_core::RolloutRequest {
        trajectory: TrajectoryId(id),
        group: dart_core::GroupId(0),
        task: common::task("bench"),
        seed: 0,
        step_limit: 3,
        temperature: 1.0,
        // Frames of their own for every trajectory.
        sampling_seed: id as u64 % 251,
    };
    Arc::new(common::answer(
        &request,
        common::scored(1.0),
        3,
        PolicyVersion(0),
    ))
}

struct Bench {
    runtime: Runtime,
    store: Arc<SqliteStore>,
    next: u128,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let config = SqliteConfig {
            synchronous: Synchronous::Full,
            cache_megabytes: 1,
            ..SqliteConfig::default()
        };
        let store = runtime
            .block_on(SqliteStore::open_with(dir.path(), config))
            .unwrap();
        Self {
            runtime,
            store: Arc::new(store),
            next: 0,
            _dir: dir,
        }
    }

    /// Stores a round by as many concurrent callers; gives the ids.
    fn put(&mut self) -> (Vec<TrajectoryId>, Duration) {
        let ids = self.next..self.next + u128::from(ROUND);
        self.next = ids.end;
        let bodies: Vec<_> = ids.clone().map(trajectory).collect();
        let start = Instant::now();
        let store = &self.store;
        self.runtime.block_on(async {
            let puts = bodies.into_iter().map(|body| {
                let store = store.clone();
                tokio::spawn(async move { store.put(body).await.unwrap() })
            });
            for put in puts.collect::<Vec<_>>() {
                put.await.unwrap();
            }
        });
        (ids.map(TrajectoryId).collect(), start.elapsed())
    }

    /// Claims a round in batches of 64 and acknowledges each with a checkpoint.
    fn claim_and_acknowledge(&self, ids: &[TrajectoryId]) -> Duration {
        let start = Instant::now();
        self.runtime.block_on(async {
            for ids in ids.chunks(64) {
                let lease = Duration::from_mins(1);
                let claim = self.store.claim(ids, "bench", lease).await.unwrap();
                let batch = (ids[0].0 / 64) as u64;
                let version = PolicyVersion(batch + 1);
                let used = Use {
                    batch: BatchId(batch),
                    version,
                    claim,
                };
                let seal = Seal {
                    checkpoint: CheckpointRef {
                        version,
                        name: "bench".into(),
                    },
                    oldest_kept: version,
                    uses: vec![used],
                    watermark: 0,
                    needed: Vec::new(),
                };
                self.store.seal(&seal).await.unwrap();
            }
        });
        start.elapsed()
    }
}

fn store(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("full-durability");
    group
        .throughput(Throughput::Elements(ROUND))
        .sample_size(10);
    group.bench_function("insert", |bencher| {
        let mut bench = Bench::new();
        bencher.iter_custom(|rounds| (0..rounds).map(|_| bench.put().1).sum());
    });
    group.bench_function("claim-and-acknowledge", |bencher| {
        let mut bench = Bench::new();
        bencher.iter_custom(|rounds| {
            let mut total = Duration::ZERO;
            for _ in 0..rounds {
                let (ids, _) = bench.put();
                total += bench.claim_and_acknowledge(&ids);
            }
            total
        });
    });
    group.finish();
}

criterion_group!(benches, store);
criterion_main!(benches);
