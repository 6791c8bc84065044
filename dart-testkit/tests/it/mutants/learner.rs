//! Learners that break one line each.

use std::path::Path;

use dart_core::{
    Batch, Learner, LearnerReport, Objective, PolicyVersion, Result, Sample, WeightsHandle,
};
use dart_testkit::{
    fakes::FakeLearner,
    learner::{self, LearnerHarness},
};

use super::Expectations;
use crate::learner::Toy;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    CountsNoSkippedSteps,
    MovesWithoutAdvantage,
    HidesSkippedSteps,
    UnlearnsDemonstrations,
    IgnoresTheSign,
    AveragesMicroBatches,
    TakesAnyLogProbs,
    SavesNoMomentum,
    RestoresFromNowhere,
    ExportsOldWeights,
    InventsDigests,
}

fn bend(sample: &mut Sample, change: impl Fn(f64) -> f64) {
    sample.advantages = sample.advantages.iter().map(|a| change(*a)).collect();
}

struct Mutant {
    inner: FakeLearner,
    flaw: Flaw,
    micro_batch: usize,
    uncounted: u64,
    first_export: Option<WeightsHandle>,
}

impl Mutant {
    /// The batch that is trained on in place of the given one.
    fn bent(&self, batch: &Batch) -> Batch {
        let mut batch = batch.clone();
        let imitation = batch.objective == Objective::Imitation;
        let samples = batch.samples.len();
        for (index, sample) in batch.samples.iter_mut().enumerate() {
            match self.flaw {
                Flaw::MovesWithoutAdvantage => bend(sample, |a| a + 1e-6),
                Flaw::UnlearnsDemonstrations if imitation => bend(sample, |_| -1.0),
                Flaw::IgnoresTheSign => bend(sample, f64::abs),
                Flaw::AveragesMicroBatches if self.micro_batch < samples => {
                    let first = index - index % self.micro_batch;
                    let size = self.micro_batch.min(samples - first);
                    bend(sample, |a| a * 3.0 / size as f64);
                }
                Flaw::TakesAnyLogProbs => {
                    sample.rollout_log_probs = vec![0.0; sample.response.len()].into();
                }
                _ => {}
            }
        }
        if self.flaw == Flaw::UnlearnsDemonstrations && imitation {
            batch.objective = Objective::PolicyGradient;
            for sample in &mut batch.samples {
                sample.rollout_log_probs = vec![0.0; sample.response.len()].into();
            }
        }
        batch
    }
}

impl Learner for Mutant {
    fn step(&mut self, batch: &Batch) -> Result<LearnerReport> {
        let mut report = self.inner.step(&self.bent(batch))?;
        match self.flaw {
            Flaw::CountsNoSkippedSteps => self.uncounted += u64::from(report.skipped),
            Flaw::HidesSkippedSteps => report.skipped = false,
            _ => {}
        }
        report.version = self.version();
        Ok(report)
    }

    fn version(&self) -> PolicyVersion {
        PolicyVersion(self.inner.version().0 - self.uncounted)
    }

    fn export(&self) -> Result<WeightsHandle> {
        let mut handle = match (self.flaw, &self.first_export) {
            (Flaw::ExportsOldWeights, Some(first)) => first.clone(),
            _ => self.inner.export()?,
        };
        handle.version = self.version();
        if self.flaw == Flaw::InventsDigests {
            let digest = handle.digest.chars().rev().collect::<String>();
            handle.digest = digest.into();
        }
        Ok(handle)
    }

    fn save(&self, dir: &Path) -> Result<()> {
        self.inner.save(dir)
    }

    fn restore(&mut self, dir: &Path) -> Result<()> {
        if self.flaw == Flaw::RestoresFromNowhere && !dir.exists() {
            return Ok(());
        }
        self.inner.restore(dir)?;
        if self.flaw == Flaw::SavesNoMomentum {
            self.inner.forget_momentum();
        }
        Ok(())
    }
}

struct Harness(Flaw);

impl LearnerHarness for Harness {
    type Learner = Mutant;

    fn make(&self, micro_batch: usize) -> Result<Mutant> {
        let inner = Toy.make(micro_batch)?;
        Ok(Mutant {
            first_export: Some(inner.export()?),
            inner,
            flaw: self.0,
            micro_batch,
            uncounted: 0,
        })
    }

    fn imitation(&self) -> Batch {
        Toy.imitation()
    }

    fn on_policy(&self, learner: &mut Mutant, advantages: &[f64]) -> Result<Batch> {
        Toy.on_policy(&mut learner.inner, advantages)
    }

    fn log_likelihood(&self, learner: &mut Mutant, batch: &Batch) -> Result<Vec<f64>> {
        Toy.log_likelihood(&mut learner.inner, batch)
    }
}

#[tokio::test]
async fn each_flaw_is_found_by_its_line() {
    use Flaw::*;
    let table = [
        (None, ""),
        (CountsNoSkippedSteps, "c01"),
        (MovesWithoutAdvantage, "c02"),
        (HidesSkippedSteps, "c02"),
        (UnlearnsDemonstrations, "c03"),
        (IgnoresTheSign, "c04"),
        (AveragesMicroBatches, "c05"),
        (TakesAnyLogProbs, "c06"),
        (SavesNoMomentum, "c07"),
        (RestoresFromNowhere, "c07"),
        (ExportsOldWeights, "c08"),
        (InventsDigests, "c08"),
    ];
    let mut expectations = Expectations::default();
    for (flaw, expected) in table {
        let results = learner::run_all(&Harness(flaw)).await;
        expectations.compare(&format!("{flaw:?}"), &results, expected);
    }
    expectations.assert_met();
}
