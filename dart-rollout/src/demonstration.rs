//! [`run_demonstration`]: an episode of the scripted expert, in the words of the policy.
//!
//! Demonstrations have the form of rollouts: the same prompts, the same tokens, the same history.
//! The environment performs what the encoded decision says, not what the expert meant, so what the
//! policy's grammar cannot say exactly is judged as the policy would be.
//!
//! An expert never leaves its path, and a policy that learns from it alone does not know what to do
//! beside it. [`DemonstrationPlan::perturb`] takes random clicks in between; the expert then shows
//! the way back (the idea of DART, Laskey et al., arXiv 1703.09327, with clicks as noise).

use std::sync::Arc;

use dart_core::{
    Action, ActionKind, Decision, Demonstrate, DemonstrationEncoder, EnvSpec, GroupId, Observation,
    Outcome, ParsedAction, PastStep, PolicyInput, Reset, Result, Sampling, ScreenPx, Step,
    StepStatus, StopReason, Task, Trajectory, TrajectoryId,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use crate::{
    episode::{EpisodeLimits, millis_since},
    error::RolloutError,
    seeds,
};

/// What to demonstrate and how.
#[derive(Clone, Debug)]
pub struct DemonstrationPlan {
    /// The task.
    pub task: Arc<Task>,
    /// Which instance of it.
    pub seed: u64,
    /// Probability of a random click (or tap) before each action of the expert, 0 to 1. Values
    /// outside are cut. Default 0.
    pub perturb: f64,
    /// Seeds the clicks, together with `seed`.
    pub perturb_seed: u64,
    /// Deadlines.
    pub limits: EpisodeLimits,
}

impl DemonstrationPlan {
    /// The expert alone, with the default limits.
    pub fn new(task: Arc<Task>, seed: u64) -> Self {
        Self {
            task,
            seed,
            perturb: 0.0,
            perturb_seed: 0,
            limits: EpisodeLimits::default(),
        }
    }
}

/// A demonstrated episode.
#[derive(Clone, Debug)]
pub struct Demonstration {
    /// All steps, random clicks included: later prompts show their frames, and an image is found by
    /// its step's index.
    pub trajectory: Trajectory,
    /// For each step whether the expert took it. Only these are to be learned.
    pub by_expert: Vec<bool>,
}

impl Demonstration {
    /// Whether step `index` is one to learn from.
    pub fn teaches(&self, index: usize) -> bool {
        self.by_expert.get(index).copied().unwrap_or(false)
    }
}

/// Lets the expert solve one task instance; every step is the expert's.
///
/// The trajectory's id is made from task and seed; its group is 0.
///
/// # Errors
/// Those of the environment and the encoder, and [`Unsupported`](dart_core::ErrorKind::Unsupported)
/// if the expert has no idea before the episode has ended. An expert that fails the task is no
/// error: see the trajectory's outcome.
pub async fn run_demonstration(
    env: &mut dyn Demonstrate,
    encoder: &dyn DemonstrationEncoder,
    task: Arc<Task>,
    seed: u64,
) -> Result<Trajectory> {
    let plan = DemonstrationPlan::new(task, seed);
    let shown = run_demonstration_with(env, encoder, &plan).await?;
    Ok(shown.trajectory)
}

/// [`run_demonstration`] with random clicks in between. If the expert has no idea after one, the
/// episode ends there and is scored as it stands.
///
/// # Errors
/// As [`run_demonstration`].
pub async fn run_demonstration_with(
    env: &mut dyn Demonstrate,
    encoder: &dyn DemonstrationEncoder,
    plan: &DemonstrationPlan,
) -> Result<Demonstration> {
    let mut show = Show::begin(env, encoder, plan).await?;
    let (outcome, stop) = show.run().await?;
    let mut shown = show.shown;
    (shown.trajectory.outcome, shown.trajectory.stop) = (outcome, stop);
    Ok(shown)
}

struct Show<'a> {
    env: &'a mut dyn Demonstrate,
    encoder: &'a dyn DemonstrationEncoder,
    plan: &'a DemonstrationPlan,
    rng: ChaCha8Rng,
    input: PolicyInput,
    shown: Demonstration,
}

impl<'a> Show<'a> {
    async fn begin(
        env: &'a mut dyn Demonstrate,
        encoder: &'a dyn DemonstrationEncoder,
        plan: &'a DemonstrationPlan,
    ) -> Result<Self> {
        let limit = plan.limits.call_timeout;
        let reset = env.reset(&plan.task, plan.seed);
        let Reset {
            observation,
            instruction,
        } = plan.limits.call("environment.reset", limit, reset).await?;
        Ok(Self {
            env,
            encoder,
            rng: ChaCha8Rng::seed_from_u64(seeds::derive(plan.perturb_seed, plan.seed)),
            shown: Demonstration {
                trajectory: empty(plan, &instruction),
                by_expert: Vec::new(),
            },
            input: PolicyInput {
                instruction,
                history: Vec::new(),
                observation,
                sampling: Sampling::GREEDY,
            },
            plan,
        })
    }

