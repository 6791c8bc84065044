//! The suite of [`Learner`]: one check for each line of its contract.

use dart_core::{
    Batch, Error, ErrorKind, Learner, PolicyVersion, Result, WeightsHandle, WeightsSource,
};

use crate::suite::{Checked, Failure, Settings, Verdict, ensure, ensure_kind, suite};

/// What the checks need to know about a learner. All of it is synchronous, as the learner is.
pub trait LearnerHarness: Sync {
    /// What is tested.
    type Learner: Learner;

    /// How to run the checks.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Makes a learner that takes at most `micro_batch` samples at a time; every call gives the
    /// same weights.
    fn make(&self, micro_batch: usize) -> Result<Self::Learner>;

    /// A batch for imitation with one sample.
    fn imitation(&self) -> Batch;

    /// A policy-gradient batch with one sample for each advantage, on-policy: its rollout
    /// log-probs are those of the learner's present weights. Responses differ in content and,
    /// where the policy allows it, in length.
    fn on_policy(&self, learner: &mut Self::Learner, advantages: &[f64]) -> Result<Batch>;

    /// Log-likelihood of each response of the batch under the learner's present weights.
    fn log_likelihood(&self, learner: &mut Self::Learner, batch: &Batch) -> Result<Vec<f64>>;

    /// By how much the change of a log-likelihood may depend on the split into micro-batches,
    /// as a fraction of the change. Covers rounding, which an adaptive optimizer magnifies.
    fn split_tolerance(&self) -> f64 {
        0.02
    }
}

suite! {
    $
    /// Makes one `#[test]` of each check of the learner suite, and `coverage`, in a module named
    /// `learner_conformance` or, with `mod name, harness`, otherwise.
    learner_conformance in learner for LearnerHarness:
    c01_every_step_raises_the_version_by_one,
    c02_zero_advantages_leave_the_weights,
    c03_imitation_raises_the_likelihood,
    c04_the_sign_of_the_advantage_decides,
    c05_micro_batches_do_not_matter,
    c06_mismatched_log_probs_are_refused,
    c07_a_restored_learner_goes_on_the_same,
    c08_export_is_stable_between_steps,
}

/// More than any batch here has.
const WHOLE: usize = 1 << 20;
const MIXED: [f64; 5] = [1.5, -0.5, 0.25, -1.0, -0.25];

fn digest<L: Learner>(learner: &L) -> Result<String, Failure> {
    Ok(learner.export()?.digest.to_string())
}

fn ensure_version<L: Learner>(learner: &L, version: u64, when: &str) -> Result<(), Failure> {
    let now = learner.version();
    ensure(
        now == PolicyVersion(version),
        format!("version {now} {when}, expected {version}"),
    )
}

/// Line 1. `step` raises `version` by one, skipped steps included.
pub async fn c01_every_step_raises_the_version_by_one<H: LearnerHarness>(h: &H) -> Checked {
    let mut learner = h.make(WHOLE)?;
    ensure_version(&learner, 0, "at first")?;
    let batches = [
        h.imitation(),
        h.on_policy(&mut learner, &[0.0, 0.0])?,
        h.on_policy(&mut learner, &MIXED)?,
    ];
    for (batch, version) in batches.iter().zip(1..) {
        let report = learner.step(batch)?;
        ensure_version(&learner, version, "after a step")?;
        ensure(
            report.version == learner.version(),
            format!("the report says version {}", report.version),
        )?;
    }
    Ok(Verdict::Passed)
}

/// Line 2. A batch in which every advantage is 0 leaves the weights as they were, and the step counts
/// as skipped.
pub async fn c02_zero_advantages_leave_the_weights<H: LearnerHarness>(h: &H) -> Checked {
    let mut learner = h.make(WHOLE)?;
    // With moments in the optimizer, which would go on moving the weights.
    let moving = h.on_policy(&mut learner, &MIXED)?;
    learner.step(&moving)?;
    let before = digest(&learner)?;
    let still = h.on_policy(&mut learner, &[0.0; 3])?;
    let report = learner.step(&still)?;
    ensure(digest(&learner)? == before, "the weights moved")?;
    ensure(report.skipped, "the step does not count as skipped")?;
    let mut empty = h.on_policy(&mut learner, &[1.0])?;
    empty.samples.clear();
    let report = learner.step(&empty)?;
    ensure(
        digest(&learner)? == before,
        "an empty batch moved the weights",
    )?;
    ensure(report.skipped, "an empty batch does not count as skipped")?;
    Ok(Verdict::Passed)
}

