//! The suite of [`Environment`]: one check for each line of its contract.

use async_trait::async_trait;
use dart_core::{Action, ActionKind, Demonstrate, Environment, Result, Size, StepStatus, Task};

use crate::{
    actions,
    suite::{Breakable, Fault, Settings, suite},
};

mod checks;

pub use checks::*;

/// What the checks need to know about an environment.
#[async_trait]
pub trait EnvironmentHarness: Sync {
    /// What is tested: a type, or `dyn Environment`, or `dyn Demonstrate`.
    type Env: Environment + ?Sized;

    /// How to run the checks.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Makes a fresh environment.
    async fn make(&self) -> Result<Box<Self::Env>>;

    /// A task. Its horizon leaves room for the solution; the checks shorten it where they need to.
    fn task(&self) -> Task;

    /// The seed of the task instance that the checks use.
    fn seed(&self) -> u64 {
        7
    }

    /// The scripted end: solves the task instance that has just been set up, by steps.
    async fn solve(&self, env: &mut Self::Env) -> Result<()>;

    /// An action with a visible effect on the screen that has just been set up.
    async fn visible_action(&self, env: &mut Self::Env) -> Result<Action>;

    /// An acceptable action of a kind.
    fn example(&self, kind: ActionKind, screen: Size) -> Action {
        actions::example(kind, screen)
    }

    /// An action that solves nothing.
    fn idle(&self) -> Action {
        Action::Wait { millis: 1 }
    }

    /// An environment whose peer can be made to fail in this way, if there is a way.
    async fn breakable(&self, _fault: Fault) -> Result<Option<Breakable<Self::Env>>> {
        Ok(None)
    }
}

/// Solves the task at hand the way its scripted expert does: for [`EnvironmentHarness::solve`].
pub async fn solve_with_expert<E: Demonstrate + ?Sized>(env: &mut E) -> Result<()> {
    while let Some(action) = env.expert_action().await? {
        // The episode stays open, so that a check can go on from a solved state.
        if action.is_final() || env.step(&action).await?.status != StepStatus::Running {
            break;
        }
    }
    Ok(())
}

/// What the expert does first: for [`EnvironmentHarness::visible_action`].
pub async fn first_expert_action<E: Demonstrate + ?Sized>(env: &mut E) -> Result<Action> {
    Ok(env.expert_action().await?.unwrap_or(Action::Done))
}

suite! {
    $
    /// Makes one `#[test]` of each check of the environment suite, and `coverage`, in a module
    /// named `environment_conformance` or, with `mod name, harness`, otherwise.
    environment_conformance in environment for EnvironmentHarness:
    c01_spec_is_stable,
    c02_reset_gives_a_frame_of_the_declared_size_and_an_instruction,
    c03_reset_is_possible_at_any_time,
    c04_step_before_reset_is_misuse,
    c05_declared_actions_are_accepted,
    c06_undeclared_actions_are_unsupported,
    c07_faulty_actions_are_invalid,
    c08_a_visible_action_changes_the_frame,
    c09_step_after_the_end_is_misuse,
    c10_the_horizon_truncates,
    c11_done_and_fail_terminate,
    c12_score_may_be_repeated,
    c13_a_solved_task_scores_one,
    c14_a_stalled_peer_times_out,
    c15_a_cut_connection_is_retryable,
    c16_a_dropped_future_leaves_it_usable_or_says_so,
    c17_close_is_idempotent_and_final,
    c18_the_same_seed_gives_the_same_first_frame,
}
