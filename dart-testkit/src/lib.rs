//! Conformance suites and fakes for the traits of `dart-core`. A development dependency only.
//!
//! Each trait has a numbered contract. Each number is one named test here, run by every
//! implementation of the workspace, wrappers included. A backend writes a *harness* (how to make
//! the thing, a task with its solution, how to break the connection) and calls one macro:
//!
//! ```
//! use async_trait::async_trait;
//! use dart_core::{Action, Demonstrate, EnvironmentFactory, Result, Task};
//! use dart_testkit::{environment, environment_conformance, fakes};
//!
//! struct Harness;
//!
//! #[async_trait]
//! impl environment::EnvironmentHarness for Harness {
//!     type Env = dyn Demonstrate;
//!
//!     async fn make(&self) -> Result<Box<Self::Env>> {
//!         fakes::FakeFactory::default().create_demonstrator().await
//!     }
//!
//!     fn task(&self) -> Task {
//!         fakes::task(10)
//!     }
//!
//!     async fn solve(&self, env: &mut Self::Env) -> Result<()> {
//!         environment::solve_with_expert(env).await
//!     }
//!
//!     async fn visible_action(&self, env: &mut Self::Env) -> Result<Action> {
//!         environment::first_expert_action(env).await
//!     }
//! }
//!
//! // One #[test] per line of the contract: environment_conformance::c01_spec_is_stable, …
//! environment_conformance!(Harness);
//! # fn main() {}
//! ```
//!
//! # Checks that do not apply
//!
//! A check that an implementation cannot undergo (no way to cut an in-process simulator) prints
//! `not applicable: <why>`. The harness has to name each of these in
//! [`Settings::not_applicable`]: a check that does not apply without being named fails, and so
//! does a named one that applies after all.
//!
//! # Map
//!
//! | module | what |
//! |---|---|
//! | [`environment`], [`demonstrate`], [`device`], [`task_driver`], [`policy`], [`curator`], [`learner`] | the suites: a harness trait and one function for each contract line |
//! | [`suite`] | what the suites share: verdicts, settings, the runner |
//! | [`fakes`] | small in-memory implementations |
//! | [`faulty`] | a device that stalls, disconnects, hangs or panics when told to |
//! | [`files`] | copies folders |
//! | [`interrupt`] | drops futures half-way |
//! | [`actions`], [`records`] | examples of actions, trajectories and batches |

#![forbid(unsafe_code)]

pub mod suite;

pub mod actions;
pub mod curator;
pub mod demonstrate;
pub mod device;
pub mod environment;
pub mod fakes;
pub mod faulty;
pub mod files;
pub mod interrupt;
pub mod learner;
pub mod policy;
pub mod records;
pub mod task_driver;

pub use faulty::Faulty;
pub use interrupt::{drop_after, poll_once_then_drop};
pub use suite::{Breakable, Checked, Clock, Failure, Fault, Settings, Verdict};
