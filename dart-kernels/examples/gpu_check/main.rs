//! Checks every operation on a GPU against f64 and measures it.
//!
//! ```text
//! gpu_check [--device N] [--json FILE] [--checks-only] [--small]
//! ```
//!
//! Exit code 0: all checks passed. 1: one failed. 2: there is no GPU to check.
//!
//! The binary is linked against no library of CUDA: built anywhere, it runs on a GPU machine that
//! has a driver (and cuBLAS for the fused linear layer) and no Rust. `cargo xtask gpu-check` runs
//! it together with the peers.

#![allow(clippy::print_stdout, reason = "a command-line tool talks to its user")]

mod checks;
mod inputs;
mod linear;
mod times;

use std::process::ExitCode;

use checks::{Check, Extent};
use dart_kernels::cuda::{Error, Gpu};
use serde_json::{Value, json};
use times::{Plan, Time};

const NO_GPU: u8 = 2;

struct Arguments {
    device: usize,
    json: Option<String>,
    checks_only: bool,
    /// For a GPU that is emulated.
    small: bool,
}

fn main() -> ExitCode {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => {
            println!(
                "{text}\nusage: gpu_check [--device N] [--json FILE] [--checks-only] [--small]"
            );
            return ExitCode::FAILURE;
        }
    };
    let gpu = match Gpu::open(arguments.device) {
        Ok(gpu) => gpu,
        Err(
            error @ (Error::Library { .. } | Error::NoDevice { .. } | Error::Capability { .. }),
        ) => {
            println!("no GPU to check: {error}");
            return ExitCode::from(NO_GPU);
        }
        Err(error) => return fail(&error),
    };
    match run(&gpu, &arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail(&*error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    println!("failed: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        println!("  because: {cause}");
        source = cause.source();
    }
    ExitCode::FAILURE
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        device: 0,
        json: None,
        checks_only: false,
        small: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--device" => {
                arguments.device = value()?.parse().map_err(|_| "--device needs a number")?;
            }
            "--json" => arguments.json = Some(value()?),
            "--checks-only" => arguments.checks_only = true,
            "--small" => arguments.small = true,
            other => return Err(format!("no argument `{other}`")),
        }
    }
    Ok(arguments)
}

/// Whether every check passed.
fn run(gpu: &Gpu, arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let (major, minor) = gpu.capability();
    let name = gpu.name()?;
    println!("{name}, compute capability {major}.{minor}");
    let extent = if arguments.small {
        Extent::SMALL
    } else {
        Extent::FULL
    };
    let mut checks = checks::all(gpu, extent)?;
    match linear::all(gpu) {
        Ok(linear) => checks.extend(linear),
        Err(error @ Error::Library { .. }) => println!("skipped: fused_linear: {error}"),
        Err(error) => return Err(error.into()),
    }
    print_checks(&checks);
    let times = if arguments.checks_only {
        vec![]
    } else {
        let plan = if arguments.small {
            &Plan::SMALL
        } else {
            &Plan::FULL
        };
        times::all(gpu, plan)?
    };
    print_times(&times);
    if let Some(path) = &arguments.json {
        let device = json!({"name": name, "capability": [major, minor]});
        let report = json!({
            "device": device,
            "inputs": inputs::sample(),
            "checks": checks.iter().map(check_json).collect::<Vec<_>>(),
            "times": times.iter().map(time_json).collect::<Vec<_>>(),
        });
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(checks.iter().all(Check::passed))
}

fn print_checks(checks: &[Check]) {
    for check in checks {
        let verdict = if check.passed() { "ok    " } else { "FAILED" };
        let share = 100.0 * check.worst;
        println!(
            "{verdict} {:<36} {share:6.1} % of the bar, {} numbers",
            check.name, check.compared
        );
        if !check.passed() {
            println!("       {}", check.at);
        }
    }
}

fn print_times(times: &[Time]) {
    let copy = times
        .first()
        .map_or(f64::NAN, |copy| copy.bytes / copy.median);
    for time in times {
        let speed = time.bytes / time.median;
        println!(
            "{:<22} {:<5} {:<18} {:8.3} ms ({:.3} to {:.3}) {:7.0} GB/s {:5.1} % of copy",
            time.operation,
            time.element,
            time.shape,
            time.median,
            time.low,
            time.high,
            speed / 1e6,
            100.0 * speed / copy
        );
    }
}

fn check_json(check: &Check) -> Value {
    json!({
        "name": check.name,
        "passed": check.passed(),
        "worst_share_of_bar": if check.worst.is_finite() { json!(check.worst) } else { Value::Null },
        "at": check.at,
        "compared": check.compared,
    })
}

fn time_json(time: &Time) -> Value {
    json!({
        "operation": time.operation,
        "element": time.element,
        "shape": time.shape,
        "median_ms": time.median,
        "low_ms": time.low,
        "high_ms": time.high,
        "bytes": time.bytes,
        "error": time.error,
    })
}
