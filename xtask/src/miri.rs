//! `miri`: the unsafe code of the kernels' portable vectors under Miri, where Miri is installed.

use anyhow::Result;

use crate::process;

pub(crate) fn run() -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    if process::output(&cargo, &["miri", "--version"]).is_none() {
        println!(
            "skipped: Miri is not installed (rustup component add miri, on a nightly toolchain)"
        );
        return Ok(());
    }
    // Miri has no AVX: instruction sets that it lacks are left out by detection.
    let arguments = ["miri", "test", "-p", "dart-kernels", "--lib", "cpu::"];
    process::run(process::cargo().args(arguments))
}
