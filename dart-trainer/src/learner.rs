//! [`GrpoLearner`]: turns batches into new weights.

use std::{path::Path, sync::Arc};

use dart_core::{
    Batch, Learner, LearnerReport, Objective, PolicyVersion, WeightsHandle, WeightsSource,
};
use dart_policy::TrainableModel;

use crate::{
    Published, TrainerConfig,
    accumulate::Accumulated,
    average::Average,
    error::Result,
    gradients::Gradients,
    handle::ScoringLearner,
    optimizer::{Optimizer, Rates},
    pass::{Computed, Passes},
    plan::{clusters, plan},
    state::{self, Progress},
    update::{Update, update},
    validate::check_batch,
    workers::Workers,
};

/// The learner of DART: imitation, then step-wise GRPO.
///
/// It computes on threads of its own with large stacks, so it may be called from any thread; the
/// call blocks until the result is there. Results repeat bit for bit on the CPU as long as the
/// settings, `threads` included, are the same.
///
/// Optimizer state belongs to one objective: it starts anew when the objective changes, and
/// gradients that wait for their optimizer step are dropped. All of it is in what `save` writes.
#[derive(Debug)]
pub struct GrpoLearner<M> {
    pub(crate) model: Arc<M>,
    reference: Option<Arc<M>>,
    pub(crate) config: TrainerConfig,
    pub(crate) workers: Workers,
    optimizer: Optimizer,
    /// Gradients that wait for an optimizer step.
    accumulated: Accumulated,
    average: Option<Average>,
    pub(crate) progress: Progress,
}

impl<M: TrainableModel> GrpoLearner<M> {
    /// A learner at version 0.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if a setting makes no sense;
    /// [`Internal`](dart_core::ErrorKind::Internal) if a parameter is not f32.
    pub fn new(model: M, config: TrainerConfig) -> dart_core::Result<Self> {
        config.validate()?;
        state::check_parameters(model.parameters())?;
        let threads = config.threads.max(config.imitation.threads);
        Ok(Self {
            model: Arc::new(model),
            reference: None,
            config,
            workers: Workers::start(threads)?,
            optimizer: Optimizer::default(),
            accumulated: Accumulated::default(),
            average: None,
            progress: Progress::default(),
        })
    }

    /// The model, whose weights change with every step.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The settings.
    pub fn config(&self) -> &TrainerConfig {
        &self.config
    }

    /// Makes the weights of now the reference of the KL term. Without this call the reference is
    /// taken when the first policy gradient is; it stays the same from then on.
    pub fn freeze_reference(&mut self) -> dart_core::Result<()> {
        self.reference = Some(Arc::new(self.model.deep_copy()?));
        Ok(())
    }

    /// Log-probs of each sample's response under the weights of now, at the sample's temperature
    /// (1 for demonstrations). Advantages and recorded log-probs are not looked at.
    pub fn score(&self, batch: &Batch) -> dart_core::Result<Vec<Vec<f32>>> {
        Ok(self.scores(batch)?)
    }

    fn scores(&self, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        let mut batch = batch.clone();
        for sample in &mut batch.samples {
            // Demonstrations come without, or with zeros.
            sample.rollout_log_probs = vec![0.0; sample.response.len()].into();
            sample.advantages = vec![0.0; sample.response.len()].into();
        }
        check_batch(&batch, &self.config)?;
        let all: Vec<usize> = (0..batch.samples.len()).collect();
        let imitation = &self.config.imitation;
        let (threads, limit) = (imitation.threads, imitation.micro_batch_samples);
        let plan = plan(&batch, &clusters(&batch, &all), threads, limit);
        let statistics = self.passes(&Arc::new(batch)).statistics(plan)?;
        let log_probs = |rows: Vec<dart_kernels::RowStats>| {
            rows.into_iter().map(|row| row.log_prob as f32).collect()
        };
        Ok(statistics.into_iter().map(log_probs).collect())
    }

    pub(crate) fn passes<'a>(&'a self, batch: &'a Arc<Batch>) -> Passes<'a, M> {
        Passes {
            model: &self.model,
            batch,
            workers: &self.workers,
        }
    }

