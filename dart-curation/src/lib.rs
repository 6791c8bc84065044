//! The data manager of DART: durable trajectories, adaptive curation, batches.
//!
//! [`DataManager`] implements [`Curator`](dart_core::Curator). It hands out rollouts within the
//! staleness bound, keeps what comes back in a [`TrajectoryStore`], forms groups and makes batches
//! out of those whose rewards differ (arXiv 2509.23866 §3).
//!
//! # Map
//!
//! | module | what |
//! |---|---|
//! | [`rollout_number`], [`trajectory_length`], [`staleness`], [`sampler`], [`groups`], [`pool`] | the adaptive pieces: pure functions and plain state, one file each, each with its own switch |
//! | [`advantage`], [`overlong`] | rewards become advantages: which estimate, and what length costs |
//! | [`collate`], [`imitation_batch`] | groups and demonstrations become batches |
//! | [`hints`], [`overlap`] | hints are taken out before storing; what is trained on and held out too |
//! | [`config`] | every choice, with the reason for its default |
//! | [`event`] | what the event log is told |
//! | [`store`] | where trajectories are kept: SQLite with content-addressed images, or memory |

#![forbid(unsafe_code)]

pub mod advantage;
pub mod config;
pub mod event;
pub mod groups;
pub mod hints;
pub mod overlap;
pub mod overlong;
pub mod pool;
pub mod rollout_number;
pub mod sampler;
pub mod staleness;
pub mod store;
pub mod trajectory_length;

mod collate;
mod error;
mod images;
mod ledger;
mod manager;

pub use advantage::AdvantageConfig;
pub use collate::{Credit, TrainingGroup, collate, imitation_batch};
pub use config::{CurationConfig, CurationPreset};
pub use event::{CurationEvent, CurationEventSink};
pub use manager::{CuratorCheckpoint, DataManager, Recovered};
pub use pool::Provenance;
pub use store::{
    Audit, CheckpointRef, Claim, Fence, MAX_FAILURES, MemoryStore, Quarantined, Retention, Seal,
    SqliteArchive, SqliteConfig, SqliteStore, StoreOverview, Synchronous, TrajectoryQuery,
    TrajectoryStore, TrajectorySummary, Use,
};
