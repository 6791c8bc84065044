//! The suite of [`Demonstrate`].

use async_trait::async_trait;
use dart_core::{Demonstrate, Environment, Result, StepStatus, Task};

use crate::suite::{Checked, Failure, Settings, Verdict, ensure, suite};

/// What the checks need to know about an environment with experts.
#[async_trait]
pub trait DemonstrateHarness: Sync {
    /// What is tested.
    type Env: Demonstrate + ?Sized;

    /// How to run the checks.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Makes a fresh environment.
    async fn make(&self) -> Result<Box<Self::Env>>;

    /// The tasks of the training split.
    fn tasks(&self) -> Vec<Task>;

    /// The seeds of the task instances that are tried.
    fn seeds(&self) -> Vec<u64> {
        (0..5).collect()
    }
}

suite! {
    $
    /// Makes one `#[test]` of each check of the demonstration suite, and `coverage`, in a module
    /// named `demonstrate_conformance` or, with `mod name, harness`, otherwise.
    demonstrate_conformance in demonstrate for DemonstrateHarness:
    c01_the_expert_solves_every_task,
    c02_asking_changes_nothing,
}

/// Line 1. The expert's actions, taken one after another, solve every task of the training split.
pub async fn c01_the_expert_solves_every_task<H: DemonstrateHarness>(h: &H) -> Checked {
    let mut env = h.make().await?;
    for task in h.tasks() {
        for seed in h.seeds() {
            env.reset(&task, seed).await?;
            let solved = follow::<H>(&mut env, &task).await;
            let reward =
                solved.map_err(|e| Failure(format!("{} with seed {seed}: {e}", task.id)))?;
            ensure(
                reward >= 1.0,
                format!("the expert scores {reward} in {} with seed {seed}", task.id),
            )?;
        }
    }
    Ok(Verdict::Passed)
}

async fn follow<H: DemonstrateHarness>(env: &mut H::Env, task: &Task) -> Result<f64, Failure> {
    for step in 0..=task.horizon {
        let Some(action) = env.expert_action().await? else {
            return Err(format!("the expert has no idea at step {step}").into());
        };
        if env.step(&action).await?.status != StepStatus::Running {
            return Ok(env.score().await?.value());
        }
    }
    Err("the episode does not end at the horizon".into())
}

/// Line 2. Asking does not change the state.
pub async fn c02_asking_changes_nothing<H: DemonstrateHarness>(h: &H) -> Checked {
    let (mut asked, mut silent) = (h.make().await?, h.make().await?);
    let deterministic = asked.spec().deterministic;
    for task in h.tasks() {
        let seed = h.seeds().first().copied().unwrap_or(0);
        asked.reset(&task, seed).await?;
        silent.reset(&task, seed).await?;
        loop {
            let first = asked.expert_action().await?;
            let second = asked.expert_action().await?;
            let id = &task.id;
            ensure(first == second, format!("{id}: {first:?}, then {second:?}"))?;
            let Some(action) = first else { break };
            let after = asked.step(&action).await?;
            let undisturbed = silent.step(&action).await?;
            ensure(
                after.status == undisturbed.status,
                format!(
                    "{id}: asking made {:?} of {:?}",
                    after.status, undisturbed.status
                ),
            )?;
            ensure(
                !deterministic || after.observation.frame == undisturbed.observation.frame,
                format!("{id}: asking changed the frame after {action:?}"),
            )?;
            if after.status != StepStatus::Running {
                break;
            }
        }
    }
    Ok(Verdict::Passed)
}
