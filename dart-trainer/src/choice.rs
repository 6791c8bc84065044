//! Which tokens are trained on: steps of high entropy, rejection rules, tokens of high entropy.
//!
//! All of it is decided before the first optimizer step of a batch, from the whole batch, so that
//! neither minibatches nor micro-batches can change it.
//!
//! # Source
//! arXiv 2509.23866 §3.4 for steps, arXiv 2506.01939 for tokens.

use std::collections::BTreeMap;

use dart_core::{Batch, selection::quantile};

use crate::{
    TrainerConfig,
    drift::{Pairs, log_probs},
    error::Result,
    pass::Statistics,
};

/// Entropies that differ only by this much are ties. Two rollouts that saw the same and did the
/// same have equal entropies, which rounding makes unequal when they fall into different
/// micro-batches; which of them is kept must not depend on that.
const ENTROPY_ROUNDING: f64 = 1e-5;

/// Which tokens take part, for each sample of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Chosen {
    /// Tokens that the denominators count.
    pub counted: Vec<Vec<bool>>,
    /// Those of them that are trained on.
    pub trained: Vec<Vec<bool>>,
    /// Share of the samples that entropy selection kept.
    pub kept_share: f64,
    /// Share of those samples' tokens that rejection rules took out.
    pub share_rejected: f64,
}

impl Chosen {
    /// Samples that have any token to train on.
    pub(crate) fn samples(&self) -> Vec<usize> {
        let read = |index: &usize| self.trained[*index].contains(&true);
        (0..self.trained.len()).filter(read).collect()
    }
}

/// Chooses by `config`. Without statistics everything is trained on.
pub(crate) fn choose(
    batch: &Batch,
    statistics: Option<&Statistics>,
    config: &TrainerConfig,
) -> Result<Chosen> {
    let kept = match statistics {
        Some(statistics) => select(batch, statistics, config.entropy_drop),
        None => vec![true; batch.samples.len()],
    };
    let samples = batch.samples.iter().zip(&kept);
    let mut counted: Vec<Vec<bool>> = samples
        .map(|(sample, kept)| vec![*kept; sample.response.len()])
        .collect();
    let mut share_rejected = 0.0;
    if let Some(statistics) = statistics {
        share_rejected = reject(batch, statistics, config, &mut counted)?;
    }
    let mut trained = counted.clone();
    if let Some(statistics) = statistics {
        select_tokens(statistics, config.token_entropy_drop, &mut trained);
    }
    let count = kept.iter().filter(|kept| **kept).count();
    Ok(Chosen {
        counted,
        trained,
        kept_share: count as f64 / kept.len().max(1) as f64,
        share_rejected,
    })
}

/// Takes tokens out of `counted`; gives their share. Tokens without rollout log-probs stay.
fn reject(
    batch: &Batch,
    statistics: &Statistics,
    config: &TrainerConfig,
    counted: &mut [Vec<bool>],
) -> Result<f64> {
    if config.rejection.is_empty() {
        return Ok(0.0);
    }
    let pairs = Pairs::of(batch, &log_probs(statistics), counted);
    let kept = pairs.drift()?.keep(&config.rejection_rules());
    let tokens = counted.iter_mut().flatten();
    for ((counted, kept), paired) in tokens.zip(&kept.mask).zip(&pairs.mask) {
        *counted &= *kept || !*paired;
    }
    Ok(kept.share_rejected())
}

/// Which samples reach the entropy quantile of their group. A sample whose numbers are not finite
/// stays, so that the step is skipped and counted instead of hiding it.
pub(crate) fn select(batch: &Batch, statistics: &Statistics, dropped: f64) -> Vec<bool> {
    let mut kept = vec![true; batch.samples.len()];
    if dropped <= 0.0 {
        return kept;
    }
    let entropy = |index: usize| {
        let rows = &statistics[index];
        rows.iter().map(|row| row.entropy).sum::<f64>() / rows.len().max(1) as f64
    };
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, sample) in batch.samples.iter().enumerate() {
        if entropy(index).is_finite() {
            groups.entry(sample.group).or_default().push(index);
        }
    }
    for members in groups.values() {
        let entropies: Vec<f64> = members.iter().map(|index| entropy(*index)).collect();
        for (index, stays) in members.iter().zip(reaching(&entropies, dropped)) {
            kept[*index] = stays;
        }
    }
    kept
}

/// Takes those tokens out of `trained` that do not reach the entropy quantile over all of them.
/// Tokens whose entropy is not finite stay.
fn select_tokens(statistics: &Statistics, dropped: f64, trained: &mut [Vec<bool>]) {
    if dropped <= 0.0 {
        return;
    }
    let rows = statistics.iter().flatten();
    let mut read: Vec<(&mut bool, f64)> = trained
        .iter_mut()
        .flatten()
        .zip(rows)
        .filter_map(|(token, row)| {
            let counts = *token && row.entropy.is_finite();
            counts.then_some((token, row.entropy))
        })
        .collect();
    let entropies: Vec<f64> = read.iter().map(|(_, entropy)| *entropy).collect();
    let stays = reaching(&entropies, dropped);
    for ((token, _), stays) in read.iter_mut().zip(stays) {
        **token = stays;
    }
}

/// Which values reach the quantile, ties and all.
fn reaching(values: &[f64], share: f64) -> Vec<bool> {
    let threshold = quantile(values, share) - ENTROPY_ROUNDING;
    values.iter().map(|value| *value >= threshold).collect()
}