    /// The reference, taken now if there is none.
    pub(crate) fn reference(&mut self) -> Result<&Arc<M>> {
        let reference = match self.reference.take() {
            Some(reference) => reference,
            None => Arc::new(self.model.deep_copy()?),
        };
        Ok(self.reference.insert(reference))
    }

    /// Starts the average of the weights, if there is to be one.
    pub(crate) fn begin_average(&mut self) -> Result<()> {
        if self.config.average.decay == 0.0 {
            self.average = None;
        } else if self.average.is_none() {
            self.average = Some(Average::of(self.model.parameters())?);
        }
        Ok(())
    }

    /// One optimizer step, unless the guard refuses it.
    pub(crate) fn apply(&mut self, computed: &Computed, rates: Rates) -> Result<Update> {
        if !computed.loss.is_finite() {
            return Ok(refused(computed.gradients.norm()));
        }
        self.take(&computed.gradients, rates)
    }

    /// Whether gradients are summed up. A sum from a checkpoint is finished even if one batch is
    /// enough by now.
    pub(crate) const fn accumulates(&self) -> bool {
        self.config.accumulate_batches > 1 || self.accumulated.batches > 0
    }

    /// Takes in the gradient of a batch, which is divided by `count`; every so many batches one
    /// optimizer step. A batch whose numbers are not finite is left out, and the others count.
    pub(crate) fn accumulate(
        &mut self,
        computed: &Computed,
        count: u64,
        mut rates: Rates,
    ) -> Result<Update> {
        let norm = computed.gradients.norm();
        let finite = computed.loss.is_finite() && norm.is_finite();
        self.accumulated.batches += 1;
        if finite {
            self.accumulated.add(computed.gradients.clone(), count);
        }
        let part = if finite {
            Update {
                grad_norm: norm,
                pending: norm > 0.0,
                ..Update::default()
            }
        } else {
            refused(norm)
        };
        if self.accumulated.batches < self.config.accumulate_batches {
            return Ok(part);
        }
        let sum = std::mem::take(&mut self.accumulated);
        rates.gradient_scale = sum.factor();
        let update = self.take(&sum.gradients, rates)?;
        Ok(Update {
            not_finite: update.not_finite || part.not_finite,
            ..update
        })
    }

    fn take(&mut self, gradients: &Gradients, rates: Rates) -> Result<Update> {
        let parameters = self.model.parameters();
        let update = update(&mut self.optimizer, parameters, gradients, rates)?;
        if !update.applied {
            return Ok(update);
        }
        self.progress.stage_steps += 1;
        if self.progress.stage == Some(Objective::PolicyGradient)
            && let Some(average) = &mut self.average
        {
            average.follow(parameters, self.config.average.decay)?;
        }
        Ok(update)
    }

    fn take_step(&mut self, batch: &Batch) -> Result<LearnerReport> {
        check_batch(batch, &self.config)?;
        if self.progress.stage != Some(batch.objective) {
            self.progress.stage = Some(batch.objective);
            self.progress.stage_steps = 0;
            self.optimizer = Optimizer::default();
            self.accumulated = Accumulated::default();
        }
        let batch = Arc::new(batch.clone());
        let (mut metrics, tally) = match batch.objective {
            Objective::Imitation => self.imitate(&batch)?,
            Objective::PolicyGradient => self.improve(&batch)?,
        };
        self.progress.version = self.progress.version.next();
        self.progress.not_finite += tally.not_finite();
        if tally.not_finite() > 0 {
            tracing::warn!(
                batch = batch.id.0,
                total = self.progress.not_finite,
                "skipped an optimizer step: loss or gradient is not finite"
            );
        }
        metrics.insert("not_finite_total", self.progress.not_finite as f64);
        Ok(LearnerReport {
            version: self.progress.version,
            skipped: tally.skipped(),
            metrics,
        })
    }

