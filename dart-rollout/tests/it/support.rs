//! Fakes that misbehave, and a curator that counts.

use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dart_core::{
    Action, Batch, Commit, Curator, CuratorStatus, Decision, Demonstrate, DeviceEnvironment,
    DeviceEnvironmentConfig, Environment, EnvironmentFactory, Error, ErrorKind, GroupId,
    LogProbKind, Outcome, ParsedAction, Policy, PolicyInput, PolicyVersion, Prompt, Result,
    RolloutRequest, Trajectory, TrajectoryId, WeightsHandle, WeightsSource,
};
use dart_testkit::{
    Faulty,
    fakes::{self, FakeDevice, FakeDeviceConfig, FakeDriver, FakeWeights},
    faulty::Mishap,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::Notify;

pub(crate) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A request for the fakes' task.
pub(crate) fn request(number: u64, step_limit: u32) -> RolloutRequest {
    RolloutRequest {
        trajectory: TrajectoryId(u128::from(number)),
        group: GroupId(number / 4),
        task: Arc::new(fakes::task(step_limit)),
        seed: number / 4,
        step_limit,
        temperature: 1.0,
        sampling_seed: number,
    }
}

/// Weights as the fakes read them.
pub(crate) fn weights(version: u64) -> WeightsHandle {
    let weights = FakeWeights {
        gain: version as f64,
        ..FakeWeights::blank(4, 3)
    };
    weights.handle(PolicyVersion(version)).unwrap()
}

/// A decision for `action`, without a model behind it.
pub(crate) fn decision(
    action: ParsedAction,
    input: &PolicyInput,
    version: PolicyVersion,
) -> Decision {
    Decision {
        action,
        text: String::new(),
        prompt: Prompt::default(),
        token_ids: vec![input.history.len() as u32, 1].into(),
        rollout_log_probs: vec![-0.5, 0.0].into(),
        entropies: None,
        log_prob_kind: LogProbKind::AfterTemperature,
        temperature: input.sampling.temperature,
        version,
        truncated: false,
    }
}

type Act = dyn Fn(&PolicyInput) -> Result<Decision> + Send + Sync;

/// A policy given by a function; it remembers its inputs.
pub(crate) struct FnPolicy {
    act: Box<Act>,
    pub(crate) asked: Mutex<Vec<PolicyInput>>,
}

impl FnPolicy {
    pub(crate) fn new(
        act: impl Fn(&PolicyInput) -> Result<Decision> + Send + Sync + 'static,
    ) -> Self {
        Self {
            act: Box::new(act),
            asked: Mutex::default(),
        }
    }

    /// Always the same output.
    pub(crate) fn always(action: ParsedAction) -> Self {
        Self::new(move |input| Ok(decision(action.clone(), input, PolicyVersion(0))))
    }

    pub(crate) fn taking(action: Action) -> Self {
        Self::always(ParsedAction::Valid(action))
    }
}

#[async_trait]
impl Policy for FnPolicy {
    async fn act(&self, input: PolicyInput) -> Result<Decision> {
        self.asked.lock().unwrap().push(input.clone());
        (self.act)(&input)
    }

    fn version(&self) -> PolicyVersion {
        PolicyVersion(0)
    }

    async fn load(&self, _weights: &WeightsHandle) -> Result<()> {
        Ok(())
    }
}

/// A policy whose calls never return.
pub(crate) struct HungPolicy;

#[async_trait]
impl Policy for HungPolicy {
    async fn act(&self, _input: PolicyInput) -> Result<Decision> {
        pending().await
    }

    fn version(&self) -> PolicyVersion {
        PolicyVersion(0)
    }

    async fn load(&self, _weights: &WeightsHandle) -> Result<()> {
        pending().await
    }
}

/// How a [`ServerPolicy`] loads a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Fine,
    Refuses,
    Hangs,
    Panics,
    Vanishes,
    /// Says that it loaded and did not.
    Lies,
}

/// A policy that takes time for everything and watches that calls and loads never overlap.
pub(crate) struct ServerPolicy {
    pub(crate) act_time: Duration,
    pub(crate) load_time: Duration,
    pub(crate) loads: BTreeMap<u64, Load>,
    pub(crate) state: Mutex<ServerState>,
}

