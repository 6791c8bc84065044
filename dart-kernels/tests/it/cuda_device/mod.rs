//! Every operation on a GPU, launch by launch: on the GPU that `DART_TEST_CUDA` names, and on one
//! that `emulation/libcuda.cpp` emulates, as sm_80 and as sm_90.
//!
//! cudarc loads the driver once per process. The emulated one is therefore given to a process of
//! its own: this test binary, asked for the one test that works on whatever GPU there is.

#![allow(clippy::print_stdout, reason = "a skip is printed")]

#[path = "../../../examples/gpu_check/checks/mod.rs"]
mod checks;
#[path = "../../../examples/gpu_check/inputs.rs"]
mod inputs;
#[path = "../../../examples/gpu_check/linear.rs"]
mod linear;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use checks::Extent;
use dart_kernels::cuda::Gpu;

/// Ordinal of the GPU to test.
const ORDINAL: &str = "DART_TEST_CUDA";

/// Set for the process that gets the emulated driver: the architecture it is to be.
const EMULATED: &str = "DART_EMULATED_CAPABILITY";

/// Longest time of that process, with room for a loaded machine.
const DEADLINE: Duration = Duration::from_mins(5);

#[test]
fn inputs_are_the_bits_that_python_makes() {
    // Printed by `peers/gpu_peers.py --self-test`.
    let python = [
        -1_072_366_197,
        -1_076_113_958,
        -1_088_195_290,
        -1_091_628_784,
        1_051_066_029,
        -1_065_924_881,
        -1_081_482_109,
        1_077_747_319,
        1_069_915_746,
        -1_064_816_965,
        -1_067_176_297,
        1_075_472_290,
        1_084_352_585,
        1_074_962_811,
        1_068_450_496,
        -1_064_548_924,
    ];
    assert_eq!(inputs::sample(), python);
}

#[test]
fn operations_on_the_gpu_of_this_process() {
    let Ok(ordinal) = env::var(ORDINAL) else {
        println!("skipped: operations on a GPU: {ORDINAL} is not set to an ordinal");
        return;
    };
    let gpu = Gpu::open(ordinal.parse().unwrap()).unwrap();
    let emulated = env::var_os(EMULATED).is_some();
    let extent = if emulated {
        Extent::SMALL
    } else {
        Extent::FULL
    };
    let mut all = checks::all(&gpu, extent).unwrap();
    all.extend(linear::all(&gpu).unwrap());
    for check in &all {
        println!("{}: {:.1} % of the bar", check.name, 100.0 * check.worst);
    }
    let failed: Vec<_> = all.iter().filter(|check| !check.passed()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn operations_on_an_emulated_sm_80() {
    emulated(80);
}

#[test]
fn operations_on_an_emulated_sm_90() {
    emulated(90);
}

fn emulated(architecture: u32) {
    let folder = match library() {
        Ok(folder) => folder,
        Err(why) => return skip(why),
    };
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("cuda_device::operations_on_the_gpu_of_this_process")
        .env("LD_LIBRARY_PATH", folder)
        .env(ORDINAL, "0")
        .env(EMULATED, architecture.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > DEADLINE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the operations on an emulated GPU hang: over {DEADLINE:?}");
        }
        thread::sleep(Duration::from_millis(50));
    };
    assert!(status.success(), "sm_{architecture}: see above");
}

fn skip(why: &str) {
    let required = env::var("DART_TEST_REQUIRE").unwrap_or_default();
    let mut names = required.split(',').map(str::trim);
    let promised = names.any(|name| name == "emulation" || name == "all");
    assert!(!promised, "DART_TEST_REQUIRE names emulation, but: {why}");
    println!("skipped: operations on an emulated GPU: {why}");
}

/// The folder of the emulated driver, built by the first test that asks.
fn library() -> Result<&'static Path, &'static str> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(build);
    built.as_deref().map_err(String::as_str)
}

fn build() -> Result<PathBuf, String> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("emulated-driver-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let output = Command::new("g++")
        .args(["-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC"])
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(home.join("cuda"))
        .arg(home.join("emulation/libcuda.cpp"))
        .arg("-o")
        .arg(folder.join("libcuda.so"))
        .output()
        .map_err(|error| format!("g++ cannot be started: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "g++ refuses the sources:\n{errors}"
    );
    // Both libraries are in the one file.
    fs::copy(folder.join("libcuda.so"), folder.join("libcublas.so")).map_err(|e| e.to_string())?;
    Ok(folder)
}