    fn write(&self, dir: &Path) -> Result<()> {
        let parameters = self.model.parameters();
        state::write_weights(&dir.join(state::WEIGHTS), &*self.model, None)?;
        state::write_optimizer(&dir.join(state::OPTIMIZER), &self.optimizer)?;
        if let Some(reference) = &self.reference {
            state::write_weights(&dir.join(state::REFERENCE), &**reference, None)?;
        }
        if let Some(average) = &self.average {
            state::write_weights(&dir.join(state::AVERAGE), &*self.model, Some(average))?;
        }
        if self.accumulated.batches > 0 {
            let path = dir.join(state::ACCUMULATED);
            state::write_accumulated(&path, &self.accumulated, parameters)?;
        }
        let steps = self.optimizer.moments.iter();
        let steps = steps.map(|(name, m)| (name.clone(), m.steps)).collect();
        let saved = state::Saved {
            format: state::FORMAT,
            progress: self.progress,
            has_reference: self.reference.is_some(),
            has_average: self.average.is_some(),
            accumulated_batches: self.accumulated.batches,
            accumulated_count: self.accumulated.count,
            optimizer: self.config.optimizer.kind(),
            optimizer_steps: steps,
        };
        state::write_progress(&dir.join(state::PROGRESS), &saved)
    }

    fn read(&mut self, dir: &Path) -> Result<()> {
        let saved = state::read_progress(&dir.join(state::PROGRESS))?;
        let parameters = self.model.parameters();
        // Everything is read and checked before anything is changed.
        let weights = state::read_weights(&dir.join(state::WEIGHTS), parameters)?;
        let mut optimizer = state::read_optimizer(&dir.join(state::OPTIMIZER), &saved, parameters)?;
        if saved.optimizer != self.config.optimizer.kind() && !optimizer.moments.is_empty() {
            tracing::warn!("the moments are another optimizer's and begin anew");
            optimizer = Optimizer::default();
        }
        let accumulated =
            state::read_accumulated(&dir.join(state::ACCUMULATED), &saved, parameters)?;
        let mut average = None;
        if saved.has_average {
            let values = state::read_weights(&dir.join(state::AVERAGE), parameters)?;
            average = Some(Average::from_tensors(&values)?);
        }
        let mut reference = None;
        if saved.has_reference {
            let copy = self.model.deep_copy()?;
            let values = state::read_weights(&dir.join(state::REFERENCE), parameters)?;
            state::set_weights(copy.parameters(), &values)?;
            reference = Some(Arc::new(copy));
        }
        state::set_weights(parameters, &weights)?;
        self.optimizer = optimizer;
        self.accumulated = accumulated;
        self.average = average;
        self.reference = reference;
        self.progress = saved.progress;
        Ok(())
    }

    fn publish(&self) -> Result<WeightsHandle> {
        let average = match self.config.average.publish {
            Published::Current => None,
            Published::Average => self.average.as_ref(),
        };
        let bytes = state::encode_weights(&*self.model, average)?;
        Ok(WeightsHandle {
            version: self.progress.version,
            digest: blake3::hash(&bytes).to_hex().as_str().into(),
            source: WeightsSource::Memory(bytes.into()),
        })
    }
}

/// What becomes of a loss or gradient that is not finite.
fn refused(grad_norm: f64) -> Update {
    Update {
        grad_norm,
        not_finite: true,
        ..Update::default()
    }
}

impl<M: TrainableModel> Learner for GrpoLearner<M> {
    fn step(&mut self, batch: &Batch) -> dart_core::Result<LearnerReport> {
        Ok(self.take_step(batch)?)
    }

    fn version(&self) -> PolicyVersion {
        self.progress.version
    }

    fn export(&self) -> dart_core::Result<WeightsHandle> {
        Ok(self.publish()?)
    }

    fn save(&self, dir: &Path) -> dart_core::Result<()> {
        Ok(self.write(dir)?)
    }

    fn restore(&mut self, dir: &Path) -> dart_core::Result<()> {
        Ok(self.read(dir)?)
    }
}

impl<M: TrainableModel> ScoringLearner for GrpoLearner<M> {
    fn score(&mut self, batch: &Batch) -> dart_core::Result<Vec<Vec<f32>>> {
        Ok(self.scores(batch)?)
    }
}
