//! Trajectories as rows, and back.

use std::sync::Arc;

use dart_core::{
    Decision, Frame, GroupId, ImageSpan, Observation, Outcome, PolicyVersion, Prompt, Reward, Size,
    Step, StopReason, Trajectory, TrajectoryId, UiElement,
};
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Row, sqlite::SqliteRow};

use super::{
    blobs::{Blobs, FrameHash, StoredImage},
    digest::Digest,
};
use crate::error::{CurationError, Result};

/// Steps of one trajectory at most.
const MAX_STEPS: usize = 10_000;
/// Tokens of one prompt or response at most.
const MAX_TOKENS: usize = 1 << 20;
/// Bytes of one text at most, the listing of a user interface included.
const MAX_TEXT: usize = 4 << 20;

/// A trajectory whose images are files and whose other parts are ready to be bound.
#[derive(Debug)]
pub(super) struct TrajectoryRecord {
    pub(super) body: Arc<Trajectory>,
    pub(super) task_digest: [u8; 32],
    pub(super) task_json: String,
    pub(super) outcome: &'static str,
    pub(super) reward: Option<f64>,
    pub(super) stop: String,
    pub(super) steps: Vec<StepRecord>,
    pub(super) digest: [u8; 32],
}

#[derive(Debug)]
pub(super) struct StepRecord {
    pub(super) frame: StoredImage,
    pub(super) ui: Option<String>,
    pub(super) action: String,
    pub(super) prompt: Vec<u8>,
    pub(super) images: Vec<u8>,
    pub(super) tokens: Vec<u8>,
    pub(super) log_probs: Vec<u8>,
    pub(super) entropies: Option<Vec<u8>>,
    pub(super) log_prob_kind: String,
}

impl TrajectoryRecord {
    /// Checks the sizes, stores the images and writes out the rest. Blocking.
    pub(super) fn of(body: Arc<Trajectory>, blobs: &Blobs) -> Result<Self> {
        check_sizes(&body)?;
        let task_json = json(&body, "task", &*body.task)?;
        let (outcome, reward) = match body.outcome {
            Outcome::Scored { reward } => ("scored", Some(reward.value())),
            Outcome::PolicyFault => ("policy-fault", None),
            Outcome::Aborted => ("aborted", None),
        };
        let steps = body
            .steps
            .iter()
            .map(|step| StepRecord::of(&body, step, blobs));
        let mut record = Self {
            task_digest: *blake3::hash(task_json.as_bytes()).as_bytes(),
            task_json,
            outcome,
            reward,
            stop: name(&body, "stop reason", &body.stop)?,
            steps: steps.collect::<Result<_>>()?,
            digest: [0; 32],
            body,
        };
        record.digest = Digest::of_record(&record);
        Ok(record)
    }
}

impl StepRecord {
    fn of(body: &Trajectory, step: &Step, blobs: &Blobs) -> Result<Self> {
        let Decision {
            action,
            prompt,
            token_ids,
            rollout_log_probs,
            entropies,
            log_prob_kind,
            ..
        } = &step.decision;
        let ui = step.observation.ui.as_deref();
        let ui = ui
            .map(|elements| json(body, "user interface", elements))
            .transpose()?;
        if ui.as_ref().is_some_and(|ui| ui.len() > MAX_TEXT) {
            return Err(too_large(body, "the listing of a user interface"));
        }
        let spans = prompt
            .images
            .iter()
            .flat_map(|span| [span.image, span.start, span.len]);
        let floats = |values: &[f32]| pack(values.iter().map(|value| value.to_bits()));
        Ok(Self {
            frame: blobs.store(&step.observation.frame)?,
            ui,
            action: json(body, "action", action)?,
            prompt: pack(prompt.token_ids.iter().copied()),
            images: pack(spans),
            tokens: pack(token_ids.iter().copied()),
            log_probs: floats(rollout_log_probs),
            entropies: entropies.as_deref().map(floats),
            log_prob_kind: name(body, "kind of log-probs", log_prob_kind)?,
        })
    }
}

/// A stored step before its image is read.
#[derive(Debug)]
pub(super) struct StoredStep {
    frame: FrameHash,
    /// The image, if it is in the database.
    packed: Option<Vec<u8>>,
    size: Size,
    last_action_error: Option<String>,
    ui: Option<Arc<[UiElement]>>,
    decision: Decision,
    decide_ms: f64,
    act_ms: f64,
}

impl StoredStep {
    /// Reads one row of `steps`.
    pub(super) fn of_row(id: TrajectoryId, row: &SqliteRow) -> Result<Self> {
        let floats = |bytes: &[u8]| -> Result<Arc<[f32]>> {
            Ok(unpack(id, bytes)?.into_iter().map(f32::from_bits).collect())
        };
        let frame: &[u8] = row.try_get("frame")?;
        let ui: Option<&str> = row.try_get("ui")?;
        let ui: Option<Vec<UiElement>> =
            ui.map(|ui| parse(id, "user interface", ui)).transpose()?;
        let entropies: Option<&[u8]> = row.try_get("entropies")?;
        let spans = unpack(id, row.try_get("images")?)?;
        let images = spans.chunks_exact(3).map(|span| ImageSpan {
            image: span[0],
            start: span[1],
            len: span[2],
        });
        Ok(Self {
            frame: frame
                .try_into()
                .map_err(|error| malformed(id, "image name", error))?,
            packed: row.try_get("image")?,
            size: Size::new(row.try_get("width")?, row.try_get("height")?),
            last_action_error: row.try_get("last_action_error")?,
            ui: ui.map(Arc::from),
            decision: Decision {
                action: parse(id, "action", row.try_get("action")?)?,
                text: row.try_get("text")?,
                prompt: Prompt {
                    images: images.collect(),
                    token_ids: unpack(id, row.try_get("prompt")?)?.into(),
                },
                token_ids: unpack(id, row.try_get("tokens")?)?.into(),
                rollout_log_probs: floats(row.try_get("log_probs")?)?,
                entropies: entropies.map(floats).transpose()?,
                log_prob_kind: parse_name(id, "kind of log-probs", row.try_get("log_prob_kind")?)?,
                temperature: row.try_get::<f64, _>("temperature")? as f32,
                version: PolicyVersion(row.try_get::<i64, _>("version")? as u64),
                truncated: row.try_get("truncated")?,
            },
            decide_ms: row.try_get("decide_ms")?,
            act_ms: row.try_get("act_ms")?,
        })
    }

