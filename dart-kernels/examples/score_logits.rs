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
use dart_kernels::{Labels, RowStats, Temperature, candle_op::row_stats};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let file = match arguments.next() {
        Some(file) => PathBuf::from(file),
        None => demonstration()?,
    };
    let temperature = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let (logits, targets) = read(&file)?;
    // A label that is no index lies outside the vocabulary: its row shows NaN.
    let indices: Vec<u32> = targets
        .iter()
        .map(|target| u32::try_from(*target).unwrap_or(u32::MAX))
        .collect();
    let labels = Labels {
        temperature: Temperature::Shared(temperature),
        ..Labels::new(&indices)
    };
    // Errors are shown as texts, without the backtrace of the tensor library.
    let rows = row_stats(&logits, &labels).map_err(|error| error.to_string())?;
    print(&rows, &targets);
    Ok(())
}

fn print(rows: &[RowStats], targets: &[i64]) {
    println!(
        "{:>6} {:>12}{:>14}{:>14}{:>12}",
        "row", "target", "log-prob", "1 - p", "entropy"
    );
    for (index, (row, target)) in rows.iter().zip(targets).enumerate() {
        println!(
            "{index:>6} {target:>12}{:>14.6}{:>14.4e}{:>12.6}",
            row.log_prob, row.complement, row.entropy
        );
    }
    let finite: Vec<f64> = rows
        .iter()
        .filter(|row| row.is_finite())
        .map(|row| row.log_prob)
        .collect();
    // Nothing has no mean: it is NaN, not a perfect score.
    let nll = -finite.iter().sum::<f64>() / finite.len() as f64;
    println!(
        "mean negative log-likelihood {nll:.6}, perplexity {:.4}",
        nll.exp()
    );
    println!("rows without a distribution: {}", rows.len() - finite.len());
}

/// Logits and targets of a file.
fn read(file: &PathBuf) -> Result<(Tensor, Vec<i64>), Failure> {
    let mut tensors = safetensors::load(file, &Device::Cpu)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let mut take = |name: &str, rank: usize| {
        let tensor = tensors
            .remove(name)
            .ok_or_else(|| format!("{} has no tensor `{name}`", file.display()))?;
        if tensor.rank() != rank {
            let shape = tensor.dims();
            return Err(format!(
                "`{name}` has the shape {shape:?}, {rank} dimensions are needed"
            ));
        }
        Ok(tensor)
    };
    let (logits, targets) = (take("logits", 2)?, take("targets", 1)?);
    if !matches!(targets.dtype(), DType::U32 | DType::I64) {
        return Err(format!("`targets` are {:?}, u32 or i64 is needed", targets.dtype()).into());
    }
    Ok((logits, targets.to_dtype(DType::I64)?.to_vec1()?))
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
