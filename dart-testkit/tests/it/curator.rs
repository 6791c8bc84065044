//! The curator suite on the memory curator.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{Curator, Result, TrajectoryId};
use dart_testkit::{
    Clock, Settings,
    curator::CuratorHarness,
    curator_conformance,
    fakes::{MemoryCurator, MemoryCuratorConfig, TrajectoryShelf, task},
};

pub(crate) struct Memory;

#[async_trait]
impl CuratorHarness for Memory {
    type Store = TrajectoryShelf;

    fn settings(&self) -> Settings {
        Settings {
            clock: Clock::Paused,
            ..Settings::default()
        }
    }

    async fn store(&self) -> Result<TrajectoryShelf> {
        Ok(TrajectoryShelf::default())
    }

    async fn open(&self, store: &TrajectoryShelf) -> Result<Arc<dyn Curator>> {
        let tasks = vec![Arc::new(task(10)), Arc::new(task(6))];
        let config = MemoryCuratorConfig::default();
        Ok(Arc::new(MemoryCurator::new(config, tasks, store.clone())))
    }

    async fn holds(&self, store: &TrajectoryShelf, id: TrajectoryId) -> Result<bool> {
        Ok(store.get(id).is_some())
    }

    fn max_staleness(&self) -> u64 {
        MemoryCuratorConfig::default().max_staleness
    }

    fn max_in_flight(&self) -> usize {
        MemoryCuratorConfig::default().max_in_flight
    }
}

curator_conformance!(Memory);