    /// Reads the image, unless the trajectory showed the same one before. Blocking.
    pub(super) fn with_frame(
        self,
        earlier: &[(FrameHash, Step)],
        blobs: &Blobs,
    ) -> Result<(FrameHash, Step)> {
        let same = earlier
            .iter()
            .find(|(hash, step)| *hash == self.frame && step.observation.frame.size() == self.size);
        let frame: Frame = match same {
            Some((_, step)) => step.observation.frame.clone(),
            None => blobs.load(&self.frame, self.size, self.packed.as_deref())?,
        };
        let step = Step {
            observation: Observation {
                frame,
                last_action_error: self.last_action_error,
                ui: self.ui,
            },
            decision: self.decision,
            decide_ms: self.decide_ms,
            act_ms: self.act_ms,
        };
        Ok((self.frame, step))
    }
}

/// A stored trajectory without its steps and its task.
#[derive(Debug)]
pub(super) struct StoredTrajectory {
    pub(super) seq: i64,
    pub(super) id: TrajectoryId,
    pub(super) group: GroupId,
    pub(super) seed: u64,
    pub(super) outcome: Outcome,
    pub(super) stop: StopReason,
}

impl StoredTrajectory {
    /// Reads the columns that every query over `trajectories` has.
    pub(super) fn of_row(row: &SqliteRow) -> Result<Self> {
        let id: &[u8] = row.try_get("id")?;
        let id = id
            .try_into()
            .map_err(|error| malformed(TrajectoryId(0), "id", error))?;
        let id = TrajectoryId(u128::from_be_bytes(id));
        let outcome = match row.try_get("outcome")? {
            "scored" => Outcome::Scored {
                reward: Reward::new(row.try_get("reward")?)
                    .map_err(|error| malformed(id, "reward", error))?,
            },
            "policy-fault" => Outcome::PolicyFault,
            _ => Outcome::Aborted,
        };
        Ok(Self {
            seq: row.try_get("seq")?,
            id,
            group: GroupId(row.try_get::<i64, _>("group_id")? as u64),
            seed: row.try_get::<i64, _>("seed")? as u64,
            outcome,
            stop: parse_name(id, "stop reason", row.try_get("stop")?)?,
        })
    }
}

/// Reads JSON.
pub(super) fn parse<T: DeserializeOwned>(
    trajectory: TrajectoryId,
    what: &'static str,
    json: &str,
) -> Result<T> {
    serde_json::from_str(json).map_err(|error| malformed(trajectory, what, error))
}

fn parse_name<T: DeserializeOwned>(id: TrajectoryId, what: &'static str, name: &str) -> Result<T> {
    let value = serde_json::Value::String(name.to_owned());
    serde_json::from_value(value).map_err(|error| malformed(id, what, error))
}

fn malformed(
    trajectory: TrajectoryId,
    what: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> CurationError {
    CurationError::Malformed {
        trajectory,
        what,
        source: source.into(),
    }
}

fn json<T: Serialize + ?Sized>(body: &Trajectory, what: &'static str, value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| malformed(body.id, what, error))
}

/// The serialised name of a variant without fields.
fn name<T: Serialize>(body: &Trajectory, what: &'static str, value: &T) -> Result<String> {
    Ok(json(body, what, value)?.trim_matches('"').to_owned())
}

fn pack(words: impl Iterator<Item = u32>) -> Vec<u8> {
    words.flat_map(u32::to_le_bytes).collect()
}

fn unpack(id: TrajectoryId, bytes: &[u8]) -> Result<Vec<u32>> {
    let (words, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() || words.len() > MAX_TOKENS {
        return Err(malformed(id, "array", "its length is wrong"));
    }
    Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

fn too_large(body: &Trajectory, what: &'static str) -> CurationError {
    CurationError::TooLarge {
        trajectory: body.id,
        what,
    }
}

fn check_sizes(body: &Trajectory) -> Result<()> {
    let long = |text: Option<&str>| text.is_some_and(|text| text.len() > MAX_TEXT);
    if body.steps.len() > MAX_STEPS {
        return Err(too_large(body, "the number of steps"));
    }
    if long(Some(&body.instruction)) || long(body.error.as_deref()) {
        return Err(too_large(body, "the instruction or the error"));
    }
    for Step {
        observation,
        decision,
        ..
    } in &body.steps
    {
        let tokens = [
            decision.prompt.token_ids.len(),
            decision.prompt.images.len() * 3,
            decision.token_ids.len(),
            decision.rollout_log_probs.len(),
        ];
        if tokens.into_iter().any(|count| count > MAX_TOKENS) {
            return Err(too_large(body, "a prompt or a response"));
        }
        if long(Some(&decision.text)) || long(observation.last_action_error.as_deref()) {
            return Err(too_large(body, "a text"));
        }
    }
    Ok(())
}
