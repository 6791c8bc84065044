//! [`evaluate`]: success over tasks and seeds, by family.
//!
//! The overall number is the mean of the families' success rates, so that a family with many tasks
//! does not outweigh the others. An aborted episode is tried again in a fresh environment; if it
//! never ends it is reported as aborted and is in no rate.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use dart_core::{
    Environment, EnvironmentFactory, Error, ErrorKind, GroupId, Outcome, Policy, Result,
    RolloutRequest, Sampling, StopReason, Task, TaskId, Trajectory, TrajectoryId,
};
use futures::FutureExt;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::{
    config::RolloutConfig,
    episode::{self, Culprit, EpisodeLimits, blank},
    error::{RolloutError, lock, panic_message},
    events::{EventSink, Events, RolloutEvent},
    seeds,
};

/// What to evaluate and how.
#[derive(Clone)]
pub struct EvaluationPlan {
    /// The tasks.
    pub tasks: Vec<Arc<Task>>,
    /// Episodes of each task, each with another seed.
    pub seeds_per_task: u64,
    /// First seed of each task; the others follow.
    pub first_seed: u64,
    /// Environments that run at once. Changes the time it takes, not the result.
    pub environments: usize,
    /// How to draw. The seed is mixed with the episode's number and the step's.
    pub sampling: Sampling,
    /// Times an episode is tried until it is not aborted. Default 3.
    pub attempts: u32,
    /// Deadlines of the episodes, and the way to stop the evaluation.
    pub limits: EpisodeLimits,
    /// Longest making or closing of an environment. Default as in [`RolloutConfig`].
    pub create_timeout: Duration,
    /// Told about each episode, for progress displays.
    pub sink: Option<Arc<dyn EventSink>>,
}

impl std::fmt::Debug for EvaluationPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvaluationPlan")
            .field("tasks", &self.tasks.len())
            .field("seeds_per_task", &self.seeds_per_task)
            .field("first_seed", &self.first_seed)
            .field("environments", &self.environments)
            .field("sampling", &self.sampling)
            .finish_non_exhaustive()
    }
}

impl EvaluationPlan {
    /// Greedy episodes of each of `tasks` in one environment, seeds from 0.
    pub fn new(tasks: Vec<Arc<Task>>, seeds_per_task: u64) -> Self {
        Self {
            tasks,
            seeds_per_task,
            first_seed: 0,
            environments: 1,
            sampling: Sampling::GREEDY,
            attempts: 3,
            limits: EpisodeLimits::default(),
            create_timeout: Duration::from_millis(RolloutConfig::default().create_timeout_ms),
            sink: None,
        }
    }

    /// All episodes, task by task.
    fn requests(&self) -> VecDeque<(usize, RolloutRequest)> {
        let all = self.tasks.iter().flat_map(|task| {
            (0..self.seeds_per_task).map(move |n| (task, self.first_seed.wrapping_add(n)))
        });
        let requests = all.enumerate().map(|(index, (task, seed))| {
            let request = RolloutRequest {
                trajectory: TrajectoryId(index as u128),
                group: GroupId(index as u64),
                task: Arc::clone(task),
                seed,
                step_limit: task.horizon,
                temperature: self.sampling.temperature,
                sampling_seed: seeds::derive(self.sampling.seed, index as u64),
            };
            (index, request)
        });
        requests.collect()
    }
}

/// One evaluated episode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EpisodeResult {
    /// Which task.
    pub task: TaskId,
    /// Its family.
    pub family: String,
    /// Which instance of the task.
    pub seed: u64,
    /// What it was worth.
    pub outcome: Outcome,
    /// Why it ended.
    pub stop: StopReason,
    /// Steps taken.
    pub steps: usize,
    /// Times it was tried.
    pub attempts: u32,
    /// What went wrong, if it was aborted each time.
    pub error: Option<String>,
}

/// Success of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FamilyScore {
    /// Episodes that were judged.
    pub episodes: u64,
    /// Those of them in which the task was done.
    pub successes: u64,
    /// Mean reward of the judged episodes.
    pub mean_reward: f64,
    /// Episodes that could not be judged; not in the numbers above.
    pub aborted: u64,
}

