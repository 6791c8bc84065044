//! How much may be started, and what is too old: staleness is bounded twice (invariant I5).
//!
//! Dispatch follows AReaL's rule min(concurrency − running, (η + version + 1)·B −
//! (accepted + running)), counted in groups, because a batch takes groups and a group without
//! spread never counts as accepted. `version` counts batches consumed since this curator began,
//! not the learner's version, which a warm start moves on without consuming anything here.

use dart_core::PolicyVersion;

/// What the dispatch rule counts. All in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Batches consumed so far.
    pub batches_consumed: u64,
    /// Groups accepted so far: consumed, handed out and waiting.
    pub accepted: u64,
    /// Groups whose rollouts are not all back.
    pub running: u64,
}

/// How many more groups may be opened so that, if every batch takes `groups_per_batch` groups,
/// none is older than `max_staleness` versions when it is consumed.
pub fn dispatch_capacity(max_staleness: u64, groups_per_batch: u64, load: Load) -> u64 {
    max_staleness
        .saturating_add(load.batches_consumed)
        .saturating_add(1)
        .saturating_mul(groups_per_batch)
        .saturating_sub(load.accepted.saturating_add(load.running))
}

/// How many more rollouts may be started: the bound on rollouts in flight.
pub const fn free_rollouts(max_in_flight: usize, in_flight: usize) -> usize {
    max_in_flight.saturating_sub(in_flight)
}

/// The hard check at consumption: whether data of version `oldest` is too old for a learner at
/// version `learner`.
pub const fn is_stale(learner: PolicyVersion, oldest: PolicyVersion, max_staleness: u64) -> bool {
    learner.since(oldest) > max_staleness
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_staleness_one_batch_is_in_the_making() {
        let load = |batches_consumed, accepted, running| Load {
            batches_consumed,
            accepted,
            running,
        };
        assert_eq!(dispatch_capacity(0, 4, load(0, 0, 0)), 4);
        assert_eq!(dispatch_capacity(0, 4, load(0, 1, 3)), 0);
        assert_eq!(dispatch_capacity(0, 4, load(1, 4, 0)), 4);
        assert_eq!(dispatch_capacity(2, 4, load(0, 4, 4)), 4);
        assert_eq!(dispatch_capacity(0, 4, load(0, 9, 0)), 0, "never negative");
        assert_eq!(dispatch_capacity(u64::MAX, 4, load(0, 1, 0)), u64::MAX - 1);
    }

    #[test]
    fn the_bound_itself_is_fresh_enough() {
        assert!(!is_stale(PolicyVersion(5), PolicyVersion(3), 2));
        assert!(is_stale(PolicyVersion(6), PolicyVersion(3), 2));
        assert!(!is_stale(PolicyVersion(2), PolicyVersion(3), 0));
    }

    proptest! {
        /// Groups opened whenever the rule allows it and consumed oldest first are never stale.
        #[test]
        fn opening_by_the_rule_keeps_the_bound(
            max_staleness in 0u64..4, per_batch in 1u64..5,
            order in prop::collection::vec(0u8..3, 1..200),
        ) {
            let mut load = Load { batches_consumed: 0, accepted: 0, running: 0 };
            let (mut open, mut ready) = (std::collections::VecDeque::new(), std::collections::VecDeque::new());
            for event in order {
                match event {
                    0 if dispatch_capacity(max_staleness, per_batch, load) > 0 => {
                        open.push_back(load.batches_consumed);
                        load.running += 1;
                    }
                    1 => if let Some(opened) = open.pop_front() {
                        ready.push_back(opened);
                        load.running -= 1;
                        load.accepted += 1;
                    },
                    2 if ready.len() as u64 >= per_batch => {
                        for _ in 0..per_batch {
                            let opened = ready.pop_front().unwrap();
                            prop_assert!(load.batches_consumed - opened <= max_staleness);
                        }
                        load.batches_consumed += 1;
                    }
                    _ => {}
                }
            }
        }
    }
}