#[derive(Debug, Default)]
pub(crate) struct ServerState {
    pub(crate) version: PolicyVersion,
    pub(crate) in_flight: usize,
    pub(crate) loading: bool,
    pub(crate) most_in_flight: usize,
    pub(crate) answered: Vec<PolicyVersion>,
    pub(crate) overlaps: usize,
    pub(crate) load_calls: Vec<u64>,
}

impl ServerPolicy {
    pub(crate) fn new(act_ms: u64, load_ms: u64) -> Self {
        Self {
            act_time: millis(act_ms),
            load_time: millis(load_ms),
            loads: BTreeMap::new(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn loading(mut self, version: u64, load: Load) -> Self {
        self.loads.insert(version, load);
        self
    }
}

/// Counts a call until it is dropped.
struct InFlight<'a>(&'a Mutex<ServerState>);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().in_flight -= 1;
    }
}

#[async_trait]
impl Policy for ServerPolicy {
    async fn act(&self, input: PolicyInput) -> Result<Decision> {
        let version = {
            let mut state = self.state.lock().unwrap();
            state.overlaps += usize::from(state.loading);
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
            state.version
        };
        let _counted = InFlight(&self.state);
        tokio::time::sleep(self.act_time).await;
        let mut state = self.state.lock().unwrap();
        state.overlaps += usize::from(state.version != version);
        state.answered.push(version);
        Ok(decision(ParsedAction::Valid(Action::Done), &input, version))
    }

    fn version(&self) -> PolicyVersion {
        self.state.lock().unwrap().version
    }

    async fn load(&self, weights: &WeightsHandle) -> Result<()> {
        let how = self.loads.get(&weights.version.0);
        let how = how.copied().unwrap_or(Load::Fine);
        {
            let mut state = self.state.lock().unwrap();
            state.overlaps += usize::from(state.in_flight > 0);
            state.loading = true;
            state.load_calls.push(weights.version.0);
        }
        tokio::time::sleep(self.load_time).await;
        let fails = |kind| Err(Error::new(kind, "fake", "load", "as planned"));
        let result = match how {
            Load::Fine | Load::Lies => Ok(()),
            Load::Refuses => fails(ErrorKind::Protocol),
            Load::Vanishes => fails(ErrorKind::Disconnected),
            Load::Hangs => pending().await,
            Load::Panics => panic!("as planned"),
        };
        let mut state = self.state.lock().unwrap();
        state.loading = false;
        if how == Load::Fine {
            state.version = weights.version;
        }
        result
    }
}

/// An input for policies that do not look at it.
pub(crate) fn blank_input() -> PolicyInput {
    let size = dart_core::Size::new(8, 6);
    let frame = dart_core::Frame::new(size, vec![0u8; size.area() * 3]).unwrap();
    PolicyInput {
        instruction: "do nothing".into(),
        history: Vec::new(),
        observation: dart_core::Observation::of(frame),
        sampling: dart_core::Sampling::GREEDY,
    }
}

/// Environments over faulty devices. The n-th environment gets the n-th plan (then none).
pub(crate) struct PlannedFactory {
    pub(crate) device: FakeDeviceConfig,
    pub(crate) plans: Vec<Vec<(usize, Mishap)>>,
    pub(crate) created: AtomicU64,
}

impl PlannedFactory {
    pub(crate) fn new(plans: Vec<Vec<(usize, Mishap)>>) -> Self {
        Self {
            device: FakeDeviceConfig {
                latency_ms: (5, 50),
                ..FakeDeviceConfig::default()
            },
            plans,
            created: AtomicU64::new(0),
        }
    }

    /// Environments of which about one episode in ten fails, in every way there is.
    pub(crate) fn unreliable(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut mishap = || match rng.random_range(0..5) {
            0 => Mishap::Cut,
            1 => Mishap::Hang,
            2 => Mishap::Panic,
            3 => Mishap::Slow(millis(rng.random_range(10..5_000))),
            _ => Mishap::Stall,
        };
        let mut calls = ChaCha8Rng::seed_from_u64(!seed);
        let mut plan = || {
            let mut call = 0;
            let mut next = || {
                call += calls.random_range(1..160);
                (call, mishap())
            };
            (0..4).map(|_| next()).collect()
        };
        Self::new((0..2_000).map(|_| plan()).collect())
    }
}

