//! Examples of frames, inputs, trajectories and batches.

use std::sync::Arc;

use dart_core::{
    Action, Batch, BatchId, BatchImage, Decision, Frame, GroupId, ImageSpan, LogProbKind,
    Objective, Observation, Outcome, ParsedAction, PastStep, PolicyInput, PolicyVersion, Prompt,
    Rect, RolloutRequest, Sample, SampleOrigin, Sampling, ScreenPx, Size, Step, StopReason,
    Trajectory, TrajectoryId,
};

/// A dark frame with a red square.
///
/// # Panics
/// If a side of `size` is 0.
pub fn frame(size: Size, square: Rect) -> Frame {
    let pixels = (0..size.height as i32).flat_map(|y| (0..size.width as i32).map(move |x| (x, y)));
    let rgb: Vec<u8> = pixels
        .flat_map(|(x, y)| {
            if square.contains(ScreenPx::new(x, y)) {
                [200, 30, 30]
            } else {
                [40, 40, 40]
            }
        })
        .collect();
    match Frame::new(size, rgb) {
        Ok(frame) => frame,
        Err(error) => panic!("not a frame: {error}"),
    }
}

/// Policy inputs of an episode of `steps` steps; the square is in another place at each. Input `n`
/// has `n` past steps, whose responses are the ones given.
pub fn policy_inputs(size: Size, steps: u32, response: &[u32]) -> Vec<PolicyInput> {
    let side = (size.width / 4).max(1);
    let at = |step: u32| {
        let x = (step * side) % (size.width - side + 1);
        let y = (step * side * 2) % (size.height - side.min(size.height) + 1);
        frame(size, Rect::new(x as i32, y as i32, side, side))
    };
    let past = |step| PastStep {
        frame: at(step),
        response: response.into(),
    };
    (0..steps)
        .map(|step| PolicyInput {
            instruction: "Click the red square.".into(),
            history: (0..step).map(past).collect(),
            observation: Observation::of(at(step)),
            sampling: Sampling::GREEDY,
        })
        .collect()
}

/// A decision of two tokens on the image of this step.
pub fn decision(step: u32, version: PolicyVersion, temperature: f32) -> Decision {
    Decision {
        action: ParsedAction::Valid(Action::Wait { millis: 1 }),
        text: "wait()".into(),
        prompt: Prompt {
            token_ids: vec![1, 9, 2].into(),
            images: vec![ImageSpan {
                image: step,
                start: 1,
                len: 1,
            }],
        },
        token_ids: vec![3 + step % 4, 7].into(),
        rollout_log_probs: vec![-0.5 - 0.1 * (step % 5) as f32, -0.25].into(),
        entropies: Some(vec![0.9 + 0.01 * step as f32, 0.2].into()),
        log_prob_kind: LogProbKind::AfterTemperature,
        temperature,
        version,
        truncated: false,
    }
}

/// What comes back for a request: `steps` steps decided under `version`. An aborted one has no
/// steps beyond those given and says why.
pub fn trajectory(
    request: &RolloutRequest,
    version: PolicyVersion,
    steps: u32,
    outcome: Outcome,
) -> Trajectory {
    let size = Size::new(8, 8);
    let step = |index: u32| Step {
        observation: Observation::of(frame(size, Rect::new(index as i32 % 8, 0, 1, 1))),
        decision: decision(index, version, request.temperature),
        decide_ms: 2.0,
        act_ms: 1.0,
    };
    let aborted = outcome == Outcome::Aborted;
    Trajectory {
        id: request.trajectory,
        group: request.group,
        task: request.task.clone(),
        seed: request.seed,
        instruction: "Click the red square.".into(),
        steps: (0..steps).map(step).collect(),
        outcome,
        stop: if aborted {
            StopReason::EnvironmentError
        } else {
            StopReason::Completed
        },
        error: aborted.then(|| "the peer went away".into()),
    }
}

/// One sample of a batch for fakes: image `image`, response `token` and the end token.
pub fn sample(image: u32, token: u32, end: u32, advantage: f64) -> Sample {
    Sample {
        trajectory: TrajectoryId(u128::from(image) + 1),
        step: 0,
        group: GroupId(0),
        origin: SampleOrigin::Rollout,
        prompt: Prompt {
            token_ids: vec![1, 9].into(),
            images: vec![ImageSpan {
                image,
                start: 1,
                len: 1,
            }],
        },
        response: vec![token, end].into(),
        rollout_log_probs: vec![-1.0, 0.0].into(),
        log_prob_kind: LogProbKind::AfterTemperature,
        temperature: 1.0,
        version: PolicyVersion(0),
        advantages: vec![advantage; 2].into(),
    }
}

/// A batch of these samples on these frames.
pub fn batch(objective: Objective, frames: Vec<Frame>, samples: Vec<Sample>) -> Batch {
    let image = |frame| BatchImage { frame, ui: None };
    Batch {
        id: BatchId(0),
        objective,
        images: frames.into_iter().map(image).collect(),
        samples,
    }
}

/// A request for one rollout of the fakes' task.
pub fn request(trajectory: u128, group: u64, seed: u64) -> RolloutRequest {
    RolloutRequest {
        trajectory: TrajectoryId(trajectory),
        group: GroupId(group),
        task: Arc::new(crate::fakes::task(10)),
        seed,
        step_limit: 10,
        temperature: 1.0,
        sampling_seed: trajectory as u64,
    }
}
