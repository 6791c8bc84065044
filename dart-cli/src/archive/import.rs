//! `import`: trajectories of an export enter the store of a run that is not going on.

use std::sync::Arc;

use anyhow::{Context, Result};
use dart_core::ErrorKind;
use dart_curation::{SqliteStore, TrajectoryStore};
use dart_policy::Tokenizer;

use super::{Exported, format::check_tokens};
use crate::{args::ImportArgs, config::RunConfig, run_dir::RunDir, terminal};

/// Stores every line. What is stored already stays as it is, so a repetition is harmless.
pub(crate) async fn import(args: ImportArgs) -> Result<()> {
    let run = RunDir::open(&args.run_dir)?.locked()?;
    let config = RunConfig::resolve(Some(&run.config()), &[], None)?;
    let vocabulary = Tokenizer::new(&config.model).vocabulary();
    let store = SqliteStore::open_with(run.store(), config.store).await?;
    let mut exported = Exported::open(&args.from)?;
    let (mut stored, mut present) = (0u64, 0u64);
    while let Some(trajectory) = exported.next()? {
        check_tokens(&trajectory, vocabulary).with_context(|| exported.place())?;
        let known = store.get(trajectory.id).await.ok().flatten();
        match store.import(Arc::new(trajectory)).await {
            Ok(()) if known.is_none() => stored += 1,
            Ok(()) => present += 1,
            // Claimed or used: another trajectory of that name stays.
            Err(error) if error.kind() == ErrorKind::Misuse => present += 1,
            Err(error) => return Err(error).with_context(|| exported.place()),
        }
    }
    store.close().await?;
    terminal::print(format_args!(
        "{stored} trajectories stored, {present} were there already\n"
    ))
}
