//! `ptx`: compiles the CUDA kernels to the PTX that is checked in, checks it, reports what the
//! kernels take of a GPU. Compiler and assembler are pinned wheels in an environment of their own,
//! `target/python/ptx`; no GPU and no CUDA toolkit is needed.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{process, python};

/// NVRTC 12.1 writes PTX of ISA 8.1, which every driver of CUDA 12.1 and later loads; clusters
/// need no newer one.
const COMPILER: &str = "nvidia-cuda-nvrtc-cu12==12.1.105";

/// Carries the assembler ptxas alone.
const ASSEMBLER: &str = "nvidia-cuda-nvcc-cu12==12.9.86";

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => compile(&[]),
        ["--check"] => compile(&["--check"]),
        ["--report"] => report(),
        _ => bail!("usage: cargo xtask ptx [--check | --report]"),
    }
}

/// The step of continuous integration: the PTX is what the sources give, and no kernel spills.
/// A machine that cannot install the wheels says so.
pub(crate) fn check_and_report() -> Result<()> {
    if let Err(error) = python() {
        println!("skipped: the CUDA compiler cannot be installed here: {error:#}");
        return Ok(());
    }
    compile(&["--check"])?;
    report()
}

fn kernels() -> PathBuf {
    process::root().join("dart-kernels")
}

/// The Python that has the compiler and the assembler.
fn python() -> Result<PathBuf> {
    python::environment("ptx", &[COMPILER, ASSEMBLER], &["--no-deps"])
}

fn compile(arguments: &[&str]) -> Result<()> {
    let python = python()?;
    let mut compiler = process::command(&python.to_string_lossy());
    compiler
        .arg(kernels().join("cuda/compile_ptx.py"))
        .args(arguments);
    process::run(&mut compiler)
}

/// What one kernel takes of a GPU.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    kernel: String,
    registers: u32,
    /// Static shared memory, bytes.
    shared: u32,
    /// Bytes of local memory that registers are spilled to, stores and loads.
    spilled: u32,
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<24} {:>4} registers {:>6} B shared {:>4} B spilled",
            self.kernel, self.registers, self.shared, self.spilled
        )
    }
}

fn report() -> Result<()> {
    let python = python()?;
    let ptxas = find_assembler(&python)?;
    let mut spilling = Vec::new();
    for architecture in ["sm_80", "sm_90"] {
        println!("{architecture}");
        for file in ptx_files(architecture)? {
            for usage in usages(&assemble(&ptxas, architecture, &file)?) {
                println!("  {usage}");
                if usage.spilled > 0 {
                    spilling.push(format!("{} for {architecture}", usage.kernel));
                }
            }
        }
    }
    if !spilling.is_empty() {
        bail!("registers are spilled by {}", spilling.join(", "));
    }
    Ok(())
}

fn find_assembler(python: &Path) -> Result<PathBuf> {
    let line = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let packages = process::output(&python.to_string_lossy(), &["-c", line])
        .context("cannot ask Python for its packages")?;
    let ptxas = Path::new(&packages).join("nvidia/cuda_nvcc/bin/ptxas");
    if !ptxas.is_file() {
        bail!("{ASSEMBLER} holds no ptxas");
    }
    Ok(ptxas)
}

fn ptx_files(architecture: &str) -> Result<Vec<PathBuf>> {
    let end = format!(".{architecture}.ptx");
    let mut files: Vec<_> = std::fs::read_dir(kernels().join("ptx"))?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(&end))
        .collect();
    files.sort();
    Ok(files)
}

/// What ptxas says about a file.
fn assemble(ptxas: &Path, architecture: &str, file: &Path) -> Result<String> {
    let output = process::command(&ptxas.to_string_lossy())
        .args(["-v", "-arch", architecture, "-o", "/dev/null"])
        .arg(file)
        .output()
        .context("cannot start ptxas")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("ptxas refuses {}:\n{text}", file.display());
    }
    Ok(text)
}

fn usages(report: &str) -> Vec<Usage> {
    let mut usages: Vec<Usage> = Vec::new();
    for line in report.lines() {
        if let Some(name) = between(line, "Compiling entry function '", "'") {
            usages.push(Usage {
                kernel: name.to_owned(),
                ..Usage::default()
            });
        } else if let Some(usage) = usages.last_mut() {
            let number = |unit| number_before(line, unit).unwrap_or(0);
            usage.registers += number(" registers");
            usage.shared += number(" bytes smem");
            usage.spilled += number(" bytes spill stores") + number(" bytes spill loads");
        }
    }
    usages.sort_by(|a, b| a.kernel.cmp(&b.kernel));
    usages
}

fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

fn number_before(line: &str, unit: &str) -> Option<u32> {
    let (before, _) = line.split_once(unit)?;
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let report = "\
ptxas info    : 304 bytes gmem
ptxas info    : Compiling entry function 'rl_stats_f32' for 'sm_90'
ptxas info    : Function properties for rl_stats_f32
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 240 bytes smem
ptxas info    : Compiling entry function 'importance_weights' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers";
        let usage = |kernel: &str, registers, shared, spilled| Usage {
            kernel: kernel.into(),
            registers,
            shared,
            spilled,
        };
        let expected = vec![
            usage("importance_weights", 16, 0, 0),
            usage("rl_stats_f32", 32, 240, 16),
        ];
        assert_eq!(usages(report), expected);
    }
}
