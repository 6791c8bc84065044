//! The table after the measurements: medians, and how many times faster than the definition and
//! than candle's composition.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// Groups whose members are compared, and what they are compared with.
const COMPARED: [&str; 2] = ["log_prob_entropy", "rl_loss"];
const BASES: [&str; 2] = ["reference", "candle"];

/// Prints what the criterion folder holds of this and earlier measurements.
pub(crate) fn print() {
    let folder = folder();
    let Ok(entries) = fs::read_dir(&folder) else {
        return;
    };
    let mut groups: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    groups.sort();
    println!("\nmedians; GB/s of logits read (rl_loss: and written); times faster than …");
    println!(
        "{:<34}{:<12}{:>10}{:>8}{:>12}{:>9}",
        "", "", "ms", "GB/s", "reference", "candle"
    );
    for group in groups {
        print_group(&group);
    }
}

fn print_group(folder: &Path) {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    if !COMPARED.iter().any(|compared| name.starts_with(compared)) {
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut members: Vec<(String, f64, Option<f64>)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_string_lossy().into_owned();
            let time =
                read(&path.join("new/estimates.json"))?["median"]["point_estimate"].as_f64()?;
            let bytes = read(&path.join("new/benchmark.json"))?["throughput"]["Bytes"].as_f64();
            Some((name, time, bytes))
        })
        .collect();
    members.sort_by(|a, b| b.1.total_cmp(&a.1));
    let time = |of: &str| members.iter().find(|m| m.0 == of).map(|m| m.1);
    for (member, nanoseconds, bytes) in &members {
        print!("{name:<34}{member:<12}{:>10.3}", nanoseconds / 1e6);
        print!("{:>8.1}", bytes.unwrap_or_default() / nanoseconds);
        for base in BASES {
            let ratio = time(base).map(|base| format!("{:.1}x", base / nanoseconds));
            print!("{:>11}", ratio.unwrap_or_default());
        }
        println!();
    }
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Where criterion keeps its measurements: beside the profile folder of this program.
fn folder() -> PathBuf {
    if let Some(home) = std::env::var_os("CRITERION_HOME") {
        return home.into();
    }
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(3).unwrap_or(Path::new("target"));
    target.join("criterion")
}
