//! Whatever happens to rollouts, the books balance.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex},
};

use dart_core::{
    Batch, Commit, Curator, GroupId, Outcome, PolicyVersion, RolloutRequest, SampleOrigin,
    TrajectoryId,
};
use dart_curation::{CurationEvent, CurationEventSink, DataManager, MemoryStore};
use proptest::prelude::*;

use crate::common::{answer, manager_on, plain, ready, scored};

#[derive(Clone, Debug)]
enum Event {
    /// Ask for a rollout.
    Request,
    /// One in flight comes back with this fate, by a policy so many versions behind.
    Answer { which: usize, fate: u8, lag: u64 },
    /// Train on a batch.
    Train,
    /// Crash and go back to the last snapshot.
    Crash,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Request),
        6 => (any::<prop::sample::Index>(), 0u8..6, 0u64..3)
            .prop_map(|(which, fate, lag)| Event::Answer { which: which.index(64), fate, lag }),
        2 => Just(Event::Train),
        1 => Just(Event::Crash),
    ]
}

const MAX_STALENESS: u64 = 1;

/// A run, and what an observer outside knows about it.
struct World {
    manager: DataManager,
    store: Arc<MemoryStore>,
    in_flight: VecDeque<RolloutRequest>,
    asked: BTreeSet<TrajectoryId>,
    trained: BTreeSet<TrajectoryId>,
    version: u64,
    saved: (Vec<u8>, BTreeSet<TrajectoryId>, u64),
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let manager = manager_on(plain(), store.clone());
        let snapshot = manager.snapshot().await.unwrap();
        Self {
            manager,
            store,
            in_flight: VecDeque::new(),
            asked: BTreeSet::new(),
            trained: BTreeSet::new(),
            version: 0,
            saved: (snapshot, BTreeSet::new(), 0),
        }
    }

    async fn apply(&mut self, event: Event) {
        match event {
            Event::Request => {
                self.ask().await;
            }
            Event::Answer { which, fate, lag } => {
                if self.in_flight.is_empty() {
                    return;
                }
                let which = which % self.in_flight.len();
                let request = self.in_flight.remove(which).unwrap();
                let outcome = match fate {
                    0 => Outcome::Aborted,
                    1 | 2 => scored(1.0),
                    3 => Outcome::PolicyFault,
                    _ => scored(0.0),
                };
                let version = PolicyVersion(self.version.saturating_sub(lag));
                let steps = 1 + u32::from(fate) % 3;
                self.manager
                    .ingest(answer(&request, outcome, steps, version))
                    .await
                    .unwrap();
            }
            Event::Train => {
                if let Some(batch) = ready(self.manager.next_batch()).await {
                    self.train(&batch.unwrap().unwrap()).await;
                }
            }
            Event::Crash => self.crash().await,
        }
        self.check();
    }

    /// Whether there was something to be handed out.
    async fn ask(&mut self) -> bool {
        let Some(request) = ready(self.manager.next_request()).await else {
            return false;
        };
        let request = request.unwrap().unwrap();
        let new = self.asked.insert(request.trajectory);
        assert!(new, "an id is asked for once");
        self.in_flight.push_back(request);
        true
    }

    async fn train(&mut self, batch: &Batch) {
        assert!(!batch.samples.is_empty());
        let mut in_batch = BTreeSet::new();
        for sample in &batch.samples {
            assert!(
                self.version - sample.version.0.min(self.version) <= MAX_STALENESS,
                "too old: {} at {}",
                sample.version,
                self.version
            );
            assert_eq!(sample.origin, SampleOrigin::Rollout);
            in_batch.insert(sample.trajectory);
        }
        assert!(
            in_batch.is_disjoint(&self.trained),
            "a trajectory is trained on once in a lineage"
        );
        self.trained.append(&mut in_batch);
        self.version += 1;
        let commit = Commit {
            batch: batch.id,
            version: PolicyVersion(self.version),
        };
        self.manager.commit(commit).await.unwrap();
        let snapshot = self.manager.snapshot().await.unwrap();
        self.saved = (snapshot, self.trained.clone(), self.version);
    }

    async fn crash(&mut self) {
        let (snapshot, trained, version) = self.saved.clone();
        self.manager = manager_on(plain(), self.store.clone());
        self.manager.restore(&snapshot).await.unwrap();
        self.trained = trained;
        self.version = version;
        self.in_flight.clear();
        // What was in flight is asked for again, under the same ids.
        self.asked.clear();
    }

    fn check(&self) {
        let status = self.manager.status();
        assert_eq!(
            status.in_flight,
            self.in_flight.len(),
            "slots are conserved"
        );
        let bound = (MAX_STALENESS as usize + 1) * 2;
        let open: BTreeSet<GroupId> = self.in_flight.iter().map(|request| request.group).collect();
        assert!(status.groups_ready + open.len() <= bound, "{status:?}");
    }

    /// Answers everything until a batch comes: nothing may be stuck.
    async fn drain(&mut self) {
        for round in 0..200 {
            self.apply(Event::Request).await;
            let fate = if round % 2 == 0 { 1 } else { 4 };
            self.apply(Event::Answer {
                which: 0,
                fate,
                lag: 0,
            })
            .await;
            if let Some(batch) = ready(self.manager.next_batch()).await {
                self.train(&batch.unwrap().unwrap()).await;
                return;
            }
        }
        panic!("no batch after 200 rollouts: {:?}", self.manager.status());
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Slots are conserved, staleness and backlog stay within their bounds, nothing is trained on
    /// twice in a lineage, and a batch always comes in the end; crashes included.
    #[test]
    fn the_books_balance(events in prop::collection::vec(event(), 1..150)) {
        block_on(async {
            let mut world = World::new().await;
            for event in events {
                world.apply(event).await;
            }
            world.drain().await;
        });
    }

    /// Aborted rollouts in between change neither the advantages nor which groups are trained on.
    #[test]
    fn aborted_rollouts_change_no_advantage(
        rewards in prop::collection::vec(0u8..=2, 40),
        aborts in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..3), 40),
    ) {
        let (clean, disturbed) = block_on(async {
            (outcome_of(&rewards, &[]).await, outcome_of(&rewards, &aborts).await)
        });
        prop_assert_eq!(clean, disturbed);
    }
}

