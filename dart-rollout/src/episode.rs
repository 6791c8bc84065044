//! [`run_episode`]: the episode loop.
//!
//! Source: arXiv 2509.23866 §3 (multi-turn rollouts) and the outcome rules of invariant I3. What a
//! policy does wrong is scored; what the infrastructure does wrong is not a reward of any value.

use std::{future::Future, sync::Arc, time::Duration};

use dart_core::{
    Action, Decision, Environment, Error, ErrorKind, Observation, Outcome, ParsedAction, PastStep,
    Policy, PolicyInput, Result, RolloutRequest, Sampling, Step, StepStatus, StopReason,
    Trajectory,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    config::RolloutConfig,
    deadline::{self, Cut},
    error::RolloutError,
    seeds,
    watchdog::Waiter,
};

/// Deadlines of one episode and the way to end it early.
#[derive(Clone, Debug)]
pub struct EpisodeLimits {
    /// Longest decision.
    pub decision_timeout: Duration,
    /// Longest reset, step or judgement.
    pub call_timeout: Duration,
    /// Time after which no further step begins. It is looked at between steps only, so it never
    /// cuts a call whose effect would then be unknown; calls have deadlines of their own.
    pub episode_timeout: Duration,
    /// Ends the episode at once; it is aborted then.
    pub cancel: CancellationToken,
    /// Whoever runs the episode, for the watchdog.
    pub waiter: Waiter,
}

impl Default for EpisodeLimits {
    /// The limits of the default [`RolloutConfig`].
    fn default() -> Self {
        Self::new(&RolloutConfig::default())
    }
}

impl EpisodeLimits {
    /// The limits that `config` sets.
    pub fn new(config: &RolloutConfig) -> Self {
        Self {
            decision_timeout: Duration::from_millis(config.decision_timeout_ms),
            call_timeout: Duration::from_millis(config.call_timeout_ms),
            episode_timeout: Duration::from_millis(config.episode_timeout_ms),
            cancel: CancellationToken::new(),
            waiter: Waiter::default(),
        }
    }

    /// Waits for `call`, at most `limit`, visible to the watchdog as `what`.
    pub(crate) async fn call<T>(
        &self,
        what: &'static str,
        limit: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let _waiting = self.waiter.wait(what);
        match deadline::within(limit, &self.cancel, call).await {
            Ok(result) => result,
            Err(Cut::Cancelled) => Err(Error::new(
                ErrorKind::Cancelled,
                crate::error::ORIGIN,
                what,
                "the run was told to stop",
            )),
            Err(Cut::Overdue) => Err(RolloutError::SlowCall {
                millis: limit.as_millis(),
            }
            .at(what)),
        }
    }
}

/// Whose failure aborted an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Culprit {
    Environment,
    Policy,
}

/// Why an episode was aborted.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) culprit: Culprit,
    pub(crate) error: Error,
}

impl Fault {
    fn environment(error: Error) -> Self {
        Self {
            culprit: Culprit::Environment,
            error,
        }
    }

    fn policy(error: Error) -> Self {
        Self {
            culprit: Culprit::Policy,
            error,
        }
    }

    fn stop(&self) -> StopReason {
        match self.error.kind() {
            ErrorKind::Cancelled => StopReason::Cancelled,
            _ => StopReason::EnvironmentError,
        }
    }
}

/// An episode and what its runner has to know besides.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) trajectory: Trajectory,
    pub(crate) fault: Option<Fault>,
}

/// Runs one episode: reset, decide and act until an end or a limit, score.
///
/// Never fails: whatever happens becomes an [`Outcome`].
///
/// - An unparsable decision or an action that the environment does not offer is
///   [`Outcome::PolicyFault`]; that step is recorded, since it is the one to learn from.
/// - An impossible action (outside the screen) has no effect, counts as a step, and the policy is
///   told by `last_action_error`.
/// - At the request's step limit or the time limit the episode is truncated and scored like any other.
/// - An error or a missed deadline of environment or policy, a malformed decision and cancellation
///   give [`Outcome::Aborted`] with the error's text. The closed set of stop reasons has
///   [`StopReason::EnvironmentError`] for all of them but cancellation.
///
/// Nothing is retried: a double click is not idempotent.
///
/// # Cancel safety
/// If the future is dropped the trajectory is lost and the environment needs a reset.
pub async fn run_episode(
    env: &mut dyn Environment,
    policy: &dyn Policy,
    request: &RolloutRequest,
    limits: &EpisodeLimits,
) -> Trajectory {
    play(env, policy, request, limits).await.trajectory
}

/// [`run_episode`] for those who have to look after the environment.
pub(crate) async fn play(
    env: &mut dyn Environment,
    policy: &dyn Policy,
    request: &RolloutRequest,
    limits: &EpisodeLimits,
) -> Played {
    let mut episode = Episode {
        env,
        policy,
        request,
        limits,
        history: Vec::new(),
        trajectory: blank(request),
    };
    let end = episode.run().await;
    let mut trajectory = episode.trajectory;
    let fault = match end {
        Ok((outcome, stop)) => {
            (trajectory.outcome, trajectory.stop) = (outcome, stop);
            None
        }
        Err(fault) => {
            trajectory.stop = fault.stop();
            trajectory.error = Some(fault.error.to_string());
            Some(fault)
        }
    };
    Played { trajectory, fault }
}

