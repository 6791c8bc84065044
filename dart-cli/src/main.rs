//! `dart-rl`: see [`dart_cli`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// A fifth to a quarter less CPU time for a training step than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    dart_cli::main()
}
