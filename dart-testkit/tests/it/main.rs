//! The suites on the fakes, and the fakes broken one contract line at a time.

mod curator;
mod device;
mod environment;
mod layer;
mod learner;
mod mutants;
mod policy;
mod toy_ring;
mod walkthrough;
