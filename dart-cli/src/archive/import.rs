//! `import`: trajectories of an export enter the store of a run that is not going on.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use dart_core::ErrorKind;
use dart_curation::{SqliteStore, TrajectoryStore};

use super::format::{Line, MAX_LINE};
use crate::{args::ImportArgs, config::RunConfig, run_dir::RunDir};

/// Stores every line. What is stored already stays as it is, so a repetition is harmless.
pub(crate) async fn import(args: ImportArgs) -> Result<()> {
    let run = RunDir::open(&args.run_dir)?;
    let config = RunConfig::resolve(Some(&run.config()), &[], None)?;
    let store = SqliteStore::open_with(run.store(), config.store).await?;
    let path = args.from.join("trajectories.jsonl");
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut lines = BufReader::new(file);
    let (mut number, mut stored, mut present) = (0u64, 0u64, 0u64);
    loop {
        let mut line = Vec::new();
        if lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        number += 1;
        let here = || format!("{}:{number}", path.display());
        ensure!(
            line.ends_with(b"\n"),
            "{}: the line is cut or too long",
            here()
        );
        let line: Line = serde_json::from_slice(&line).with_context(here)?;
        let trajectory = line.into_trajectory(&args.from).with_context(here)?;
        let known = store.get(trajectory.id).await.ok().flatten();
        match store.import(Arc::new(trajectory)).await {
            Ok(()) if known.is_none() => stored += 1,
            Ok(()) => present += 1,
            // Claimed or used: another trajectory of that name stays.
            Err(error) if error.kind() == ErrorKind::Misuse => present += 1,
            Err(error) => return Err(error).with_context(here),
        }
    }
    store.close().await?;
    println!("{stored} trajectories stored, {present} were there already");
    Ok(())
}
