//! Demonstrations: the expert's actions in the policy's words, with and without detours.

use std::sync::Arc;

use dart_core::{
    Action, Decision, Demonstrate, DemonstrationEncoder, EnvironmentFactory, ErrorKind,
    ParsedAction, PolicyInput, PolicyVersion, Result, ScreenPx, StopReason,
};
use dart_rollout::{DemonstrationPlan, run_demonstration, run_demonstration_with};
use dart_testkit::fakes::{self, FakeFactory};

use crate::support::decision;

/// Says every action, points rounded to even pixels.
struct Even;

impl DemonstrationEncoder for Even {
    fn encode(&self, input: &PolicyInput, action: &Action) -> Result<Decision> {
        let action = match action {
            Action::Click { at, .. } => Action::click(ScreenPx::new(at.x / 2 * 2, at.y / 2 * 2)),
            other => other.clone(),
        };
        let mut said = decision(ParsedAction::Valid(action), input, PolicyVersion(0));
        said.rollout_log_probs = vec![0.0, 0.0].into();
        Ok(said)
    }
}

/// Cannot say anything.
struct Mute;

impl DemonstrationEncoder for Mute {
    fn encode(&self, input: &PolicyInput, _action: &Action) -> Result<Decision> {
        let invalid = ParsedAction::Invalid("no words".into());
        Ok(decision(invalid, input, PolicyVersion(0)))
    }
}

async fn env() -> Box<dyn Demonstrate> {
    FakeFactory::default().create_demonstrator().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_expert_solves_the_task_in_the_policys_words() {
    let mut env = env().await;
    let task = Arc::new(fakes::task(6));
    for seed in 0..20 {
        let shown = run_demonstration(env.as_mut(), &Even, Arc::clone(&task), seed).await;
        let shown = shown.unwrap();
        assert!(shown.outcome.is_success(), "seed {seed}");
        assert_eq!(shown.stop, StopReason::Completed);
        assert_eq!(shown.steps.len(), 2, "click, done");
        let ParsedAction::Valid(Action::Click { at, .. }) = &shown.steps[0].decision.action else {
            panic!("{:?}", shown.steps[0].decision.action);
        };
        assert_eq!(
            (at.x % 2, at.y % 2),
            (0, 0),
            "what was said is what was done"
        );
        let again = run_demonstration(env.as_mut(), &Even, Arc::clone(&task), seed).await;
        assert_eq!(
            again.unwrap().id,
            shown.id,
            "the same id, so it is stored once"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn detours_are_in_the_history_and_not_to_be_learned() {
    let mut env = env().await;
    let task = Arc::new(fakes::task(20));
    let (mut detours, mut solved) = (0, 0);
    for seed in 0..30 {
        let plan = DemonstrationPlan {
            perturb: 0.3,
            perturb_seed: 9,
            ..DemonstrationPlan::new(Arc::clone(&task), seed)
        };
        let shown = run_demonstration_with(env.as_mut(), &Even, &plan)
            .await
            .unwrap();
        let steps = &shown.trajectory.steps;
        assert_eq!(shown.by_expert.len(), steps.len());
        assert!(shown.teaches(steps.len() - 1), "the expert ends it");
        assert!(!shown.teaches(steps.len()));
        for (index, step) in steps.iter().enumerate() {
            // The fake decision's first token counts the steps that the policy was shown.
            assert_eq!(step.decision.token_ids[0] as usize, index);
        }
        detours += shown
            .by_expert
            .iter()
            .filter(|by_expert| !**by_expert)
            .count();
        solved += usize::from(shown.trajectory.outcome.is_success());
        let again = run_demonstration_with(env.as_mut(), &Even, &plan)
            .await
            .unwrap();
        assert_eq!(
            again.by_expert, shown.by_expert,
            "the same seed, the same detours"
        );
    }
    assert!(detours > 10, "{detours}");
    assert_eq!(solved, 30, "the expert finds back");
}

#[tokio::test(start_paused = true)]
async fn an_action_that_cannot_be_said_is_an_error() {
    let mut env = env().await;
    let shown = run_demonstration(env.as_mut(), &Mute, Arc::new(fakes::task(6)), 1).await;
    let error = shown.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.to_string().contains("no words"), "{error}");
}
