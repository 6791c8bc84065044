//! Evaluation: the same numbers however many environments run, and no fault counted as failure.

use std::sync::Arc;

use dart_core::{
    Action, EnvironmentFactory, ErrorKind, Outcome, Policy, PolicyVersion, Sampling, Task, TaskId,
};
use dart_rollout::{Evaluation, EvaluationPlan, EventLog, RolloutEvent, evaluate};
use dart_testkit::{
    fakes::{self, FakeConfig, FakeFactory, FakePolicy, FakeWeights},
    faulty::Mishap,
};

use crate::support::{FnPolicy, PlannedFactory, millis};

fn task(name: &str, family: &str) -> Arc<Task> {
    Arc::new(Task {
        id: TaskId::new(name).unwrap(),
        family: family.to_owned(),
        ..fakes::task(4)
    })
}

fn plan(environments: usize) -> EvaluationPlan {
    let tasks = vec![task("a.1", "a"), task("a.2", "a"), task("b.1", "b")];
    EvaluationPlan {
        environments,
        first_seed: 1_000,
        sampling: Sampling {
            temperature: 1.0,
            seed: 5,
        },
        ..EvaluationPlan::new(tasks, 10)
    }
}

fn policy() -> Arc<dyn Policy> {
    Arc::new(FakePolicy::new(FakeWeights::blank(4, 3)).with_latency_ms(10, 90))
}

fn healthy() -> Arc<dyn EnvironmentFactory> {
    Arc::new(PlannedFactory::new(Vec::new()))
}

/// What was found, apart from how often an episode was tried.
fn findings(evaluation: &Evaluation) -> Vec<(String, u64, Outcome, usize)> {
    let episodes = evaluation.episodes.iter();
    episodes
        .map(|e| (e.task.to_string(), e.seed, e.outcome, e.steps))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_result_does_not_depend_on_how_many_run_at_once() {
    let one = evaluate(plan(1), healthy(), policy()).await.unwrap();
    let many = evaluate(plan(7), healthy(), policy()).await.unwrap();
    assert_eq!(one, many);
    assert_eq!(one.episodes.len(), 30);
    assert_eq!((one.judged, one.aborted), (30, 0));
    assert_eq!(one.families["a"].episodes, 20);
    assert_eq!(one.families["b"].episodes, 10);
    let order: Vec<_> = one
        .episodes
        .iter()
        .map(|e| (e.task.as_str(), e.seed))
        .collect();
    assert_eq!((order[0], order[29]), (("a.1", 1_000), ("b.1", 1_009)));
    // Recomputed by hand from the episodes.
    let rate = |family: &str| {
        let mine = one.episodes.iter().filter(|e| e.family == family);
        let done: Vec<bool> = mine.map(|e| e.outcome.is_success()).collect();
        done.iter().filter(|done| **done).count() as f64 / done.len() as f64
    };
    assert!(rate("a") > 0.0 && rate("a") < 1.0, "{}", rate("a"));
    assert!((one.overall - f64::midpoint(rate("a"), rate("b"))).abs() < 1e-12);
    assert_eq!(one.families["a"].rate(), Some(rate("a")));
}

#[tokio::test(start_paused = true)]
async fn faults_cost_attempts_and_change_no_result() {
    let clean = evaluate(plan(3), healthy(), policy()).await.unwrap();
    let faults = [Mishap::Hang, Mishap::Stall, Mishap::Panic, Mishap::Cut];
    let plans = faults.iter().map(|mishap| vec![(7, *mishap)]).collect();
    let factory = Arc::new(PlannedFactory::new(plans));
    let log = EventLog::new();
    let mut plan = plan(3);
    plan.sink = Some(Arc::clone(&log) as _);
    plan.limits.call_timeout = millis(5_000);
    let faulty = evaluate(plan, factory, policy()).await.unwrap();
    assert_eq!(findings(&faulty), findings(&clean));
    assert_eq!(faulty.overall, clean.overall);
    let again = faulty.episodes.iter().filter(|e| e.attempts > 1).count();
    assert!(again >= 3, "{again} episodes were tried again");
    let told = log.entries().into_iter().filter(|(_, event)| {
        matches!(
            event,
            RolloutEvent::EvaluationEpisode {
                outcome: Outcome::Aborted,
                ..
            }
        )
    });
    assert_eq!(told.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_judged_is_in_no_rate() {
    // Whoever is asked about the first instance is away; the rest solves nothing.
    let policy = FnPolicy::new(|input| {
        let action = dart_core::ParsedAction::Valid(Action::Done);
        let mut decision = crate::support::decision(action, input, PolicyVersion::default());
        if input.sampling.seed.is_multiple_of(3) {
            decision.token_ids = Vec::new().into();
        }
        Ok(decision)
    });
    let evaluation = evaluate(plan(2), healthy(), Arc::new(policy))
        .await
        .unwrap();
    assert!(evaluation.aborted > 0 && evaluation.judged > 0);
    assert_eq!(evaluation.aborted + evaluation.judged, 30);
    assert_eq!(evaluation.overall, 0.0);
    for episode in &evaluation.episodes {
        let aborted = episode.outcome == Outcome::Aborted;
        assert_eq!(episode.attempts, if aborted { 3 } else { 1 });
        assert_eq!(episode.error.is_some(), aborted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_away_ends_with_aborted_episodes() {
    let factory = FakeFactory::new(FakeConfig {
        fails_every: 1,
        ..FakeConfig::default()
    });
    let evaluation = evaluate(plan(2), Arc::new(factory), policy())
        .await
        .unwrap();
    assert_eq!((evaluation.aborted, evaluation.judged), (30, 0));
    assert_eq!(evaluation.families["b"].rate(), None);
}

#[tokio::test(start_paused = true)]
async fn it_can_be_stopped_and_refuses_an_empty_plan() {
    let plan_to_stop = plan(2);
    let cancel = plan_to_stop.limits.cancel.clone();
    let stop = async {
        tokio::time::sleep(millis(300)).await;
        cancel.cancel();
    };
    let (stopped, ()) = tokio::join!(evaluate(plan_to_stop, healthy(), policy()), stop);
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);

    let nobody = evaluate(plan(0), healthy(), policy()).await;
    assert_eq!(nobody.unwrap_err().kind(), ErrorKind::Config);

    let nothing = EvaluationPlan::new(Vec::new(), 3);
    let nothing = evaluate(nothing, healthy(), policy()).await.unwrap();
    assert_eq!(nothing.episodes.len(), 0);
    assert_eq!(nothing.overall, 0.0);
}