impl FamilyScore {
    /// Successes over judged episodes; `None` if none was judged.
    pub fn rate(&self) -> Option<f64> {
        (self.episodes > 0).then(|| self.successes as f64 / self.episodes as f64)
    }

    fn add(&mut self, outcome: Outcome) {
        let Some(reward) = outcome.reward() else {
            self.aborted += 1;
            return;
        };
        self.mean_reward *= self.episodes as f64;
        self.episodes += 1;
        self.mean_reward = (self.mean_reward + reward.value()) / self.episodes as f64;
        self.successes += u64::from(outcome.is_success());
    }
}

/// What an evaluation found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evaluation {
    /// Success by family.
    pub families: BTreeMap<String, FamilyScore>,
    /// Mean over the families of their success rates; families without a judged episode are left
    /// out, and 0 if there is none with one.
    pub overall: f64,
    /// Judged episodes.
    pub judged: u64,
    /// Episodes that could not be judged.
    pub aborted: u64,
    /// Every episode, task by task and seed by seed, in the plan's order.
    pub episodes: Vec<EpisodeResult>,
}

impl Evaluation {
    fn of(episodes: Vec<EpisodeResult>) -> Self {
        let mut families: BTreeMap<String, FamilyScore> = BTreeMap::new();
        for episode in &episodes {
            let family = families.entry(episode.family.clone()).or_default();
            family.add(episode.outcome);
        }
        let rates: Vec<f64> = families.values().filter_map(FamilyScore::rate).collect();
        Self {
            overall: rates.iter().sum::<f64>() / rates.len().max(1) as f64,
            judged: families.values().map(|family| family.episodes).sum(),
            aborted: families.values().map(|family| family.aborted).sum(),
            families,
            episodes,
        }
    }
}

/// What the workers share.
struct Shared {
    plan: EvaluationPlan,
    factory: Arc<dyn EnvironmentFactory>,
    policy: Arc<dyn Policy>,
    open: Mutex<VecDeque<(usize, RolloutRequest)>>,
    done: Mutex<BTreeMap<usize, EpisodeResult>>,
}

/// Evaluates `policy` on environments of `factory`.
///
/// The result does not depend on how many environments run at once, as long as environments and
/// policy are deterministic.
///
/// # Errors
/// [`Config`](ErrorKind::Config) for a plan without environments or attempts, or if the factory says
/// so; [`Cancelled`](ErrorKind::Cancelled) if the plan's token fired. A backend that is down is no
/// error: its episodes are aborted.
pub async fn evaluate(
    plan: EvaluationPlan,
    factory: Arc<dyn EnvironmentFactory>,
    policy: Arc<dyn Policy>,
) -> Result<Evaluation> {
    check(&plan)?;
    let open = plan.requests();
    let workers = plan.environments.min(open.len());
    let shared = Arc::new(Shared {
        plan,
        factory,
        policy,
        open: Mutex::new(open),
        done: Mutex::default(),
    });
    let mut running = JoinSet::new();
    for _ in 0..workers {
        running.spawn(work(Arc::clone(&shared)));
    }
    while let Some(joined) = running.join_next().await {
        joined.map_err(|lost| internal(&lost.to_string()))??;
    }
    if shared.plan.limits.cancel.is_cancelled() {
        return Err(Error::new(
            ErrorKind::Cancelled,
            crate::error::ORIGIN,
            "evaluate",
            "the evaluation was told to stop",
        ));
    }
    let done = std::mem::take(&mut *lock(&shared.done));
    Ok(Evaluation::of(done.into_values().collect()))
}

fn check(plan: &EvaluationPlan) -> Result<()> {
    let settings = [
        ("environments", plan.environments as u64),
        ("attempts", u64::from(plan.attempts)),
    ];
    crate::config::check_positive(&settings)
}

fn internal(message: &str) -> Error {
    let message = message.to_owned();
    Error::new(
        ErrorKind::Internal,
        crate::error::ORIGIN,
        "evaluate",
        message,
    )
}

