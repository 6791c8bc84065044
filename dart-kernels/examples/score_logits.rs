//! Scores a safetensors file of logits: log-probability of each target and entropy of each row.
//!
//! ```text
//! cargo run --release -p dart-kernels --example score_logits -- FILE [TEMPERATURE]
//! ```
//!
//! The file holds `logits` `[rows, vocab]` (f32, bf16, f16 or f64) and `targets` `[rows]` (u32 or
//! i64). Without FILE a small one is written to the folder for temporary files and scored.

#![allow(clippy::print_stdout, reason = "its output is the result")]

use std::{collections::HashMap, path::PathBuf};

use candle_core::{DType, Device, Tensor, safetensors};
use dart_kernels::{Labels, Temperature, candle_op::row_stats};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let file = match arguments.next() {
        Some(file) => PathBuf::from(file),
        None => demonstration()?,
    };
    let temperature = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let (logits, targets) = read(&file)?;
    let labels = Labels {
        temperature: Temperature::Shared(temperature),
        ..Labels::new(&targets)
    };
    let rows = row_stats(&logits, &labels)?;
    println!(
        "{:>6}{:>9}{:>14}{:>14}{:>12}",
        "row", "target", "log-prob", "1 - p", "entropy"
    );
    for (index, (row, target)) in rows.iter().zip(&targets).enumerate() {
        println!(
            "{index:>6}{target:>9}{:>14.6}{:>14.4e}{:>12.6}",
            row.log_prob, row.complement, row.entropy
        );
    }
    let finite = || rows.iter().filter(|row| row.is_finite());
    let count = finite().count();
    let nll = -finite().map(|row| row.log_prob).sum::<f64>() / count.max(1) as f64;
    println!(
        "mean negative log-likelihood {nll:.6}, perplexity {:.4}",
        nll.exp()
    );
    println!("rows without a distribution: {}", rows.len() - count);
    Ok(())
}

/// Logits and targets of a file.
fn read(file: &PathBuf) -> Result<(Tensor, Vec<u32>), Failure> {
    let mut tensors = safetensors::load(file, &Device::Cpu)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let mut take = |name: &str| {
        let missing = || format!("{} has no tensor `{name}`", file.display());
        tensors.remove(name).ok_or_else(missing)
    };
    let (logits, targets) = (take("logits")?, take("targets")?);
    let numbers: Vec<i64> = targets.to_dtype(DType::I64)?.to_vec1()?;
    // A negative label lies outside the vocabulary, as any label beyond it: its row shows NaN.
    let target = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok((logits, numbers.into_iter().map(target).collect()))
}

/// A file of three rows: undecided, nearly certain, and with a masked half.
fn demonstration() -> Result<PathBuf, Failure> {
    let vocab = 1000;
    let masked = |i: usize| if i < 500 { f32::NEG_INFINITY } else { 0.0 };
    let rows = [
        vec![0f32; vocab],
        (0..vocab)
            .map(|i| if i == 7 { 30.0 } else { 0.0 })
            .collect(),
        (0..vocab).map(masked).collect(),
    ];
    let logits = Tensor::from_vec(rows.concat(), (rows.len(), vocab), &Device::Cpu)?;
    let targets = Tensor::new(&[3u32, 7, 900], &Device::Cpu)?;
    let file = std::env::temp_dir().join("dart-logits.safetensors");
    let tensors = [
        ("logits".to_owned(), logits),
        ("targets".to_owned(), targets),
    ];
    safetensors::save(&HashMap::from(tensors), &file)?;
    println!("wrote {}", file.display());
    Ok(file)
}
