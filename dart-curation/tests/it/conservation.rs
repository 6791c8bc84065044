//! Whatever is done to a store, in whatever order: each trajectory is in exactly one state, none is
//! used twice, fences grow, and nothing disappears.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use dart_core::{BatchId, PolicyVersion, TrajectoryId};
use dart_curation::{
    Claim, MAX_FAILURES, MemoryStore, Quarantined, SqliteStore, TrajectoryQuery, TrajectoryStore,
    Use,
};
use proptest::prelude::*;

use crate::{durable::seal, store::trajectory};

/// Something that may happen.
#[derive(Clone, Debug)]
enum Event {
    Put(u8),
    Claim(Vec<u8>, bool),
    GiveBack(usize),
    Fail(u8),
    Seal(usize),
    Rewind(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let id = || 0u8..8;
    prop_oneof![
        3 => id().prop_map(Event::Put),
        3 => (prop::collection::btree_set(id(), 1..4), any::<bool>())
            .prop_map(|(ids, owner)| Event::Claim(ids.into_iter().collect(), owner)),
        1 => any::<usize>().prop_map(Event::GiveBack),
        1 => id().prop_map(Event::Fail),
        2 => any::<usize>().prop_map(Event::Seal),
        1 => (0u64..6).prop_map(Event::Rewind),
    ]
}

/// What is known of the store from its answers alone.
#[derive(Default)]
struct Books {
    stored: BTreeSet<TrajectoryId>,
    used: BTreeMap<TrajectoryId, u64>,
    failures: BTreeMap<TrajectoryId, u32>,
    claims: Vec<Claim>,
    /// Fences of claims that were used.
    sealed: BTreeSet<u64>,
    last_fence: u64,
    version: u64,
}

impl Books {
    async fn happen(&mut self, store: &dyn TrajectoryStore, event: &Event) {
        let id = |id: u8| TrajectoryId(u128::from(id));
        match event {
            Event::Put(n) => {
                let put = store.put(Arc::new(trajectory(u128::from(*n)))).await;
                if put.is_ok() && self.stored.insert(id(*n)) {
                    self.failures.remove(&id(*n));
                } else if put.is_ok() && !self.used.contains_key(&id(*n)) {
                    // A new answer is a new chance, unless somebody works on the old one.
                    let list = store.list(&TrajectoryQuery::default()).await.unwrap();
                    let found = list.iter().find(|found| found.id == id(*n)).unwrap();
                    if found.quarantined.is_none() && self.quarantined(id(*n)) {
                        self.failures.remove(&id(*n));
                    }
                }
            }
            Event::Claim(ids, owner) => {
                let ids: Vec<_> = ids.iter().copied().map(id).collect();
                let owner = if *owner { "a" } else { "b" };
                let claimed = store.claim(&ids, owner, Duration::from_hours(1)).await;
                let Ok(claim) = claimed else { return };
                for id in &ids {
                    assert!(self.stored.contains(id), "{id} was never put");
                    assert!(!self.used.contains_key(id), "{id} is used");
                    assert!(!self.quarantined(*id), "{id} is in quarantine");
                }
                assert!(claim.fence.0 > self.last_fence, "fences grow");
                self.last_fence = claim.fence.0;
                self.claims.push(claim);
            }
            Event::GiveBack(at) => {
                if let Some(claim) = self.pick(*at) {
                    store.give_back(&claim).await.unwrap();
                }
            }
            Event::Fail(n) => {
                let failed = store.fail(id(*n), "why").await.unwrap();
                if self.stored.contains(&id(*n)) {
                    let quarantined = failed == Quarantined::Yes;
                    if quarantined {
                        self.failures.insert(id(*n), MAX_FAILURES);
                    }
                }
            }
            Event::Seal(at) => self.seal(store, *at).await,
            Event::Rewind(version) => {
                store.rewind(PolicyVersion(*version)).await.unwrap();
                self.used.retain(|_, at| *at <= *version);
                self.version = self.version.min(*version);
                self.claims.clear();
                self.sealed.clear();
            }
        }
    }

    async fn seal(&mut self, store: &dyn TrajectoryStore, at: usize) {
        let Some(claim) = self.pick(at) else { return };
        let version = self.version + 1;
        let used = Use {
            batch: BatchId(1_000 * claim.fence.0),
            version: PolicyVersion(version),
            claim: claim.clone(),
        };
        if store.seal(&seal(version, vec![used])).await.is_ok() {
            self.version = version;
            if !self.sealed.insert(claim.fence.0) {
                // A repetition: the checkpoint is new, the uses are as they were.
                return;
            }
            for id in claim.trajectories {
                let before = self.used.insert(id, version);
                assert_eq!(before, None, "{id} is used twice in one lineage");
            }
        }
    }

    fn pick(&self, at: usize) -> Option<Claim> {
        let index = at.checked_rem(self.claims.len())?;
        Some(self.claims[index].clone())
    }

    fn quarantined(&self, id: TrajectoryId) -> bool {
        self.failures.get(&id) == Some(&MAX_FAILURES)
    }

    async fn check(&self, store: &dyn TrajectoryStore) {
        let list = store.list(&TrajectoryQuery::default()).await.unwrap();
        let ids: BTreeSet<_> = list.iter().map(|found| found.id).collect();
        assert_eq!(ids, self.stored, "nothing appears or disappears");
        assert_eq!(ids.len(), list.len(), "each is there once");
        for found in &list {
            let used = self.used.contains_key(&found.id);
            assert_eq!(found.used_in.is_some(), used, "{}", found.id);
            assert!(store.get(found.id).await.unwrap().is_some());
        }
        let newest = store.pointer().await.unwrap();
        let newest = newest.map_or(0, |checkpoint| checkpoint.version.0);
        assert!(self.used.values().all(|version| *version <= newest));
    }
}

async fn runs(store: &dyn TrajectoryStore, events: &[Event]) {
    let mut books = Books::default();
    for event in events {
        books.happen(store, event).await;
    }
    books.check(store).await;
}

fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn memory_conserves(events in prop::collection::vec(event(), 1..60)) {
        on_runtime(runs(&MemoryStore::new(), &events));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn sqlite_conserves(events in prop::collection::vec(event(), 1..60)) {
        on_runtime(async {
            let dir = tempfile::tempdir().unwrap();
            let store = SqliteStore::open(dir.path()).await.unwrap();
            runs(&store, &events).await;
            store.close().await.unwrap();
        });
    }
}