/// The aborted trajectory of a request that nothing has been done for.
pub(crate) fn blank(request: &RolloutRequest) -> Trajectory {
    Trajectory {
        id: request.trajectory,
        group: request.group,
        task: Arc::clone(&request.task),
        seed: request.seed,
        instruction: Arc::from(""),
        steps: Vec::new(),
        outcome: Outcome::Aborted,
        stop: StopReason::Cancelled,
        error: None,
    }
}

/// Milliseconds since `start`.
pub(crate) fn millis_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

enum Next {
    Observation(Observation),
    Ended(StopReason),
    PolicyFault(StopReason),
}

type End = (Outcome, StopReason);

struct Episode<'a> {
    env: &'a mut dyn Environment,
    policy: &'a dyn Policy,
    request: &'a RolloutRequest,
    limits: &'a EpisodeLimits,
    history: Vec<PastStep>,
    trajectory: Trajectory,
}

impl Episode<'_> {
    async fn run(&mut self) -> Result<End, Fault> {
        let start = Instant::now();
        let mut observation = self.begin().await?;
        for index in 0..self.request.step_limit {
            if index > 0 && start.elapsed() >= self.limits.episode_timeout {
                return self.score(StopReason::TimeLimit).await;
            }
            match self.step(index, observation).await? {
                Next::Observation(next) => observation = next,
                Next::Ended(stop) => return self.score(stop).await,
                Next::PolicyFault(stop) => return Ok((Outcome::PolicyFault, stop)),
            }
        }
        self.score(StopReason::StepLimit).await
    }

    async fn begin(&mut self) -> Result<Observation, Fault> {
        if self.request.step_limit == 0 {
            let message = "a rollout needs at least one step";
            let error = Error::new(
                ErrorKind::Misuse,
                crate::error::ORIGIN,
                "run episode",
                message,
            );
            return Err(Fault::policy(error.with("step_limit", 0)));
        }
        let reset = self.env.reset(&self.request.task, self.request.seed);
        let limit = self.limits.call_timeout;
        let reset = self.limits.call("environment.reset", limit, reset).await;
        let reset = reset.map_err(Fault::environment)?;
        self.trajectory.instruction = reset.instruction;
        Ok(reset.observation)
    }

    async fn step(&mut self, index: u32, observation: Observation) -> Result<Next, Fault> {
        let asked = Instant::now();
        let decision = self.decide(index, &observation).await?;
        let decide_ms = millis_since(asked);
        let acting = Instant::now();
        let next = match &decision.action {
            ParsedAction::Valid(action) => {
                let action = action.clone();
                self.perform(&action, &observation).await?
            }
            ParsedAction::Invalid(_) if decision.truncated => {
                Next::PolicyFault(StopReason::TokenLimit)
            }
            ParsedAction::Invalid(_) => Next::PolicyFault(StopReason::ParseError),
        };
        self.history.push(PastStep {
            frame: observation.frame.clone(),
            response: Arc::clone(&decision.token_ids),
        });
        self.trajectory.steps.push(Step {
            observation,
            decision,
            decide_ms,
            act_ms: millis_since(acting),
        });
        Ok(next)
    }

    async fn decide(&mut self, index: u32, observation: &Observation) -> Result<Decision, Fault> {
        let input = PolicyInput {
            instruction: Arc::clone(&self.trajectory.instruction),
            history: self.history.clone(),
            observation: observation.clone(),
            sampling: Sampling {
                temperature: self.request.temperature,
                seed: seeds::derive(self.request.sampling_seed, u64::from(index)),
            },
        };
        let limit = self.limits.decision_timeout;
        let asked = self.policy.act(input);
        let decision = self.limits.call("policy.act", limit, asked).await;
        let decision = decision.map_err(Fault::policy)?;
        decision.validate().map_err(Fault::policy)?;
        Ok(decision)
    }

    async fn perform(&mut self, action: &Action, before: &Observation) -> Result<Next, Fault> {
        let limit = self.limits.call_timeout;
        let step = self.env.step(action);
        match self.limits.call("environment.step", limit, step).await {
            Ok(outcome) => Ok(match outcome.status {
                StepStatus::Running => Next::Observation(outcome.observation),
                StepStatus::Terminated => Next::Ended(StopReason::Completed),
                StepStatus::Truncated(reason) => Next::Ended(reason),
            }),
            Err(error) => match error.kind() {
                ErrorKind::InvalidAction => Ok(Next::Observation(Observation {
                    last_action_error: Some(error.to_string()),
                    ..before.clone()
                })),
                ErrorKind::Unsupported => Ok(Next::PolicyFault(StopReason::ParseError)),
                _ => Err(Fault::environment(error)),
            },
        }
    }

    async fn score(&mut self, stop: StopReason) -> Result<End, Fault> {
        let limit = self.limits.call_timeout;
        let judged = self.env.score();
        let judged = self.limits.call("environment.score", limit, judged).await;
        let reward = judged.map_err(Fault::environment)?;
        Ok((Outcome::Scored { reward }, stop))
    }
}
