//! The learner: losses, optimizer, warm start, checkpoints.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | every setting, with the values of the paper as defaults |
//! | [`learner`] | [`GrpoLearner`]: turns batches into new weights |
//! | [`handle`] | [`LearnerHandle`]: a learner on a thread of its own, for async callers |
//! | [`checkpoint`] | [`CheckpointDir`]: versions as directories, checksummed, replaced atomically |
//!
//! The loss is a pipeline of switches with presets ([`Preset`]), by default that of arXiv 2509.23866
//! §3.4. Its arithmetic is in `dart-kernels`; advantages come with the batch. `docs/algorithm.md` names
//! the golden test of each piece.

#![forbid(unsafe_code)]

mod accumulate;
mod average;
pub mod checkpoint;
mod choice;
pub mod config;
mod drift;
mod error;
#[cfg(test)]
mod golden;
mod gradients;
pub mod handle;
mod imitation;
pub mod learner;
mod metrics;
mod optimizer;
mod pass;
mod pipeline;
mod plan;
mod policy_gradient;
mod preset;
mod schedule;
mod state;
mod tokens;
mod update;
mod validate;
mod workers;

pub use average::{AverageConfig, Published};
pub use checkpoint::{Checkpoint, CheckpointDir, Draft, Sealed};
pub use config::{ImitationConfig, MissingLogProbs, TrainerConfig};
pub use handle::{LearnerHandle, ScoringLearner};
pub use learner::GrpoLearner;
pub use optimizer::OptimizerConfig;
pub use pipeline::{
    AggregationConfig, ImportanceConfig, KlEstimateConfig, KlGradientConfig, RatioConfig,
    RatioSource, RejectionConfig, RejectionLevelConfig, SurrogateConfig, WeightLevelConfig,
};
pub use preset::Preset;
pub use schedule::{Decay, Schedule};
