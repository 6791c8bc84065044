//! Evaluation on held-out tasks.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use dart_core::{EnvironmentFactory, Policy, Split, Task};
use dart_rollout::{
    EpisodeLimits, Evaluation, EvaluationPlan, FamilyScore, RolloutConfig, evaluate,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::EvaluationConfig,
    report::{Splits, Success},
};

/// What is needed to evaluate a policy.
#[derive(Clone)]
pub(crate) struct HeldOut {
    pub(crate) config: EvaluationConfig,
    pub(crate) rollout: RolloutConfig,
    pub(crate) tasks: BTreeMap<Split, Vec<Arc<Task>>>,
    pub(crate) factory: Arc<dyn EnvironmentFactory>,
    pub(crate) cancel: CancellationToken,
}

impl HeldOut {
    /// Greedy success on each held-out split, `episodes` of each task.
    pub(crate) async fn evaluate(&self, policy: Arc<dyn Policy>, episodes: u64) -> Result<Splits> {
        let found = self.evaluations(policy, episodes).await?;
        let splits = found
            .iter()
            .map(|(split, found)| (split.clone(), success(found)));
        Ok(splits.collect())
    }

    /// The same, with every episode: split → what was found.
    pub(crate) async fn evaluations(
        &self,
        policy: Arc<dyn Policy>,
        episodes: u64,
    ) -> Result<BTreeMap<String, Evaluation>> {
        let mut splits = BTreeMap::new();
        for split in &self.config.splits {
            let tasks = self.tasks.get(split).cloned().unwrap_or_default();
            if tasks.is_empty() {
                continue;
            }
            let mut plan = EvaluationPlan::new(tasks, episodes);
            plan.environments = self.config.environments;
            plan.limits = EpisodeLimits::new(&self.rollout);
            plan.limits.cancel = self.cancel.clone();
            let found = evaluate(plan, Arc::clone(&self.factory), Arc::clone(&policy)).await?;
            splits.insert(split.name().to_owned(), found);
        }
        Ok(splits)
    }
}

/// What the summary says of it.
pub(crate) fn success(evaluation: &Evaluation) -> Success {
    let rates = evaluation
        .families
        .iter()
        .filter_map(|(family, score)| FamilyScore::rate(score).map(|rate| (family.clone(), rate)));
    Success {
        overall: evaluation.overall,
        episodes: evaluation.judged,
        families: rates.collect(),
    }
}
