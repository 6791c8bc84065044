//! What reaches the learner always has something to compare: each group of a batch keeps at least
//! one success and one failure, whatever was lost, too old, aborted or rescued on the way.

use std::{collections::BTreeMap, sync::Arc};

use dart_core::{Commit, Curator, GroupId, Outcome, PolicyVersion, TrajectoryId};
use dart_curation::{CurationConfig, DataManager, MemoryStore, Provenance, TrajectoryStore};
use proptest::prelude::*;

use crate::common::{answer, manager_on, plain, ready, request, scored};

fn config() -> CurationConfig {
    let mut config = plain();
    config.pool.enabled = true;
    config.pool.from_rollouts = true;
    config.rollout_number.enabled = true;
    config.rollout_number.max = 4;
    // Few instances, so that the pool knows them.
    config.sampler.seeds_per_task = Some(1);
    config
}

/// Trains on what is ready, looking at every group.
async fn train(manager: &DataManager, rewards: &BTreeMap<TrajectoryId, f64>, version: &mut u64) {
    let Some(batch) = ready(manager.next_batch()).await else {
        return;
    };
    let batch = batch.unwrap().unwrap();
    let mut groups: BTreeMap<GroupId, Vec<(f64, f64)>> = BTreeMap::new();
    for sample in &batch.samples {
        let reward = rewards[&sample.trajectory];
        let group = groups.entry(sample.group).or_default();
        group.push((reward, sample.advantages[0]));
    }
    for (group, members) in groups {
        let success = members.iter().any(|(reward, _)| *reward == 1.0);
        let failure = members.iter().any(|(reward, _)| *reward == 0.0);
        assert!(success && failure, "group {group}: {members:?}");
        assert!(
            members
                .iter()
                .all(|(reward, advantage)| (*reward == 1.0) == (*advantage > 0.0))
        );
    }
    *version += 1;
    let commit = Commit {
        batch: batch.id,
        version: PolicyVersion(*version),
    };
    manager.commit(commit).await.unwrap();
}

async fn live(fates: &[(u8, u64, bool)]) {
    let store = Arc::new(MemoryStore::new());
    let manager = manager_on(config(), store.clone());
    let (mut rewards, mut version) = (BTreeMap::new(), 0);
    for (n, (fate, lag, lost)) in fates.iter().enumerate() {
        let Some(request) = ready(manager.next_request()).await else {
            train(&manager, &rewards, &mut version).await;
            continue;
        };
        let request = request.unwrap().unwrap();
        let (outcome, reward) = match fate {
            0 => (Outcome::Aborted, None),
            1 | 2 => (scored(1.0), Some(1.0)),
            3 => (Outcome::PolicyFault, Some(0.0)),
            _ => (scored(0.0), Some(0.0)),
        };
        rewards.extend(reward.map(|reward| (request.trajectory, reward)));
        let by = PolicyVersion(version.saturating_sub(*lag));
        let id = request.trajectory;
        manager
            .ingest(answer(&request, outcome, 1 + n as u32 % 3, by))
            .await
            .unwrap();
        if *lost {
            // Quarantined: it cannot be claimed, and leaves its group.
            for _ in 0..dart_curation::MAX_FAILURES {
                store.fail(id, "broken").await.unwrap();
            }
        }
        if n % 5 == 4 {
            train(&manager, &rewards, &mut version).await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_success_and_a_failure_stay(
        fates in prop::collection::vec((0u8..7, 0u64..3, prop::bool::weighted(0.1)), 1..120),
    ) {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(live(&fates));
    }
}

/// A hint is taken out, the trajectory enters the pool under its own provenance, and helps.
#[tokio::test]
async fn what_was_collected_beforehand_helps_without_its_hint() {
    let mut config = plain();
    config.pool.enabled = true;
    config.groups_per_batch = 1;
    config.max_groups_per_batch = 1;
    let manager = manager_on(config, Arc::new(MemoryStore::new()));
    let (a, b) = (request(&manager).await, request(&manager).await);
    let mut helped = answer(&a, scored(1.0), 3, PolicyVersion(0));
    helped.id.0 ^= 1;
    helped.instruction = format!("{} Hint: look closely", helped.instruction).into();
    let stripped = dart_curation::hints::without_hint(&helped, "Hint:", &Instructions);
    let mut stripped = stripped.unwrap().unwrap();
    assert_eq!(*stripped.instruction, *format!("do {}", a.task.id));
    for (index, (step, before)) in stripped.steps.iter_mut().zip(&helped.steps).enumerate() {
        let decision = &mut step.decision;
        assert_eq!(
            decision.token_ids, before.decision.token_ids,
            "responses stay"
        );
        let length = stripped.instruction.len() as u32;
        assert_eq!(*decision.prompt.token_ids, [length, index as u32 * 3, 0]);
        assert_eq!(decision.prompt.images[0].image, index as u32);
        assert!(decision.rollout_log_probs.iter().all(|lp| *lp == 0.0));
        assert!(decision.entropies.is_none());
        decision.rollout_log_probs = vec![-0.5; 3].into();
    }
    let provenance = Provenance::ImportedWithoutHint;
    manager
        .add_to_pool_as(stripped.clone(), provenance)
        .await
        .unwrap();
    let snapshot = String::from_utf8(manager.snapshot().await.unwrap()).unwrap();
    assert!(
        snapshot.contains(r#""provenance":"imported-without-hint""#),
        "{snapshot}"
    );
    for request in [&a, &b] {
        let failed = answer(request, scored(0.0), 2, PolicyVersion(0));
        manager.ingest(failed).await.unwrap();
    }
    let batch = manager.next_batch().await.unwrap().unwrap();
    let pooled = batch.samples.iter().filter(|s| s.trajectory == stripped.id);
    assert_eq!(pooled.count(), 3);
}

#[test]
fn without_a_hint_nothing_is_rewritten() {
    let plain = crate::store::trajectory(1);
    let found = dart_curation::hints::without_hint(&plain, "Hint:", &Instructions);
    assert!(found.unwrap().is_none());
    let mut nothing_else = plain;
    nothing_else.instruction = "Hint: press OK".into();
    let error = dart_curation::hints::without_hint(&nothing_else, "Hint:", &Instructions);
    assert_eq!(error.unwrap_err().kind(), dart_core::ErrorKind::Protocol);
}

/// A prompt is the length of the instruction, the tokens of the history, and the image.
struct Instructions;

impl dart_core::DemonstrationEncoder for Instructions {
    fn encode(
        &self,
        input: &dart_core::PolicyInput,
        action: &dart_core::Action,
    ) -> dart_core::Result<dart_core::Decision> {
        let history: usize = input.history.iter().map(|past| past.response.len()).sum();
        let mut step = crate::common::step(0, 1, PolicyVersion(0));
        step.decision.action = dart_core::ParsedAction::Valid(action.clone());
        step.decision.prompt = dart_core::Prompt {
            token_ids: vec![input.instruction.len() as u32, history as u32, 0].into(),
            images: vec![dart_core::ImageSpan {
                image: input.history.len() as u32,
                start: 2,
                len: 1,
            }],
        };
        Ok(step.decision)
    }
}
