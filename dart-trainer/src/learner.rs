//! [`GrpoLearner`]: turns batches into new weights.

use std::{path::Path, sync::Arc};

use dart_core::{
    Batch, Learner, LearnerReport, Objective, PolicyVersion, WeightsHandle, WeightsSource,
};
use dart_policy::TrainableModel;

use crate::{
    TrainerConfig,
    adamw::{AdamW, Rates},
    error::Result,
    handle::ScoringLearner,
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
/// Optimizer state belongs to one objective: it starts anew when the objective changes.
#[derive(Debug)]
pub struct GrpoLearner<M> {
    pub(crate) model: Arc<M>,
    reference: Option<Arc<M>>,
    pub(crate) config: TrainerConfig,
    pub(crate) workers: Workers,
    adam: AdamW,
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
            adam: AdamW::default(),
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

    /// One optimizer step, unless the guard refuses it.
    pub(crate) fn apply(&mut self, computed: &Computed, rates: (Rates, f64)) -> Result<Update> {
        let update = update(&mut self.adam, self.model.parameters(), computed, rates)?;
        self.progress.stage_steps += u64::from(update.applied);
        Ok(update)
    }

    fn take_step(&mut self, batch: &Batch) -> Result<LearnerReport> {
        check_batch(batch, &self.config)?;
        if self.progress.stage != Some(batch.objective) {
            self.progress.stage = Some(batch.objective);
            self.progress.stage_steps = 0;
            self.adam = AdamW::default();
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
        state::write_weights(&dir.join(state::WEIGHTS), &*self.model)?;
        state::write_optimizer(&dir.join(state::OPTIMIZER), &self.adam)?;
        if let Some(reference) = &self.reference {
            state::write_weights(&dir.join(state::REFERENCE), &**reference)?;
        }
        let steps = self.adam.moments.iter();
        let steps = steps.map(|(name, m)| (name.clone(), m.steps)).collect();
        let saved = state::Saved {
            format: state::FORMAT,
            progress: self.progress,
            has_reference: self.reference.is_some(),
            optimizer_steps: steps,
        };
        state::write_progress(&dir.join(state::PROGRESS), &saved)
    }

    fn read(&mut self, dir: &Path) -> Result<()> {
        let saved = state::read_progress(&dir.join(state::PROGRESS))?;
        let parameters = self.model.parameters();
        // Everything is read and checked before anything is changed.
        let weights = state::read_weights(&dir.join(state::WEIGHTS), parameters)?;
        let adam = state::read_optimizer(&dir.join(state::OPTIMIZER), &saved, parameters)?;
        let reference = if saved.has_reference {
            let reference = self.model.deep_copy()?;
            let values = state::read_weights(&dir.join(state::REFERENCE), parameters)?;
            state::set_weights(reference.parameters(), &values)?;
            Some(Arc::new(reference))
        } else {
            None
        };
        state::set_weights(parameters, &weights)?;
        self.adam = adam;
        self.reference = reference;
        self.progress = saved.progress;
        Ok(())
    }

    fn publish(&self) -> Result<WeightsHandle> {
        let bytes = state::encode_weights(&*self.model)?;
        Ok(WeightsHandle {
            version: self.progress.version,
            digest: blake3::hash(&bytes).to_hex().as_str().into(),
            source: WeightsSource::Memory(bytes.into()),
        })
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