    async fn run(&mut self) -> Result<(Outcome, StopReason)> {
        for _ in 0..self.plan.task.horizon {
            if let Some(stop) = self.step().await? {
                return self.score(stop).await;
            }
        }
        self.score(StopReason::StepLimit).await
    }

    async fn step(&mut self) -> Result<Option<StopReason>> {
        let asked = Instant::now();
        let click = self.random_click();
        let by_expert = click.is_none();
        let wanted = match click {
            Some(click) => click,
            None => match self.ask_expert().await? {
                Some(action) => action,
                // A detour may have led to where even the expert is lost.
                None if self.shown.by_expert.contains(&false) => {
                    return Ok(Some(StopReason::Completed));
                }
                None => return Err(RolloutError::NoExpertAction.at("demonstrate")),
            },
        };
        let decision = self.encoder.encode(&self.input, &wanted)?;
        decision.validate()?;
        let action = said(&decision)?.clone();
        let decide_ms = millis_since(asked);
        let acting = Instant::now();
        let limit = self.plan.limits.call_timeout;
        let acted = self.env.step(&action);
        let acted = self.plan.limits.call("environment.step", limit, acted);
        let outcome = acted.await?;
        let act_ms = millis_since(acting);
        self.record(decision, outcome.observation, (decide_ms, act_ms));
        self.shown.by_expert.push(by_expert);
        Ok(match outcome.status {
            StepStatus::Running => None,
            StepStatus::Terminated => Some(StopReason::Completed),
            StepStatus::Truncated(reason) => Some(reason),
        })
    }

    fn random_click(&mut self) -> Option<Action> {
        let perturb = self.plan.perturb.clamp(0.0, 1.0);
        // `clamp` keeps NaN.
        if !(perturb > 0.0 && self.rng.random_bool(perturb)) {
            return None;
        }
        random_click(self.env.spec(), &mut self.rng)
    }

    async fn ask_expert(&mut self) -> Result<Option<Action>> {
        let limit = self.plan.limits.call_timeout;
        let asked = self.env.expert_action();
        self.plan.limits.call("expert action", limit, asked).await
    }

    fn record(&mut self, decision: Decision, next: Observation, took_ms: (f64, f64)) {
        let observation = std::mem::replace(&mut self.input.observation, next);
        self.input.history.push(PastStep {
            frame: observation.frame.clone(),
            response: Arc::clone(&decision.token_ids),
        });
        self.shown.trajectory.steps.push(Step {
            observation,
            decision,
            decide_ms: took_ms.0,
            act_ms: took_ms.1,
        });
    }

    async fn score(&mut self, stop: StopReason) -> Result<(Outcome, StopReason)> {
        let limit = self.plan.limits.call_timeout;
        let judged = self.env.score();
        let judged = self.plan.limits.call("environment.score", limit, judged);
        let reward = judged.await?;
        Ok((Outcome::Scored { reward }, stop))
    }
}

fn empty(plan: &DemonstrationPlan, instruction: &Arc<str>) -> Trajectory {
    let name = u128::from(seeds::of_name(plan.task.id.as_str()));
    let number = u128::from(seeds::derive(plan.seed, plan.perturb_seed));
    Trajectory {
        id: TrajectoryId(name << 64 | number),
        group: GroupId(0),
        task: Arc::clone(&plan.task),
        seed: plan.seed,
        instruction: Arc::clone(instruction),
        steps: Vec::new(),
        outcome: Outcome::Aborted,
        stop: StopReason::Cancelled,
        error: None,
    }
}

/// The action that a decision stands for.
fn said(decision: &Decision) -> Result<&Action> {
    match &decision.action {
        ParsedAction::Valid(action) => Ok(action),
        ParsedAction::Invalid(reason) => {
            let reason = reason.clone();
            Err(RolloutError::BadEncoding { reason }.at("demonstrate"))
        }
    }
}

/// A click or tap anywhere on the screen; `None` where neither is offered.
fn random_click(spec: &EnvSpec, rng: &mut ChaCha8Rng) -> Option<Action> {
    let at = ScreenPx::new(
        rng.random_range(0..spec.screen.width.max(1)) as i32,
        rng.random_range(0..spec.screen.height.max(1)) as i32,
    );
    if spec.actions.contains(ActionKind::Click) {
        return Some(Action::click(at));
    }
    let tap = spec.actions.contains(ActionKind::Tap);
    tap.then_some(Action::Tap { at })
}