/// Advantages by group of the first batch, when the n-th slot of a group in turn gets the n-th
/// reward, after as many aborted attempts as are given for it.
async fn outcome_of(rewards: &[u8], aborts: &[Vec<bool>]) -> BTreeMap<u64, Vec<String>> {
    let mut config = plain();
    config.max_staleness = 20;
    let manager = manager_on(config, Arc::new(MemoryStore::new()));
    let mut slots: BTreeMap<GroupId, usize> = BTreeMap::new();
    for (n, reward) in rewards.iter().enumerate() {
        for _ in aborts.get(n).into_iter().flatten() {
            let request = manager.next_request().await.unwrap().unwrap();
            let aborted = answer(&request, Outcome::Aborted, 2, PolicyVersion(0));
            manager.ingest(aborted).await.unwrap();
        }
        let request = manager.next_request().await.unwrap().unwrap();
        *slots.entry(request.group).or_default() += 1;
        let reward = scored(f64::from(*reward) / 2.0);
        let steps = 1 + n as u32 % 3;
        let scored = answer(&request, reward, steps, PolicyVersion(0));
        manager.ingest(scored).await.unwrap();
    }
    assert!(slots.values().all(|count| *count <= 2));
    let mut advantages: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    if let Some(batch) = ready(manager.next_batch()).await {
        for sample in batch.unwrap().unwrap().samples {
            let advantage = format!("{:?}", sample.advantages);
            advantages
                .entry(sample.group.0)
                .or_default()
                .push(advantage);
        }
    }
    advantages
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Every group that was opened is trained on, dropped with a reason, or ready, exactly once.
    #[test]
    fn no_group_is_lost(events in prop::collection::vec(event(), 1..150)) {
        block_on(async {
            let (story, sink) = story();
            let mut world = World::new().await;
            world.manager = world.manager.with_events(sink);
            for event in events {
                if !matches!(event, Event::Crash) {
                    world.apply(event).await;
                }
            }
            // Slots that wait come before new groups, so when nothing more is handed out and all
            // is answered, no group is open.
            for round in 0..500 {
                if world.in_flight.is_empty() && !world.ask().await {
                    break;
                }
                assert!(round < 499, "more and more is asked for");
                let fate = if round % 2 == 0 { 1 } else { 4 };
                let answer = Event::Answer { which: 0, fate, lag: 0 };
                world.apply(answer).await;
            }
            let story = story.lock().unwrap();
            let mut ended = story.ended.clone();
            ended.sort_unstable();
            ended.dedup();
            assert_eq!(ended.len(), story.ended.len(), "a group ends once");
            let ready = world.manager.status().groups_ready;
            assert_eq!(story.opened.len(), ended.len() + ready);
        });
    }
}

#[derive(Default)]
struct Story {
    opened: BTreeSet<GroupId>,
    ended: Vec<GroupId>,
}

fn story() -> (Arc<Mutex<Story>>, CurationEventSink) {
    let story = Arc::new(Mutex::new(Story::default()));
    let told = story.clone();
    let tell = move |event: &CurationEvent| {
        let mut story = told.lock().unwrap();
        match event {
            CurationEvent::Request { group, .. } => {
                story.opened.insert(*group);
            }
            CurationEvent::GroupDropped { group, .. } => story.ended.push(*group),
            CurationEvent::Batch { groups, .. } => story.ended.extend(groups),
            _ => {}
        }
    };
    (story, Arc::new(tell))
}
