//! One line of `trajectories.jsonl`.

use std::{
    fs,
    io::Cursor,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail, ensure};
use dart_core::{
    Decision, Frame, GroupId, Observation, Outcome, Size, Step, StopReason, Task, Trajectory,
    TrajectoryId, UiElement,
};
use image::{ImageFormat, ImageReader, Limits, RgbImage};
use serde::{Deserialize, Serialize};

/// The format that this program writes and reads.
pub(super) const FORMAT: u32 = 1;

/// Longest line that is read, in bytes.
pub(super) const MAX_LINE: u64 = 256 << 20;

/// A trajectory as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    format: u32,
    id: TrajectoryId,
    group: GroupId,
    task: Task,
    seed: u64,
    instruction: String,
    outcome: Outcome,
    stop: StopReason,
    error: Option<String>,
    steps: Vec<StepLine>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepLine {
    image: String,
    last_action_error: Option<String>,
    ui: Option<Vec<UiElement>>,
    decision: Decision,
    decide_ms: f64,
    act_ms: f64,
}

impl Line {
    /// Writes the images of `trajectory` that `folder` lacks, and gives its line.
    pub(super) fn of(trajectory: &Trajectory, folder: &Path) -> Result<Self> {
        let mut steps = Vec::with_capacity(trajectory.steps.len());
        for step in &trajectory.steps {
            let ui = step.observation.ui.as_deref();
            steps.push(StepLine {
                image: write_image(&step.observation.frame, folder)?,
                last_action_error: step.observation.last_action_error.clone(),
                ui: ui.map(<[UiElement]>::to_vec),
                decision: step.decision.clone(),
                decide_ms: step.decide_ms,
                act_ms: step.act_ms,
            });
        }
        Ok(Self {
            format: FORMAT,
            id: trajectory.id,
            group: trajectory.group,
            task: (*trajectory.task).clone(),
            seed: trajectory.seed,
            instruction: trajectory.instruction.to_string(),
            outcome: trajectory.outcome,
            stop: trajectory.stop,
            error: trajectory.error.clone(),
            steps,
        })
    }

    /// The trajectory, with its images out of `folder`, checked.
    pub(super) fn into_trajectory(self, folder: &Path) -> Result<Trajectory> {
        ensure!(
            self.format == FORMAT,
            "has format {}, this program reads {FORMAT}",
            self.format
        );
        let mut steps = Vec::with_capacity(self.steps.len());
        for (index, line) in self.steps.into_iter().enumerate() {
            line.decision
                .validate()
                .with_context(|| format!("step {index}"))?;
            steps.push(Step {
                observation: Observation {
                    frame: read_image(&line.image, folder)?,
                    last_action_error: line.last_action_error,
                    ui: line.ui.map(Arc::from),
                },
                decision: line.decision,
                decide_ms: line.decide_ms,
                act_ms: line.act_ms,
            });
        }
        let trajectory = Trajectory {
            id: self.id,
            group: self.group,
            task: Arc::new(self.task),
            seed: self.seed,
            instruction: self.instruction.into(),
            steps,
            outcome: self.outcome,
            stop: self.stop,
            error: self.error,
        };
        check(&trajectory)?;
        Ok(trajectory)
    }
}

/// Refuses what training could not use, or no run could have made.
fn check(trajectory: &Trajectory) -> Result<()> {
    let (steps, horizon) = (trajectory.steps.len(), trajectory.task.horizon);
    ensure!(horizon > 0, "task.horizon is 0: no step fits into it");
    ensure!(
        steps <= horizon as usize,
        "{steps} steps are more than task.horizon ({horizon})"
    );
    let judged = trajectory.outcome != Outcome::Aborted;
    ensure!(
        steps > 0 || !judged,
        "outcome: it is judged, but has no steps"
    );
    for (index, step) in trajectory.steps.iter().enumerate() {
        check_step(index, steps, step).with_context(|| format!("step {index}"))?;
    }
    Ok(())
}

fn check_step(index: usize, steps: usize, step: &Step) -> Result<()> {
    let decision = &step.decision;
    let temperature = decision.temperature;
    ensure!(
        temperature.is_finite() && temperature >= 0.0,
        "decision.temperature is {temperature}, not a number of 0 or more"
    );
    // A prompt shows the steps up to its own.
    let shown = decision
        .prompt
        .images
        .iter()
        .map(|span| span.image as usize);
    if let Some(image) = shown.into_iter().find(|image| *image > index) {
        bail!("decision.prompt.images: image {image} is of no step before it, of {steps} in all");
    }
    for (name, millis) in [("decide_ms", step.decide_ms), ("act_ms", step.act_ms)] {
        ensure!(
            millis.is_finite() && millis >= 0.0,
            "{name} is {millis}, not a number of 0 or more"
        );
    }
    Ok(())
}

/// Refuses tokens that the model of the run does not have.
pub(super) fn check_tokens(trajectory: &Trajectory, vocabulary: usize) -> Result<()> {
    for (index, step) in trajectory.steps.iter().enumerate() {
        let decision = &step.decision;
        let tokens = [
            ("prompt.token_ids", &decision.prompt.token_ids),
            ("token_ids", &decision.token_ids),
        ];
        for (name, ids) in tokens {
            if let Some(token) = ids.iter().find(|token| **token as usize >= vocabulary) {
                bail!(
                    "step {index}: decision.{name} has the token {token}; the model of this run has \
                     {vocabulary}, 0 to {}",
                    vocabulary.saturating_sub(1)
                );
            }
        }
    }
    Ok(())
}

/// Where an image of this hash lies, relative to the folder.
pub(super) fn image_name(frame: &Frame) -> String {
    format!("images/{}.png", blake3::hash(frame.rgb()).to_hex())
}

fn write_image(frame: &Frame, folder: &Path) -> Result<String> {
    let name = image_name(frame);
    let path = folder.join(&name);
    if path.exists() {
        return Ok(name);
    }
    let size = frame.size();
    let picture = RgbImage::from_raw(size.width, size.height, frame.rgb().to_vec())
        .context("a frame has three bytes for each pixel")?;
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, ImageFormat::Png)?;
    // Under another name first: what is there is whole.
    let unfinished = folder.join("images/.unfinished");
    fs::write(&unfinished, bytes.into_inner())?;
    fs::rename(&unfinished, &path)?;
    Ok(name)
}

/// The image of a line, whose name is data: it must not lead out of the folder.
fn read_image(name: &str, folder: &Path) -> Result<Frame> {
    let stem = name
        .strip_prefix("images/")
        .and_then(|name| name.strip_suffix(".png"));
    let hash = stem.and_then(|stem| blake3::Hash::from_hex(stem).ok());
    let hash = hash.with_context(|| format!("`{name}` names no image"))?;
    let path: PathBuf = folder.join(name);
    let mut reader =
        ImageReader::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    reader.set_format(ImageFormat::Png);
    let mut limits = Limits::default();
    limits.max_alloc = Some(4 * Frame::MAX_PIXELS as u64);
    reader.limits(limits);
    let picture = reader
        .decode()
        .with_context(|| format!("{} is no PNG", path.display()))?
        .into_rgb8();
    let size = Size::new(picture.width(), picture.height());
    let frame = Frame::new(size, picture.into_raw())?;
    if blake3::hash(frame.rgb()) != hash {
        bail!(
            "{} does not hold the image that its name says",
            path.display()
        );
    }
    Ok(frame)
}