fn total<H: LearnerHarness>(
    h: &H,
    learner: &mut H::Learner,
    batch: &Batch,
) -> Result<f64, Failure> {
    Ok(h.log_likelihood(learner, batch)?.iter().sum())
}

/// Line 3. Imitation of one sample, repeated, raises its likelihood.
pub async fn c03_imitation_raises_the_likelihood<H: LearnerHarness>(h: &H) -> Checked {
    let mut learner = h.make(WHOLE)?;
    let batch = h.imitation();
    let before = total(h, &mut learner, &batch)?;
    for _ in 0..10 {
        let report = learner.step(&batch)?;
        ensure(!report.skipped, "an imitation step was skipped")?;
    }
    let after = total(h, &mut learner, &batch)?;
    ensure(
        after > before,
        format!("the log-likelihood went from {before} to {after}"),
    )?;
    Ok(Verdict::Passed)
}

/// Line 4. A positive advantage raises the likelihood of a response, a negative one lowers it.
pub async fn c04_the_sign_of_the_advantage_decides<H: LearnerHarness>(h: &H) -> Checked {
    for advantage in [1.0, -1.0] {
        let mut learner = h.make(WHOLE)?;
        let batch = h.on_policy(&mut learner, &[advantage])?;
        let before = total(h, &mut learner, &batch)?;
        learner.step(&batch)?;
        let after = total(h, &mut learner, &batch)?;
        ensure(
            (after - before) * advantage > 0.0,
            format!("advantage {advantage}: the log-likelihood went from {before} to {after}"),
        )?;
    }
    Ok(Verdict::Passed)
}

/// Line 5. The split into micro-batches does not change the result beyond rounding.
pub async fn c05_micro_batches_do_not_matter<H: LearnerHarness>(h: &H) -> Checked {
    let changes = |micro_batch: usize| -> Result<Vec<f64>, Failure> {
        let mut learner = h.make(micro_batch)?;
        let batch = h.on_policy(&mut learner, &MIXED)?;
        let before = h.log_likelihood(&mut learner, &batch)?;
        learner.step(&batch)?;
        let after = h.log_likelihood(&mut learner, &batch)?;
        Ok(after.iter().zip(before).map(|(a, b)| a - b).collect())
    };
    let whole = changes(WHOLE)?;
    let scale = whole.iter().fold(0.0, |top: f64, c| top.max(c.abs()));
    ensure(scale > 0.0, "the step changed nothing")?;
    // 2 leaves a micro-batch of another size at the end: means of means show there.
    for micro_batch in [1, 2, 3] {
        let split = changes(micro_batch)?;
        for (index, (split, whole)) in split.iter().zip(&whole).enumerate() {
            ensure(
                (split - whole).abs() <= h.split_tolerance() * scale,
                format!(
                    "in micro-batches of {micro_batch} the log-likelihood of sample {index} \
                     changes by {split}, in one piece by {whole}"
                ),
            )?;
        }
    }
    Ok(Verdict::Passed)
}

/// Makes log-probs of another length.
type Resize = fn(&[f32]) -> Vec<f32>;

