//! `arrows`: every dependency between our crates points the way DESIGN says, and outside crates
//! that belong to one layer stay in it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process;

/// What each of our crates may depend on (normal and build dependencies).
const ALLOWED: &[(&str, &[&str])] = &[
    ("dart-core", &[]),
    ("dart-kernels", &[]),
    ("xtask", &[]),
    ("dart-testkit", &["dart-core"]),
    ("dart-env-adb", &["dart-core"]),
    ("dart-env-sim", &["dart-core"]),
    ("dart-env-vnc", &["dart-core"]),
    ("dart-rollout", &["dart-core"]),
    ("dart-curation", &["dart-core"]),
    ("dart-policy", &["dart-core", "dart-kernels"]),
    (
        "dart-trainer",
        &["dart-core", "dart-kernels", "dart-policy"],
    ),
    (
        "dart-cli",
        &[
            "dart-core",
            "dart-curation",
            "dart-env-adb",
            "dart-env-sim",
            "dart-env-vnc",
            "dart-policy",
            "dart-rollout",
            "dart-trainer",
        ],
    ),
];

/// Outside crates that only some of ours may use.
const CONFINED: &[(&str, &[&str])] = &[
    ("anyhow", &["dart-cli", "xtask"]),
    (
        "candle-core",
        &["dart-kernels", "dart-policy", "dart-trainer"],
    ),
    ("cudarc", &["dart-kernels"]),
    ("gemm", &["dart-kernels"]),
    ("gemm", &["dart-kernels"]),
    ("sqlx", &["dart-curation"]),
];

/// What dart-core may depend on: no I/O, no tensors.
const CORE: &[&str] = &["async-trait", "serde", "serde_json", "thiserror", "tokio"];

pub(crate) fn run() -> Result<()> {
    let text = process::output("cargo", &["metadata", "--no-deps", "--format-version", "1"])
        .context("`cargo metadata` failed")?;
    let graph = graph(&serde_json::from_str(&text)?)?;
    let faults = faults(&graph);
    if faults.is_empty() {
        println!(
            "arrows: {} crates, all dependencies point down",
            graph.len()
        );
        return Ok(());
    }
    bail!("wrong dependencies:\n  {}", faults.join("\n  "))
}

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Crate → its normal and build dependencies.
fn graph(metadata: &Value) -> Result<Graph> {
    let packages = metadata["packages"]
        .as_array()
        .context("metadata has packages")?;
    let mut graph = Graph::new();
    for package in packages {
        let name = package["name"].as_str().context("a package has a name")?;
        let dependencies = package["dependencies"]
            .as_array()
            .context("a package has a list")?;
        let kept = dependencies
            .iter()
            .filter(|dependency| dependency["kind"] != "dev");
        let names = kept.filter_map(|dependency| dependency["name"].as_str());
        graph.insert(name.to_owned(), names.map(str::to_owned).collect());
    }
    Ok(graph)
}

fn faults(graph: &Graph) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, dependencies) in graph {
        let Some((_, allowed)) = ALLOWED.iter().find(|(crate_name, _)| crate_name == name) else {
            faults.push(format!("{name} is not in the table of xtask/src/arrows.rs"));
            continue;
        };
        for dependency in dependencies {
            let dependency = dependency.as_str();
            let ours = graph.contains_key(dependency);
            let confined = CONFINED.iter().find(|(outside, _)| *outside == dependency);
            let wrong = (ours && !allowed.contains(&dependency))
                || confined.is_some_and(|(_, users)| !users.contains(&name.as_str()))
                || (name == "dart-core" && !CORE.contains(&dependency));
            if wrong {
                faults.push(format!("{name} → {dependency}"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph_of(edges: &[(&str, &[&str])]) -> Graph {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        edges
            .iter()
            .map(|(name, names)| ((*name).to_owned(), set(names)))
            .collect()
    }

    #[test]
    fn wrong_arrows_are_found() {
        let good = graph_of(&[
            ("dart-core", &["serde"]),
            ("dart-rollout", &["dart-core", "tokio"]),
        ]);
        assert_eq!(faults(&good), Vec::<String>::new());
        let bad = graph_of(&[
            ("dart-core", &["candle-core"]),
            ("dart-curation", &["dart-core"]),
            ("dart-rollout", &["anyhow", "dart-curation"]),
            ("dart-unknown", &[]),
        ]);
        assert_eq!(faults(&bad).len(), 4);
    }
}
