//! Rollouts: the episode loop, the cluster of environments, the pool of policies, evaluation.
//!
//! Rollout-wise sampling as in arXiv 2509.23866 §3: every environment works on its own, one
//! episode after another, and waits for nobody but the policy. Weights reach the policies one
//! worker at a time while the others go on deciding.
//!
//! # Map
//!
//! | module | what |
//! |---|---|
//! | [`episode`] | [`run_episode`]: one request in, one [`Trajectory`](dart_core::Trajectory) out, whatever happens |
//! | [`demonstration`] | [`run_demonstration`]: the scripted expert's episode, in the policy's words |
//! | [`pool`] | [`PolicyPool`]: least-in-flight routing and weight sync worker by worker |
//! | [`cluster`] | [`RolloutCluster`]: many environments between a curator and a policy |
//! | [`evaluation`] | [`evaluate`]: success over tasks and seeds, by family |
//! | [`watchdog`] | who waits for what, and since when |
//! | [`events`] | what happened, with times of the runtime's clock |
//! | [`config`], [`metrics`] | settings and counters |
//!
//! # Example
//!
//! A policy that draws clicks, on the fakes of `dart-testkit`:
//!
//! ```
//! use std::sync::Arc;
//!
//! use dart_rollout::{EvaluationPlan, PolicyPool, evaluate};
//! use dart_testkit::fakes::{FakeFactory, FakePolicy, FakeWeights, task};
//!
//! # let mut runtime = tokio::runtime::Builder::new_current_thread();
//! # let runtime = runtime.enable_time().start_paused(true).build().unwrap();
//! # runtime.block_on(async {
//! let worker = || Arc::new(FakePolicy::new(FakeWeights::blank(4, 3))) as _;
//! let pool = Arc::new(PolicyPool::new(vec![worker(), worker()]));
//! let mut plan = EvaluationPlan::new(vec![Arc::new(task(4))], 20);
//! plan.environments = 4;
//! let found = evaluate(plan, Arc::new(FakeFactory::default()), pool).await?;
//! assert_eq!(found.judged, 20);
//! println!("{:.2} of the tasks done", found.overall);
//! # Ok::<(), dart_core::Error>(())
//! # }).unwrap();
//! ```
//!
//! # Invariants kept here
//!
//! Each request comes back exactly once (I3); every wait has a deadline and a name (I12); time comes
//! from `tokio::time` alone, nothing blocks a thread and nothing depends on hash order, so the same
//! seed on a paused clock gives the same event log (I8).

#![forbid(unsafe_code)]

mod claim;
pub mod cluster;
pub mod config;
mod deadline;
pub mod demonstration;
pub mod episode;
mod error;
pub mod evaluation;
pub mod events;
pub mod metrics;
pub mod pool;
mod seeds;
pub mod watchdog;
mod worker;

pub use cluster::{RolloutCluster, RolloutReport};
pub use config::{PoolConfig, RolloutConfig};
pub use demonstration::{
    Demonstration, DemonstrationPlan, run_demonstration, run_demonstration_with,
};
pub use episode::{EpisodeLimits, run_episode};
pub use evaluation::{EpisodeResult, Evaluation, EvaluationPlan, FamilyScore, evaluate};
pub use events::{EventLog, EventSink, RolloutEvent, WaitReport};
pub use metrics::RolloutMetrics;
pub use pool::PolicyPool;
pub use watchdog::{Waiter, Watchdog};