/// One environment after another, one episode after another, until none is left.
async fn work(shared: Arc<Shared>) -> Result<()> {
    let mut env = None;
    while !shared.plan.limits.cancel.is_cancelled() {
        let Some((index, request)) = lock(&shared.open).pop_front() else {
            break;
        };
        let result = judge(&shared, &mut env, &request).await?;
        lock(&shared.done).insert(index, result);
    }
    close(&shared.plan, env.take()).await;
    Ok(())
}

/// One episode, tried until it is not aborted.
async fn judge(
    shared: &Shared,
    env: &mut Option<Box<dyn Environment>>,
    request: &RolloutRequest,
) -> Result<EpisodeResult> {
    let mut attempt = 1;
    loop {
        let trajectory = attempt_episode(shared, env, request).await?;
        Events(shared.plan.sink.clone()).emit(RolloutEvent::EvaluationEpisode {
            task: request.task.id.clone(),
            seed: request.seed,
            outcome: trajectory.outcome,
            attempt,
        });
        let aborted = trajectory.outcome == Outcome::Aborted;
        let last = attempt >= shared.plan.attempts || shared.plan.limits.cancel.is_cancelled();
        if !aborted || last {
            return Ok(EpisodeResult {
                task: request.task.id.clone(),
                family: request.task.family.clone(),
                seed: request.seed,
                outcome: trajectory.outcome,
                stop: trajectory.stop,
                steps: trajectory.steps.len(),
                attempts: attempt,
                error: trajectory.error,
            });
        }
        let pause = RolloutConfig::default().backoff(attempt, 0);
        crate::deadline::pause(pause, &shared.plan.limits.cancel).await;
        attempt += 1;
    }
}

/// One attempt. Only a wrong setting is an error; a panic costs the environment, not the evaluation.
async fn attempt_episode(
    shared: &Shared,
    env: &mut Option<Box<dyn Environment>>,
    request: &RolloutRequest,
) -> Result<Trajectory> {
    let limits = &shared.plan.limits;
    let mut ready = match env.take() {
        Some(ready) => ready,
        None => match create(shared).await {
            Ok(created) => created,
            Err(error) => {
                let hopeless = [ErrorKind::Config, ErrorKind::Unauthorized];
                if hopeless.contains(&error.kind()) {
                    return Err(error);
                }
                return Ok(aborted(request, error.to_string()));
            }
        },
    };
    let played = episode::play(ready.as_mut(), shared.policy.as_ref(), request, limits);
    match AssertUnwindSafe(played).catch_unwind().await {
        Ok(played) => {
            *env = Some(ready);
            if played
                .fault
                .is_some_and(|f| f.culprit == Culprit::Environment)
            {
                close(&shared.plan, env.take()).await;
            }
            Ok(played.trajectory)
        }
        Err(payload) => {
            let message = panic_message(&*payload);
            Ok(aborted(request, format!("panicked: {message}")))
        }
    }
}

fn aborted(request: &RolloutRequest, error: String) -> Trajectory {
    Trajectory {
        stop: StopReason::EnvironmentError,
        error: Some(error),
        ..blank(request)
    }
}

async fn create(shared: &Shared) -> Result<Box<dyn Environment>> {
    let limit = shared.plan.create_timeout;
    let created = AssertUnwindSafe(shared.factory.create()).catch_unwind();
    let created = async {
        created
            .await
            .unwrap_or_else(|payload| Err(internal(&panic_message(&*payload))))
    };
    let what = "environment factory";
    shared.plan.limits.call(what, limit, created).await
}

/// Closes within a deadline; dropping it does the rest.
async fn close(plan: &EvaluationPlan, env: Option<Box<dyn Environment>>) {
    let Some(mut env) = env else { return };
    let closing = AssertUnwindSafe(env.close()).catch_unwind();
    if !matches!(
        tokio::time::timeout(plan.create_timeout, closing).await,
        Ok(Ok(Ok(())))
    ) {
        tracing::warn!("{}", RolloutError::UncleanClose);
    }
}