#[async_trait]
impl EnvironmentFactory for PlannedFactory {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(millis(20 + number % 7)).await;
        let device = FakeDeviceConfig {
            seed: number,
            ..self.device
        };
        let (device, switch) = Faulty::new(FakeDevice::new(device), millis(2_000));
        for (call, mishap) in self.plans.get(number as usize).into_iter().flatten() {
            switch.at_call(*call, *mishap);
        }
        let driver = FakeDriver {
            target_px: 12,
            ends_by_itself: true,
        };
        let limits = DeviceEnvironmentConfig::default();
        Ok(Box::new(DeviceEnvironment::new(
            device, driver, true, limits,
        )))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "fake",
            "create",
            "no experts",
        ))
    }
}

/// Hands out a fixed number of requests and counts what comes back.
pub(crate) struct CountingCurator {
    open: Mutex<VecDeque<RolloutRequest>>,
    returned: Mutex<Vec<Trajectory>>,
    total: usize,
    changed: Notify,
    closed: std::sync::atomic::AtomicBool,
    failing_ingests: std::ops::Range<u64>,
    ingests: AtomicU64,
}

impl CountingCurator {
    pub(crate) fn new(requests: u64) -> Arc<Self> {
        Self::failing(requests, 0..0)
    }

    /// Some calls of `ingest` fail, counted from 1.
    pub(crate) fn failing(requests: u64, failing_ingests: std::ops::Range<u64>) -> Arc<Self> {
        let open: VecDeque<_> = (0..requests).map(|number| request(number, 6)).collect();
        Arc::new(Self {
            total: open.len(),
            open: Mutex::new(open),
            returned: Mutex::default(),
            changed: Notify::new(),
            closed: std::sync::atomic::AtomicBool::new(false),
            failing_ingests,
            ingests: AtomicU64::new(0),
        })
    }

    /// What came back, in order.
    pub(crate) fn returned(&self) -> Vec<Trajectory> {
        self.returned.lock().unwrap().clone()
    }

    /// Requests not handed out yet.
    pub(crate) fn left(&self) -> usize {
        self.open.lock().unwrap().len()
    }

    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        self.returned().iter().map(|t| t.outcome).collect()
    }

    /// Panics unless every request handed out came back exactly once.
    pub(crate) fn assert_each_once(&self) {
        let mut ids: Vec<_> = self.returned().iter().map(|t| t.id.0).collect();
        ids.sort_unstable();
        let handed_out = (self.total - self.left()) as u128;
        assert_eq!(ids, (0..handed_out).collect::<Vec<_>>());
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Curator for CountingCurator {
    async fn next_request(&self) -> Result<Option<RolloutRequest>> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.is_closed() {
                return Ok(None);
            }
            if let Some(request) = self.open.lock().unwrap().pop_front() {
                return Ok(Some(request));
            }
            changed.await;
        }
    }

    async fn ingest(&self, trajectory: Trajectory) -> Result<()> {
        tokio::time::sleep(millis(3)).await;
        let number = self.ingests.fetch_add(1, Ordering::Relaxed) + 1;
        if self.failing_ingests.contains(&number) {
            let message = "the disk is full";
            return Err(Error::new(ErrorKind::Storage, "fake", "ingest", message));
        }
        let done = {
            let mut returned = self.returned.lock().unwrap();
            returned.push(trajectory);
            returned.len() == self.total
        };
        if done {
            self.close();
        }
        Ok(())
    }

    async fn next_batch(&self) -> Result<Option<Batch>> {
        Ok(None)
    }

    async fn commit(&self, _commit: Commit) -> Result<()> {
        Ok(())
    }

    async fn snapshot(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    async fn restore(&self, _snapshot: &[u8]) -> Result<()> {
        Ok(())
    }

    fn status(&self) -> CuratorStatus {
        CuratorStatus::default()
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }
}

/// A handle whose bytes nobody reads.
pub(crate) fn handle(version: u64) -> WeightsHandle {
    WeightsHandle {
        version: PolicyVersion(version),
        digest: "".into(),
        source: WeightsSource::Memory(Arc::from([])),
    }
}
