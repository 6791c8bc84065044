//! Integration tests: environments, policies and curators are the fakes of `dart-testkit` and a few
//! stubborn ones of our own; time is simulated throughout.

mod cluster;
mod demonstration;
mod episode;
mod evaluation;
mod pool;
mod pool_conformance;
mod support;
