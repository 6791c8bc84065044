//! `dart-rl`: see [`dart_cli`].

#![forbid(unsafe_code)]

use std::{os::unix::process::CommandExt, process::ExitCode};

/// A fifth to a quarter less CPU time for a training step than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sizes of the thread pools inside the tensor library. More than one thread each would spin in
/// barriers and take a third of the CPU from the learner's and the policies' own threads.
const ONE_THREAD: [&str; 2] = ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"];

fn main() -> ExitCode {
    if ONE_THREAD
        .iter()
        .any(|name| std::env::var_os(name).is_none())
    {
        return with_one_thread();
    }
    dart_cli::main()
}

/// Becomes the same program with the pools' sizes set, which has to be done before it starts.
fn with_one_thread() -> ExitCode {
    let unset = ONE_THREAD
        .iter()
        .filter(|name| std::env::var_os(name).is_none());
    let program = std::env::current_exe().unwrap_or_else(|_| "dart-rl".into());
    let mut again = std::process::Command::new(program);
    let error = again
        .args(std::env::args_os().skip(1))
        .envs(unset.map(|name| (name, "1")))
        .exec();
    eprintln!("error: the program cannot start itself again: {error}");
    ExitCode::FAILURE
}
