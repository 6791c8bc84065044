//! Tests of the simulator through its public interface.

mod conformance;
mod episodes;
mod golden;
mod support;
