//! Trajectories that were stored a moment ago and will be trained on in another.

use std::{collections::BTreeMap, sync::Arc};

use dart_core::{Trajectory, TrajectoryId};

/// Keeps the latest trajectories in memory, up to a number of bytes.
#[derive(Debug)]
pub(super) struct Cache {
    bodies: BTreeMap<TrajectoryId, (u64, Arc<Trajectory>)>,
    by_age: BTreeMap<u64, TrajectoryId>,
    next: u64,
    bytes: usize,
    limit: usize,
}

impl Cache {
    pub(super) const fn new(limit: usize) -> Self {
        Self {
            bodies: BTreeMap::new(),
            by_age: BTreeMap::new(),
            next: 0,
            bytes: 0,
            limit,
        }
    }

    pub(super) fn get(&self, id: TrajectoryId) -> Option<Arc<Trajectory>> {
        self.bodies.get(&id).map(|(_, body)| body.clone())
    }

    pub(super) fn insert(&mut self, body: Arc<Trajectory>) {
        self.remove(body.id);
        self.bytes += size(&body);
        self.by_age.insert(self.next, body.id);
        self.bodies.insert(body.id, (self.next, body));
        self.next += 1;
        while self.bytes > self.limit {
            let Some((_, oldest)) = self.by_age.pop_first() else {
                break;
            };
            self.remove(oldest);
        }
    }

    pub(super) fn remove(&mut self, id: TrajectoryId) {
        if let Some((age, body)) = self.bodies.remove(&id) {
            self.by_age.remove(&age);
            self.bytes -= size(&body);
        }
    }
}

/// Bytes of the pixels, which outweigh the rest, and something for the rest. Frames shared between
/// steps count each time: the limit is an upper one.
fn size(body: &Trajectory) -> usize {
    let step = |step: &dart_core::Step| {
        step.observation.frame.rgb().len() + 4 * step.decision.prompt.token_ids.len() + 1024
    };
    body.steps.iter().map(step).sum::<usize>() + 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use dart_core::{GroupId, Outcome, StopReason, Task, TaskId};

    fn body(n: u128) -> Arc<Trajectory> {
        Arc::new(Trajectory {
            id: TrajectoryId(n),
            group: GroupId(0),
            task: Arc::new(Task {
                id: TaskId::new("t").unwrap(),
                family: "t".into(),
                split: dart_core::Split::Train,
                horizon: 3,
                params: serde_json::Value::Null,
            }),
            seed: 0,
            instruction: "".into(),
            steps: Vec::new(),
            outcome: Outcome::Aborted,
            stop: StopReason::Cancelled,
            error: None,
        })
    }

    #[test]
    fn the_oldest_leave_first_and_bytes_add_up() {
        let mut cache = Cache::new(3 * 1024);
        for n in 0..5 {
            cache.insert(body(n));
        }
        assert!(cache.get(TrajectoryId(1)).is_none());
        assert!(cache.get(TrajectoryId(2)).is_some());
        for _ in 0..1000 {
            cache.insert(body(4));
            cache.remove(TrajectoryId(4));
        }
        assert_eq!(cache.bytes, 2 * 1024);
        assert_eq!(cache.by_age.len(), cache.bodies.len());
    }
}
