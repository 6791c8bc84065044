//! The CUDA sources, compiled by g++ with `emulation/`, on the CPU: results against the f64
//! definitions under adversarial schedules, traffic, edge rules, and faults that must be found.
//!
//! Without g++ these tests are skipped, unless `DART_TEST_REQUIRE` names `emulation` or `all`.

mod accuracy;
mod driver;
mod edges;
mod inputs;
mod losses;
mod mutants;
mod ptx;
mod reductions;
mod training;

use driver::{Build, Emulator};

/// An emulator of the sources as they are, or `None` where the test is skipped.
fn emulator() -> Option<Emulator> {
    Emulator::open(Build::Plain)
}

/// The same sources under AddressSanitizer and UndefinedBehaviorSanitizer.
fn sanitized() -> Option<Emulator> {
    Emulator::open(Build::Sanitized)
}
