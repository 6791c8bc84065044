//! What becomes of an episode, by who did what wrong.

use std::sync::Arc;

use dart_core::{
    Action, Environment, EnvironmentFactory, Error, ErrorKind, Outcome, ParsedAction, Policy,
    PolicyVersion, Reward, ScreenPx, StopReason, Trajectory,
};
use dart_rollout::{EpisodeLimits, run_episode};
use dart_testkit::{fakes, faulty::Mishap};
use tokio::time::Instant;

use crate::support::{FnPolicy, HungPolicy, PlannedFactory, decision, millis, request};

const SOLVED: Outcome = Outcome::Scored {
    reward: Reward::SUCCESS,
};
const FAILED: Outcome = Outcome::Scored {
    reward: Reward::FAILURE,
};

fn limits() -> EpisodeLimits {
    EpisodeLimits {
        decision_timeout: millis(1_000),
        call_timeout: millis(10_000),
        episode_timeout: millis(60_000),
        ..EpisodeLimits::default()
    }
}

async fn env_with(plan: &[(usize, Mishap)]) -> Box<dyn Environment> {
    let factory = PlannedFactory::new(vec![plan.to_vec()]);
    factory.create().await.unwrap()
}

async fn play(policy: &dyn Policy, step_limit: u32) -> Trajectory {
    let mut env = env_with(&[]).await;
    run_episode(env.as_mut(), policy, &request(7, step_limit), &limits()).await
}

fn outside() -> Action {
    Action::click(ScreenPx::new(1_000, 0))
}

