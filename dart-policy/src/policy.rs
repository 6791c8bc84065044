//! [`VlmPolicy`]: the model as a [`Policy`].
//!
//! Spawned, it computes on a thread of its own and takes all waiting requests as one batch, so a
//! busy policy batches by itself and an idle one answers at once. Inline, it computes on the
//! caller's task: with a simulated clock nothing then depends on how threads are scheduled.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dart_core::{
    Decision, Policy, PolicyInput, PolicyVersion, Result, WeightsHandle, WeightsSource,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::{decoder::Decoder, error::PolicyError, model::VlmModel};

/// Stack of the worker's thread. Decoding needs little; a dropped candle graph recurses.
const STACK_BYTES: usize = 16 << 20;
/// Largest file of weights that is read.
const MAX_WEIGHT_BYTES: u64 = 4 << 30;
/// The file that holds the weights in a directory of weights.
pub const WEIGHTS_FILE: &str = "model.safetensors";

/// How a policy serves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// Most requests computed together. Default 64: more do not go faster on a CPU.
    pub max_batch: usize,
    /// Microseconds to wait for more requests after the first. Default 0: while one batch is
    /// computed the next one gathers anyway.
    pub max_wait_micros: u64,
    /// Requests that may queue before callers wait. Default 1024.
    pub queue: usize,
    /// Bytes of kept prompts. Default 64 MiB: some 400 prompts of the default model. A group's
    /// rollouts start from the same observation, so they share its prompt.
    pub max_cache_bytes: usize,
    /// Milliseconds after which a request is given up. Default 60,000.
    pub deadline_millis: u64,
    /// For experiments: logits are rounded to multiples of this before a token is drawn, and the
    /// rounded distribution is what is recorded, as by a rollout engine of low precision. The learner
    /// has the exact one, so its importance weights have something to correct. Greedy decisions stay
    /// exact. Default 0: not at all.
    pub logit_step: f32,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            max_batch: 64,
            max_wait_micros: 0,
            queue: 1024,
            max_cache_bytes: 64 << 20,
            deadline_millis: 60_000,
            logit_step: 0.0,
        }
    }
}

/// The embedded policy.
#[derive(Debug)]
pub struct VlmPolicy {
    version: Arc<AtomicU64>,
    deadline: Duration,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Worker(mpsc::Sender<Call>),
    Inline(Box<Mutex<Server>>),
}

/// What the worker is asked for.
#[derive(Debug)]
enum Call {
    Act(Box<PolicyInput>, oneshot::Sender<Result<Decision>>),
    Load(Box<WeightsHandle>, oneshot::Sender<Result<()>>),
}

impl VlmPolicy {
    /// Serves `model` as version 0 on a thread of its own, which ends when the policy is dropped.
    ///
    /// # Errors
    /// [`Internal`](dart_core::ErrorKind::Internal) if the weights cannot be read,
    /// [`Disconnected`](dart_core::ErrorKind::Disconnected) if no thread can be started.
    pub fn spawn(model: &VlmModel, config: &PolicyConfig) -> Result<Self> {
        let version = Arc::new(AtomicU64::new(0));
        let mut server = Server::new(model, config, &version)?;
        let (sender, mut calls) = mpsc::channel(config.queue.max(1));
        let (max_batch, wait) = (
            config.max_batch.max(1),
            Duration::from_micros(config.max_wait_micros),
        );
        std::thread::Builder::new()
            .name("dart-policy".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                while let Some(batch) = gather(&mut calls, max_batch, wait) {
                    server.serve(batch);
                }
            })
            .map_err(|_| PolicyError::Stopped)?;
        Ok(Self {
            version,
            deadline: Duration::from_millis(config.deadline_millis),
            mode: Mode::Worker(sender),
        })
    }

    /// Serves `model` as version 0 on the callers' tasks, one call at a time.
    ///
    /// # Errors
    /// [`Internal`](dart_core::ErrorKind::Internal) if the weights cannot be read.
    pub fn inline(model: &VlmModel, config: &PolicyConfig) -> Result<Self> {
        let version = Arc::new(AtomicU64::new(0));
        let server = Server::new(model, config, &version)?;
        Ok(Self {
            version,
            deadline: Duration::from_millis(config.deadline_millis),
            mode: Mode::Inline(Box::new(Mutex::new(server))),
        })
    }

    async fn call<T>(
        &self,
        sender: &mpsc::Sender<Call>,
        call: Call,
        answer: oneshot::Receiver<Result<T>>,
    ) -> Result<T> {
        let exchange = async {
            let sent = sender.send(call).await;
            sent.map_err(|_| PolicyError::Stopped)?;
            answer.await.map_err(|_| PolicyError::Stopped)?
        };
        let late = |_| PolicyError::Late(self.deadline);
        tokio::time::timeout(self.deadline, exchange)
            .await
            .map_err(late)?
    }
}

