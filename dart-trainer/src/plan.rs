//! Which thread computes which samples, and in how many pieces.
//!
//! Samples with the same prompt stay together, because the model encodes a prompt once per pass.

use std::collections::BTreeMap;

use dart_core::Batch;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// Samples (indices into a batch) that share a prompt.
pub(crate) type Cluster = Vec<usize>;

/// For each thread its micro-batches.
pub(crate) type Plan = Vec<Vec<Vec<usize>>>;

/// Groups `samples` by prompt, in order of first appearance.
pub(crate) fn clusters(batch: &Batch, samples: &[usize]) -> Vec<Cluster> {
    let mut places = BTreeMap::new();
    let mut clusters: Vec<Cluster> = Vec::new();
    for &index in samples {
        let prompt = &batch.samples[index].prompt;
        let images: Vec<_> = prompt
            .images
            .iter()
            .map(|s| (s.image, s.start, s.len))
            .collect();
        let place = *places
            .entry((&*prompt.token_ids, images))
            .or_insert(clusters.len());
        if place == clusters.len() {
            clusters.push(Vec::new());
        }
        clusters[place].push(index);
    }
    clusters
}

/// Cuts `clusters` into `count` parts of about equal size, in an order drawn from `seed` and
/// `stream` if there is more than one part.
pub(crate) fn minibatches(
    mut clusters: Vec<Cluster>,
    count: usize,
    (seed, stream): (u64, u64),
) -> Vec<Vec<Cluster>> {
    if count <= 1 {
        return vec![clusters];
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    clusters.shuffle(&mut rng);
    let total: usize = clusters.iter().map(Vec::len).sum();
    let mut parts = vec![Vec::new(); count];
    let mut placed = 0;
    for cluster in clusters {
        let size = cluster.len();
        // The part in which the middle of the cluster falls.
        let part = (2 * placed + size) * count / (2 * total);
        parts[part.min(count - 1)].push(cluster);
        placed += size;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Spreads `clusters` over `threads`, the most expensive first, each to the thread with the least
/// to do, and cuts each thread's share into micro-batches of at most `limit` samples.
pub(crate) fn plan(batch: &Batch, clusters: &[Cluster], threads: usize, limit: usize) -> Plan {
    let mut order: Vec<usize> = (0..clusters.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(cost(batch, &clusters[*i])));
    let mut loads = vec![0; threads];
    let mut shares = vec![Vec::new(); threads];
    for index in order {
        let thread = (0..threads).min_by_key(|t| loads[*t]).unwrap_or(0);
        loads[thread] += cost(batch, &clusters[index]);
        shares[thread].push(index);
    }
    shares
        .into_iter()
        .map(|mut share| {
            share.sort_unstable();
            micro_batches(share.into_iter().map(|i| &clusters[i]), limit)
        })
        .collect()
}

/// Tokens that the model has to process: the prompt once, every response.
fn cost(batch: &Batch, cluster: &Cluster) -> usize {
    let prompt = cluster
        .first()
        .map_or(0, |i| batch.samples[*i].prompt.token_ids.len());
    let responses = cluster.iter().map(|i| batch.samples[*i].response.len());
    prompt + responses.sum::<usize>()
}

fn micro_batches<'a>(clusters: impl Iterator<Item = &'a Cluster>, limit: usize) -> Vec<Vec<usize>> {
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for cluster in clusters {
        for piece in cluster.chunks(limit) {
            match batches.last_mut() {
                Some(last) if last.len() + piece.len() <= limit => last.extend(piece),
                _ => batches.push(piece.to_vec()),
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use dart_core::{
        BatchId, GroupId, LogProbKind, Objective, PolicyVersion, Prompt, Sample, SampleOrigin,
        TrajectoryId,
    };
    use proptest::prelude::*;

    fn batch(prompts: &[u32]) -> Batch {
        let sample = |prompt: &u32| Sample {
            trajectory: TrajectoryId(0),
            step: 0,
            group: GroupId(0),
            origin: SampleOrigin::Rollout,
            prompt: Prompt {
                token_ids: vec![*prompt].into(),
                images: Vec::new(),
            },
            response: vec![0].into(),
            rollout_log_probs: vec![0.0].into(),
            log_prob_kind: LogProbKind::AfterTemperature,
            temperature: 1.0,
            version: PolicyVersion(0),
            advantages: vec![0.0].into(),
        };
        Batch {
            id: BatchId(0),
            objective: Objective::PolicyGradient,
            images: Vec::new(),
            samples: prompts.iter().map(sample).collect(),
        }
    }

    #[test]
    fn equal_prompts_stay_together() {
        let batch = batch(&[7, 8, 7, 9, 8, 7]);
        let clusters = clusters(&batch, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(clusters, [vec![0, 2, 5], vec![1, 4], vec![3]]);
        let plan = plan(&batch, &clusters, 2, 8);
        assert_eq!(plan, [vec![vec![0, 2, 5]], vec![vec![1, 4, 3]]]);
    }

    proptest! {
        #[test]
        fn every_sample_is_computed_once(
            prompts in prop::collection::vec(0u32..6, 1..40), threads in 1usize..4,
            limit in 1usize..9, count in 1usize..5, seed in any::<u64>(),
        ) {
            let batch = batch(&prompts);
            let all: Vec<usize> = (0..prompts.len()).collect();
            let parts = minibatches(clusters(&batch, &all), count, (seed, 3));
            prop_assert!(parts.len() <= count);
            let plans: Vec<_> = parts.iter().map(|p| plan(&batch, p, threads, limit)).collect();
            let micro: Vec<_> = plans.iter().flatten().flatten().collect();
            prop_assert!(micro.iter().all(|m| !m.is_empty() && m.len() <= limit));
            let mut seen: Vec<usize> = micro.into_iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, all);
        }
    }
}
