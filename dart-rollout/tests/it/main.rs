//! Integration tests: environments, policies and curators are the fakes of `dart-testkit` and a few
//! stubborn ones of our own; time is simulated throughout.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cluster;
mod demonstration;
mod episode;
mod evaluation;
mod pool;
mod pool_conformance;
mod shutdown;
mod support;