#[async_trait]
impl Policy for VlmPolicy {
    async fn act(&self, input: PolicyInput) -> Result<Decision> {
        match &self.mode {
            Mode::Worker(sender) => {
                let (reply, answer) = oneshot::channel();
                let call = Call::Act(Box::new(input), reply);
                self.call(sender, call, answer).await
            }
            Mode::Inline(server) => {
                let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
                let mut decisions = server.decoder.decide(&[&input]);
                decisions
                    .pop()
                    .unwrap_or_else(|| Err(PolicyError::Stopped.into()))
            }
        }
    }

    fn version(&self) -> PolicyVersion {
        PolicyVersion(self.version.load(Ordering::Acquire))
    }

    async fn load(&self, weights: &WeightsHandle) -> Result<()> {
        match &self.mode {
            Mode::Worker(sender) => {
                let (reply, answer) = oneshot::channel();
                let call = Call::Load(Box::new(weights.clone()), reply);
                self.call(sender, call, answer).await
            }
            Mode::Inline(server) => {
                let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
                server.load(weights)
            }
        }
    }
}

/// Waits for a call and takes what else is there; `None` once the policy is dropped.
fn gather(calls: &mut mpsc::Receiver<Call>, max_batch: usize, wait: Duration) -> Option<Vec<Call>> {
    let mut batch = vec![calls.blocking_recv()?];
    if !wait.is_zero() {
        std::thread::sleep(wait);
    }
    while batch.len() < max_batch {
        match calls.try_recv() {
            Ok(call) => batch.push(call),
            Err(_) => break,
        }
    }
    Some(batch)
}

/// The decoder and what weights must fit to replace its own.
#[derive(Debug)]
struct Server {
    decoder: Decoder,
    model: VlmModel,
    version: Arc<AtomicU64>,
}

impl Server {
    fn new(model: &VlmModel, config: &PolicyConfig, version: &Arc<AtomicU64>) -> Result<Self> {
        if !(config.logit_step.is_finite() && config.logit_step >= 0.0) {
            return Err(PolicyError::Config("logit_step").into());
        }
        let mut decoder = Decoder::new(model, PolicyVersion(0), config.max_cache_bytes)?;
        decoder.round_logits(config.logit_step);
        Ok(Self {
            decoder,
            model: model.clone(),
            version: Arc::clone(version),
        })
    }

    /// Answers calls in their order: requests before a load get the old weights, those after it
    /// the new ones. Requests that nobody waits for any more are skipped.
    fn serve(&mut self, calls: Vec<Call>) {
        let mut waiting = Vec::new();
        for call in calls {
            match call {
                Call::Act(input, reply) => waiting.push((input, reply)),
                Call::Load(handle, reply) => {
                    self.answer(std::mem::take(&mut waiting));
                    let _ = reply.send(self.load(&handle));
                }
            }
        }
        self.answer(waiting);
    }

    fn answer(&mut self, mut waiting: Vec<(Box<PolicyInput>, oneshot::Sender<Result<Decision>>)>) {
        waiting.retain(|(_, reply)| !reply.is_closed());
        if waiting.is_empty() {
            return;
        }
        let inputs: Vec<&PolicyInput> = waiting.iter().map(|(input, _)| &**input).collect();
        let decisions = self.decoder.decide(&inputs);
        for ((_, reply), decision) in waiting.into_iter().zip(decisions) {
            let _ = reply.send(decision);
        }
    }

    fn load(&mut self, handle: &WeightsHandle) -> Result<()> {
        let bytes = match &handle.source {
            WeightsSource::Memory(bytes) => Arc::clone(bytes),
            WeightsSource::Directory(directory) => read(directory)?.into(),
        };
        let digest = blake3::hash(&bytes).to_hex();
        if digest.as_str() != &*handle.digest {
            return Err(PolicyError::Weights("their digest is another one".to_owned()).into());
        }
        let values = self.model.checked_values(&bytes)?;
        self.decoder.replace(values, handle.version);
        self.version.store(handle.version.0, Ordering::Release);
        Ok(())
    }
}

fn read(directory: &Path) -> Result<Vec<u8>, PolicyError> {
    let path = directory.join(WEIGHTS_FILE);
    let fault =
        |error: std::io::Error| PolicyError::Weights(format!("{}: {error}", path.display()));
    let size = std::fs::metadata(&path).map_err(fault)?.len();
    if size > MAX_WEIGHT_BYTES {
        return Err(PolicyError::Weights(format!("{size} bytes are too many")));
    }
    std::fs::read(&path).map_err(fault)
}
