//! The fakes together: a ring so small that it learns within a second, one episode at a time.

use std::sync::Arc;

use dart_core::{
    Commit, Curator, EnvironmentFactory, Learner, Outcome, ParsedAction, PastStep, Policy,
    PolicyInput, Result, RolloutRequest, Sampling, Step, StepStatus, StopReason, Trajectory,
};
use dart_testkit::fakes::{
    FakeConfig, FakeDriver, FakeFactory, FakeLearner, FakePolicy, FakeWeights, MemoryCurator,
    MemoryCuratorConfig, TrajectoryShelf, task,
};

fn factory() -> FakeFactory {
    FakeFactory::new(FakeConfig {
        driver: FakeDriver {
            target_px: 8,
            ends_by_itself: true,
        },
        ..FakeConfig::default()
    })
}

async fn rollout(policy: &FakePolicy, request: &RolloutRequest) -> Result<Trajectory> {
    let mut env = factory().create().await?;
    let reset = env.reset(&request.task, request.seed).await?;
    let (mut observation, mut history, mut steps) = (reset.observation, Vec::new(), Vec::new());
    let mut status = StepStatus::Running;
    while status == StepStatus::Running && steps.len() < request.step_limit as usize {
        let input = PolicyInput {
            instruction: reset.instruction.clone(),
            history: history.clone(),
            observation: observation.clone(),
            sampling: Sampling {
                temperature: request.temperature,
                seed: request.sampling_seed ^ (steps.len() as u64) << 32,
            },
        };
        let decision = policy.act(input).await?;
        let ParsedAction::Valid(action) = decision.action.clone() else {
            break;
        };
        history.push(PastStep {
            frame: observation.frame.clone(),
            response: decision.token_ids.clone(),
        });
        let outcome = env.step(&action).await?;
        steps.push(Step {
            observation: std::mem::replace(&mut observation, outcome.observation),
            decision,
            decide_ms: 0.0,
            act_ms: 0.0,
        });
        status = outcome.status;
    }
    let reward = env.score().await?;
    Ok(Trajectory {
        id: request.trajectory,
        group: request.group,
        task: request.task.clone(),
        seed: request.seed,
        instruction: reset.instruction,
        steps,
        outcome: Outcome::Scored { reward },
        stop: StopReason::Completed,
        error: None,
    })
}

async fn success(policy: &FakePolicy) -> f64 {
    let mut done = 0;
    for number in 0..60 {
        let request = dart_testkit::records::request(number, 0, 1_000 + number as u64);
        let request = RolloutRequest {
            task: Arc::new(task(1)),
            ..request
        };
        let trajectory = rollout(policy, &request).await.expect("the fakes work");
        done += u32::from(trajectory.outcome.is_success());
    }
    f64::from(done) / 60.0
}

#[tokio::test(start_paused = true)]
async fn a_ring_of_fakes_learns_to_click_the_square() {
    let weights = FakeWeights::blank(4, 3);
    let policy = FakePolicy::new(weights.clone());
    let mut learner = FakeLearner::new(weights, 4.0);
    let config = MemoryCuratorConfig {
        group_size: 8,
        max_in_flight: 8,
        ..MemoryCuratorConfig::default()
    };
    let curator = MemoryCurator::new(config, vec![Arc::new(task(1))], TrajectoryShelf::default());
    let before = success(&policy).await;
    for _ in 0..60 {
        while curator.status().groups_ready < config.groups_per_batch {
            let request = curator.next_request().await.unwrap().unwrap();
            let trajectory = rollout(&policy, &request).await.unwrap();
            curator.ingest(trajectory).await.unwrap();
        }
        let batch = curator.next_batch().await.unwrap().unwrap();
        let report = learner.step(&batch).unwrap();
        policy.load(&learner.export().unwrap()).await.unwrap();
        let commit = Commit {
            batch: batch.id,
            version: report.version,
        };
        curator.commit(commit).await.unwrap();
    }
    let after = success(&policy).await;
    assert!(after > before + 0.3, "success {before}, then {after}");
    assert!(learner.weights().gain > 0.0, "red does not attract");
}
