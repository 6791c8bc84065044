//! Tasks, answers and managers for the tests.

use std::sync::Arc;

use dart_core::{
    Action, Curator, Decision, Frame, ImageSpan, LogProbKind, Observation, Outcome, ParsedAction,
    PolicyVersion, Prompt, Rect, Reward, RolloutRequest, ScreenPx, Size, Split, Step, StopReason,
    Task, TaskId, Trajectory, UiElement, UiRole,
};
use dart_curation::{CurationConfig, DataManager, MemoryStore, TrajectoryStore};

pub(crate) fn task(name: &str) -> Arc<Task> {
    Arc::new(Task {
        id: TaskId::new(name).unwrap(),
        family: name.into(),
        split: Split::Train,
        horizon: 10,
        params: serde_json::json!({"threshold": 0.1, "words": ["a", "b"]}),
    })
}

pub(crate) fn tasks(count: usize) -> Vec<Arc<Task>> {
    (0..count).map(|n| task(&format!("task-{n}"))).collect()
}

/// Two groups of two in a batch, nothing adaptive.
pub(crate) fn plain() -> CurationConfig {
    let mut config = CurationConfig {
        groups_per_batch: 2,
        max_groups_per_batch: 2,
        rollouts_per_group: 2,
        max_in_flight: 64,
        max_staleness: 1,
        ..CurationConfig::default()
    };
    config.rollout_number.enabled = false;
    config.trajectory_length.enabled = false;
    config.pool.enabled = false;
    config
}

pub(crate) fn manager(config: CurationConfig) -> DataManager {
    manager_on(config, Arc::new(MemoryStore::new()))
}

pub(crate) fn manager_on(config: CurationConfig, store: Arc<dyn TrajectoryStore>) -> DataManager {
    DataManager::new(config, tasks(3), 17, store).unwrap()
}

pub(crate) fn frame(shade: u8) -> Frame {
    let size = Size::new(8, 6);
    let rgb: Vec<u8> = (0..size.area() * 3)
        .map(|i| (i as u8).wrapping_mul(shade))
        .collect();
    Frame::new(size, rgb).unwrap()
}

/// A step as a policy of `version` leaves it: it was shown its own image and the one before.
pub(crate) fn step(index: u32, shade: u8, version: PolicyVersion) -> Step {
    let span = |image: u32, start| ImageSpan {
        image,
        start,
        len: 2,
    };
    let images = match index {
        0 => vec![span(0, 1)],
        _ => vec![span(index - 1, 1), span(index, 4)],
    };
    let mut observation = Observation::of(frame(shade));
    observation.ui = Some(Arc::new([UiElement {
        role: UiRole::Button,
        text: format!("OK \u{1f600} {shade}"),
        bounds: Rect::new(-1, 2, 3, 4),
    }]));
    observation.last_action_error = (index % 2 == 1).then(|| "outside \"the\" screen\0".into());
    Step {
        observation,
        decision: Decision {
            action: ParsedAction::Valid(Action::click(ScreenPx::new(1, index as i32))),
            text: format!("click({index})"),
            prompt: Prompt {
                token_ids: (0..8 + index).collect(),
                images,
            },
            token_ids: vec![1, u32::MAX, 3].into(),
            rollout_log_probs: vec![-0.1, -1e-30, -std::f32::consts::PI].into(),
            entropies: index.is_multiple_of(2).then(|| vec![0.1, 0.0, 2.5].into()),
            log_prob_kind: LogProbKind::AfterTemperature,
            temperature: 0.7,
            version,
            truncated: false,
        },
        decide_ms: 0.1 + 0.2,
        act_ms: 1.0 / 3.0,
    }
}

/// What became of `request`, with `steps` steps by a policy of `version`.
pub(crate) fn answer(
    request: &RolloutRequest,
    outcome: Outcome,
    steps: u32,
    version: PolicyVersion,
) -> Trajectory {
    let shade = request.sampling_seed as u8;
    Trajectory {
        id: request.trajectory,
        group: request.group,
        task: request.task.clone(),
        seed: request.seed,
        instruction: format!("do {}", request.task.id).into(),
        steps: (0..steps)
            .map(|index| step(index, shade.wrapping_add(index as u8), version))
            .collect(),
        outcome,
        stop: match outcome {
            Outcome::Aborted => StopReason::EnvironmentError,
            _ => StopReason::Completed,
        },
        error: matches!(outcome, Outcome::Aborted).then(|| "gone".into()),
    }
}

pub(crate) fn scored(reward: f64) -> Outcome {
    Outcome::Scored {
        reward: Reward::new(reward).unwrap(),
    }
}

pub(crate) async fn request(manager: &DataManager) -> RolloutRequest {
    manager.next_request().await.unwrap().unwrap()
}

/// Whether a call returns without anything else happening.
pub(crate) async fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        value = future => Some(value),
        () = async {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        } => None,
    }
}

/// Makes the next group complete with these rewards, each with two steps of `version`.
pub(crate) async fn group(manager: &DataManager, rewards: &[f64], version: PolicyVersion) {
    for reward in rewards {
        let request = request(manager).await;
        let answer = answer(&request, scored(*reward), 2, version);
        manager.ingest(answer).await.unwrap();
    }
}
