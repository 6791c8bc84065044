//! `cargo xtask`: one entry for everything a user or developer runs. Dispatches, nothing more.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command-line tool talks to its user")]

mod ablate;
mod arrows;
mod bench;
mod check_cuda;
mod ci;
mod clients;
mod crash;
mod disk;
mod doctor;
mod fuzz;
mod gpu;
mod launch;
mod miri;
mod peers;
mod process;
mod ptx;
mod python;
mod setup;
mod test;
mod tidy;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask COMMAND

  train [ARGS]    train a policy (default: configs/sim-cpu.toml, no service needed)
  eval [ARGS]     evaluate a checkpoint under any config
  show [ARGS]     write a stored trajectory as PNG frames and one HTML page
  inspect [ARGS]  say what a run has stored, and whether it is whole
  export [ARGS]   write stored trajectories as JSON lines and PNG images
  import [ARGS]   store the trajectories of an export in a run
  setup           install what real desktops and their tests need, fetch the MiniWoB++ pages
  fetch-miniwob   only the MiniWoB++ pages of `setup`
  test [ARGS]     set up, run every test, name every skipped suite
  bench [ARGS]    run the benchmarks
  bench-peer      measure the kernels beside torch and candle (installs torch into target/)
  bench-clients   [vnc|adb] measure our clients beside other Rust clients, compare what they see
  crash [ARGS]    kill training again and again (--seeds N), prove that nothing is lost
  ablate [ARGS]   the paper's ablations on the simulator (--seeds N, --steps N, --rows A,B)
  ci              everything that continuous integration runs, in the same order
  check-cuda      type-check the code for GPU tensors; needs no CUDA toolkit
  miri            the kernels' portable vectors under Miri
  fuzz [ARGS]     fuzz the RFB client (--seconds N for all targets, --target NAME)
  gpu-check       check and measure every operation on this machine's GPU, and its peers
  arrows          check the dependency arrows between the crates
  tidy            check file sizes, `unsafe` and notes to self
  ptx             compile the CUDA kernels; --check: compare, --report: registers and spills
  doctor          say what this machine has and lacks

`cargo xtask train --help` lists the options of a command that runs the trainer.";

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match command.as_str() {
        "train" | "eval" | "show" | "inspect" | "export" | "import" => {
            launch::exec(&command, &rest)
        }
        "setup" => setup::run(),
        "fetch-miniwob" => setup::fetch_miniwob(),
        "test" => test::run(&rest),
        "bench" => bench::run(&rest),
        "bench-peer" => peers::run(),
        "bench-clients" => clients::run(&rest),
        "crash" => crash::run(&rest),
        "ablate" => ablate::run(&rest),
        "ci" => ci::run(),
        "miri" => miri::run(),
        "fuzz" => fuzz::run(&rest),
        "check-cuda" => check_cuda::run(),
        "gpu-check" => gpu::run(&rest),
        "arrows" => arrows::run(),
        "tidy" => tidy::run(),
        "ptx" => ptx::run(&rest),
        "doctor" => {
            doctor::run();
            Ok(())
        }
        "" | "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => bail!("no command `{other}`\n\n{HELP}"),
    }
}