/// Line 6. A sample whose log-probs do not match its response is `Protocol`; the weights stay as they
/// were.
pub async fn c06_mismatched_log_probs_are_refused<H: LearnerHarness>(h: &H) -> Checked {
    let mut learner = h.make(WHOLE)?;
    let before = digest(&learner)?;
    let good = h.on_policy(&mut learner, &MIXED)?;
    let lengths: [Resize; 3] = [
        |_| Vec::new(),
        |lps| lps[..lps.len() - 1].to_vec(),
        |lps| [lps, &[-0.1]].concat(),
    ];
    for (case, resize) in lengths.iter().enumerate() {
        let mut batch = good.clone();
        let Some(last) = batch.samples.last_mut() else {
            return Err("the harness gives an empty batch".into());
        };
        last.rollout_log_probs = resize(&last.rollout_log_probs).into();
        let what = format!("log-probs of the wrong length (case {case})");
        ensure_kind(learner.step(&batch), ErrorKind::Protocol, &what)?;
        ensure(
            digest(&learner)? == before,
            format!("{what} moved the weights"),
        )?;
    }
    Ok(Verdict::Passed)
}

fn scratch() -> Result<tempfile::TempDir, Failure> {
    tempfile::tempdir().map_err(|error| Failure(format!("no temporary directory: {error}")))
}

/// Line 7. `save` then `restore` gives the same weights, version and following steps, bit for bit (CPU).
pub async fn c07_a_restored_learner_goes_on_the_same<H: LearnerHarness>(h: &H) -> Checked {
    let mut learner = h.make(WHOLE)?;
    for _ in 0..2 {
        let batch = h.on_policy(&mut learner, &MIXED)?;
        learner.step(&batch)?;
    }
    let dir = scratch()?;
    learner.save(dir.path())?;
    let next = h.on_policy(&mut learner, &MIXED)?;
    let mut restored = h.make(WHOLE)?;
    restored.restore(dir.path())?;
    ensure_version(&restored, 2, "after restore")?;
    ensure(
        digest(&restored)? == digest(&learner)?,
        "other weights after restore",
    )?;
    for step in 1..=2 {
        let reports = (learner.step(&next)?, restored.step(&next)?);
        ensure(
            digest(&restored)? == digest(&learner)?,
            format!("other weights {step} steps after restore"),
        )?;
        ensure(
            reports.0.metrics.get("loss") == reports.1.metrics.get("loss"),
            format!("another loss {step} steps after restore"),
        )?;
    }
    ensure_version(&restored, 4, "two steps after restore")?;
    let nowhere = restored.restore(&dir.path().join("missing"));
    ensure(
        nowhere.is_err(),
        "restored from a directory that is not there",
    )?;
    ensure_version(&restored, 4, "after a failed restore")?;
    Ok(Verdict::Passed)
}

/// Line 8. `export` gives the version and weights of now, and the same digest until the next step.
pub async fn c08_export_is_stable_between_steps<H: LearnerHarness>(h: &H) -> Checked {
    let mut learner = h.make(WHOLE)?;
    let first = check_export(&learner)?;
    let again = check_export(&learner)?;
    ensure(
        first.digest == again.digest,
        "another digest without a step",
    )?;
    let batch = h.on_policy(&mut learner, &MIXED)?;
    ensure(
        digest(&learner)? == *first.digest,
        "scoring changed the digest",
    )?;
    learner.step(&batch)?;
    let stepped = check_export(&learner)?;
    ensure(
        stepped.digest != first.digest,
        "the same digest after a step",
    )?;
    let other = check_export(&h.make(WHOLE)?)?;
    ensure(
        other.digest == first.digest,
        "another digest of the same weights",
    )?;
    Ok(Verdict::Passed)
}

/// An export whose version and digest are right.
fn check_export<L: Learner>(learner: &L) -> Result<WeightsHandle, Failure> {
    let handle = learner
        .export()
        .map_err(|error: Error| Failure::from(error))?;
    ensure(
        handle.version == learner.version(),
        format!(
            "exported version {} of {}",
            handle.version,
            learner.version()
        ),
    )?;
    let hexadecimal =
        handle.digest.len() == 64 && handle.digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    ensure(hexadecimal, format!("{:?} is no digest", handle.digest))?;
    if let WeightsSource::Memory(bytes) = &handle.source {
        let digest = blake3::hash(bytes).to_hex();
        ensure(
            digest.as_str() == &*handle.digest,
            "the digest is not BLAKE3 of the bytes",
        )?;
    }
    Ok(handle)
}