#[tokio::test(start_paused = true)]
async fn a_solved_task_is_scored_with_all_that_was_said() {
    // Clicks every 8th column and row: one of them hits the 12-pixel square.
    let policy = FnPolicy::new(|input| {
        let step = input.history.len() as i32;
        let at = ScreenPx::new(4 + step % 4 * 8, 4 + step / 4 * 8);
        let action = ParsedAction::Valid(Action::click(at));
        Ok(decision(action, input, PolicyVersion(3)))
    });
    let trajectory = play(&policy, 12).await;
    assert_eq!(trajectory.outcome, SOLVED);
    assert_eq!(trajectory.stop, StopReason::Completed);
    assert_eq!(trajectory.error, None);
    assert_eq!(trajectory.oldest_version(), Some(PolicyVersion(3)));
    let asked = policy.asked.lock().unwrap();
    assert_eq!(asked.len(), trajectory.steps.len());
    let mut seeds = std::collections::BTreeSet::new();
    for (index, (input, step)) in asked.iter().zip(&trajectory.steps).enumerate() {
        assert_eq!(input.instruction, trajectory.instruction);
        assert_eq!(input.observation.frame, step.observation.frame);
        assert_eq!(input.history.len(), index);
        for (past, earlier) in input.history.iter().zip(&trajectory.steps) {
            assert_eq!(past.frame, earlier.observation.frame);
            assert_eq!(past.response, earlier.decision.token_ids);
        }
        assert!(seeds.insert(input.sampling.seed), "a fresh seed each step");
        assert!(step.act_ms > 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_action_is_the_policys_fault_and_recorded() {
    let policy = FnPolicy::always(ParsedAction::Invalid("gibberish".into()));
    let trajectory = play(&policy, 5).await;
    assert_eq!(trajectory.outcome, Outcome::PolicyFault);
    assert_eq!(trajectory.stop, StopReason::ParseError);
    assert_eq!(trajectory.steps.len(), 1, "it is the step to learn from");

    let policy = FnPolicy::new(|input| {
        let invalid = ParsedAction::Invalid("no end".into());
        let mut decision = decision(invalid, input, PolicyVersion(0));
        decision.truncated = true;
        Ok(decision)
    });
    let trajectory = play(&policy, 5).await;
    assert_eq!(trajectory.outcome, Outcome::PolicyFault);
    assert_eq!(trajectory.stop, StopReason::TokenLimit);
}

#[tokio::test(start_paused = true)]
async fn an_action_that_is_not_offered_is_the_policys_fault() {
    let trajectory = play(&FnPolicy::taking(Action::NavigateHome), 5).await;
    assert_eq!(trajectory.outcome, Outcome::PolicyFault);
    assert_eq!(trajectory.stop, StopReason::ParseError);
    assert_eq!(trajectory.steps.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_impossible_action_costs_a_step_and_is_told() {
    let policy = FnPolicy::taking(outside());
    let trajectory = play(&policy, 4).await;
    assert_eq!(trajectory.outcome, FAILED);
    assert_eq!(trajectory.stop, StopReason::StepLimit);
    assert_eq!(trajectory.steps.len(), 4);
    let first = &trajectory.steps[0].observation;
    assert_eq!(first.last_action_error, None);
    for step in &trajectory.steps[1..] {
        let told = step.observation.last_action_error.as_deref().unwrap();
        assert!(told.contains("outside the 32x24 screen"), "{told}");
        assert_eq!(step.observation.frame, first.frame);
    }
}

#[tokio::test(start_paused = true)]
async fn the_requests_step_limit_is_below_the_horizon_and_still_scored() {
    let mut env = env_with(&[]).await;
    let mut request = request(7, 9);
    request.step_limit = 3;
    let policy = FnPolicy::taking(Action::Wait { millis: 1 });
    let trajectory = run_episode(env.as_mut(), &policy, &request, &limits()).await;
    assert_eq!(trajectory.outcome, FAILED);
    assert_eq!(trajectory.stop, StopReason::StepLimit);
    assert_eq!(trajectory.steps.len(), 3);

    request.step_limit = 0;
    let trajectory = run_episode(env.as_mut(), &policy, &request, &limits()).await;
    assert_eq!(trajectory.outcome, Outcome::Aborted, "no step, no reward");
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_ends_an_episode_between_steps() {
    let start = Instant::now();
    let policy = FnPolicy::taking(Action::Wait { millis: 9_000 });
    let trajectory = play(&policy, 100).await;
    assert_eq!(trajectory.outcome, FAILED);
    assert_eq!(trajectory.stop, StopReason::TimeLimit);
    assert_eq!(
        trajectory.steps.len(),
        7,
        "the first after 60 s is the last"
    );
    assert!(start.elapsed() < millis(70_000));
}

#[tokio::test(start_paused = true)]
async fn a_hung_environment_aborts_within_the_deadline() {
    // Calls of the device: 1 and 2 are the reset, 3 the first step.
    for (call, steps) in [(1, 0), (3, 0), (5, 1)] {
        let start = Instant::now();
        let mut env = env_with(&[(call, Mishap::Hang)]).await;
        let policy = FnPolicy::taking(Action::Wait { millis: 1 });
        let trajectory = run_episode(env.as_mut(), &policy, &request(7, 9), &limits()).await;
        assert_eq!(trajectory.outcome, Outcome::Aborted);
        assert_eq!(trajectory.stop, StopReason::EnvironmentError);
        assert_eq!(trajectory.steps.len(), steps);
        let error = trajectory.error.unwrap();
        assert!(error.contains("no answer within 10000 ms"), "{error}");
        assert!(start.elapsed() < millis(11_000));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_environment_aborts_and_the_next_reset_recovers_it() {
    let mut env = env_with(&[(4, Mishap::Slow(millis(3_000)))]).await;
    let policy = FnPolicy::taking(Action::Wait { millis: 1 });
    let slow = run_episode(env.as_mut(), &policy, &request(7, 2), &limits()).await;
    assert_eq!(slow.outcome, FAILED, "slow is not broken");

    let mut env = env_with(&[(4, Mishap::Stall)]).await;
    let broken = run_episode(env.as_mut(), &policy, &request(7, 2), &limits()).await;
    assert_eq!(broken.outcome, Outcome::Aborted);
    assert!(broken.error.unwrap().contains("does not answer"));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_hangs_fails_or_babbles_gives_no_reward() {
    let start = Instant::now();
    let trajectory = play(&HungPolicy, 5).await;
    assert_eq!(trajectory.outcome, Outcome::Aborted);
    assert!(start.elapsed() < millis(2_000));

    let away = FnPolicy::new(|_| {
        let message = "the server is away";
        Err(Error::new(ErrorKind::Disconnected, "fake", "act", message))
    });
    let trajectory = play(&away, 5).await;
    assert_eq!(trajectory.outcome, Outcome::Aborted);
    assert!(trajectory.error.unwrap().contains("the server is away"));

    let babbles = FnPolicy::new(|input| {
        let action = ParsedAction::Valid(Action::Done);
        let mut decision = decision(action, input, PolicyVersion(0));
        decision.rollout_log_probs = vec![f32::NAN, 0.0].into();
        Ok(decision)
    });
    let trajectory = play(&babbles, 5).await;
    assert_eq!(trajectory.outcome, Outcome::Aborted);
    assert!(trajectory.steps.is_empty(), "never stored");
}

#[tokio::test(start_paused = true)]
async fn cancelling_aborts_at_once() {
    let limits = limits();
    let mut env = env_with(&[]).await;
    let policy = FnPolicy::taking(Action::Wait { millis: 9_000 });
    let request = request(7, 50);
    let start = Instant::now();
    let cancel = async {
        tokio::time::sleep(millis(12_345)).await;
        limits.cancel.cancel();
    };
    let (trajectory, ()) = tokio::join!(
        run_episode(env.as_mut(), &policy, &request, &limits),
        cancel
    );
    assert_eq!(trajectory.outcome, Outcome::Aborted);
    assert_eq!(trajectory.stop, StopReason::Cancelled);
    assert_eq!(start.elapsed(), millis(12_345));
}

#[tokio::test(start_paused = true)]
async fn the_same_request_gives_the_same_trajectory() {
    let policy = fakes::FakePolicy::new(fakes::FakeWeights::blank(4, 3));
    let (first, second) = (play(&policy, 6).await, play(&policy, 6).await);
    let said = |t: &Trajectory| -> Vec<Arc<[u32]>> {
        t.steps
            .iter()
            .map(|s| s.decision.token_ids.clone())
            .collect()
    };
    assert_eq!(said(&first), said(&second));
    assert_eq!(first.outcome, second.outcome);
}
