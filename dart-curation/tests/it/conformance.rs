//! The curator suite of dart-testkit, with each store.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use dart_core::{Curator, Result, TrajectoryId};
use dart_curation::{CurationConfig, DataManager, MemoryStore, SqliteStore, TrajectoryStore};
use dart_testkit::{curator::CuratorHarness, curator_conformance};

use crate::common::{plain, tasks};

fn config() -> CurationConfig {
    CurationConfig {
        rollouts_per_group: 4,
        max_in_flight: 12,
        ..plain()
    }
}

fn manager(store: Arc<dyn TrajectoryStore>) -> Result<Arc<dyn Curator>> {
    Ok(Arc::new(DataManager::new(config(), tasks(3), 11, store)?))
}

struct InMemory;

#[async_trait]
impl CuratorHarness for InMemory {
    type Store = Arc<MemoryStore>;

    async fn store(&self) -> Result<Self::Store> {
        Ok(Arc::new(MemoryStore::new()))
    }

    async fn open(&self, store: &Self::Store) -> Result<Arc<dyn Curator>> {
        manager(store.clone())
    }

    async fn holds(&self, store: &Self::Store, id: TrajectoryId) -> Result<bool> {
        Ok(store.get(id).await?.is_some())
    }

    fn max_staleness(&self) -> u64 {
        config().max_staleness
    }

    fn max_in_flight(&self) -> usize {
        config().max_in_flight
    }
}

curator_conformance!(mod in_memory, InMemory);

/// Closes the store of the last curator before the next one opens it: a folder has one owner.
struct Folder {
    dir: tempfile::TempDir,
    open: tokio::sync::Mutex<Option<Arc<SqliteStore>>>,
}

struct OnDisk;

#[async_trait]
impl CuratorHarness for OnDisk {
    type Store = Folder;

    async fn store(&self) -> Result<Self::Store> {
        Ok(Folder {
            dir: tempfile::tempdir().expect("a temporary folder"),
            open: tokio::sync::Mutex::default(),
        })
    }

    async fn open(&self, folder: &Self::Store) -> Result<Arc<dyn Curator>> {
        let mut open = folder.open.lock().await;
        if let Some(store) = open.take() {
            store.close().await?;
        }
        let store = Arc::new(SqliteStore::open(folder.dir.path()).await?);
        *open = Some(store.clone());
        manager(store)
    }

    /// Looks at a copy of the files, as after a kill -9 of the process at this moment.
    async fn holds(&self, folder: &Self::Store, id: TrajectoryId) -> Result<bool> {
        let copy = tempfile::tempdir().expect("a temporary folder");
        copy_tree(folder.dir.path(), copy.path());
        let store = SqliteStore::open(copy.path()).await?;
        Ok(store.get(id).await?.is_some())
    }

    fn max_staleness(&self) -> u64 {
        config().max_staleness
    }

    fn max_in_flight(&self) -> usize {
        config().max_in_flight
    }
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

curator_conformance!(mod on_disk, OnDisk);
