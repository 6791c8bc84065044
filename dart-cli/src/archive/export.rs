//! `export`: trajectories leave a run, which may be going on.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
};

use anyhow::{Context, Result};
use dart_core::{TaskId, TrajectoryId};
use dart_curation::{SqliteArchive, TrajectoryQuery};

use super::{arrays::Arrays, format::Line};
use crate::{
    args::{ExportArgs, ExportFormat},
    fault::Fault,
    run_dir::RunDir,
    terminal::{self, tell},
};

/// Writes what the arguments choose.
pub(crate) async fn export(args: ExportArgs) -> Result<()> {
    let run = RunDir::open(&args.run_dir)?;
    let archive = SqliteArchive::open(run.store()).await?;
    if args.out.join("trajectories.jsonl").exists() {
        let message = format!("{} already holds an export", args.out.display());
        return Err(Fault::new(message).remedy("name another folder").into());
    }
    let query = TrajectoryQuery {
        task: args.task.map(TaskId::new).transpose()?,
        success: args.success,
        limit: args.limit,
    };
    let (found, mut damaged) = find(&archive, &query).await?;
    let images = args.out.join("images");
    fs::create_dir_all(&images).with_context(|| format!("cannot make {}", images.display()))?;
    let path = args.out.join("trajectories.jsonl");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut lines = BufWriter::new(file);
    let mut arrays = Arrays::default();
    let mut written = 0u64;
    for id in found {
        let trajectory = match archive.get(id).await {
            Ok(Some(trajectory)) => trajectory,
            Ok(None) => continue,
            Err(error) => {
                tell!("left out: {error}");
                damaged += 1;
                continue;
            }
        };
        serde_json::to_writer(&mut lines, &Line::of(&trajectory, &args.out)?)?;
        lines.write_all(b"\n")?;
        if args.format == ExportFormat::Safetensors {
            arrays.push(&trajectory);
        }
        written += 1;
    }
    lines
        .into_inner()
        .context("cannot write the lines")?
        .sync_all()?;
    if args.format == ExportFormat::Safetensors {
        fs::write(args.out.join("trajectories.safetensors"), arrays.encode()?)?;
    }
    let shown = terminal::print(format_args!(
        "{written} trajectories in {}\n",
        args.out.display()
    ));
    if damaged > 0 {
        let message = format!("{damaged} trajectories are damaged and left out");
        let fault = Fault::new(message).remedy("`inspect --verify` names them");
        return Err(fault.into());
    }
    shown
}

/// What the query chooses, oldest first, and how many of those that it may mean cannot be read.
async fn find(
    archive: &SqliteArchive,
    query: &TrajectoryQuery,
) -> Result<(Vec<TrajectoryId>, u64)> {
    if let Some(task) = &query.task {
        know(archive, task).await?;
    }
    let error = match archive.list(query).await {
        Ok(found) => return Ok((found.iter().rev().map(|found| found.id).collect(), 0)),
        Err(error) => error,
    };
    tell!("the list is damaged, what can be found is written: {error}");
    let (mut found, mut damaged) = (Vec::new(), 0);
    for id in archive.salvage().await {
        match archive.get(id).await {
            Ok(Some(trajectory)) if query.matches(&trajectory) => found.push(id),
            Ok(_) => {}
            Err(error) => {
                tell!("left out: {error}");
                damaged += 1;
            }
        }
    }
    let old = found.len().saturating_sub(query.limit as usize);
    found.drain(..old);
    Ok((found, damaged.max(1)))
}

/// Refuses a task of which nothing is stored, naming those of which something is.
async fn know(archive: &SqliteArchive, task: &TaskId) -> Result<()> {
    // Without a list nobody can say that it is unknown.
    let Ok(known) = archive.tasks().await else {
        return Ok(());
    };
    if known.contains(task) {
        return Ok(());
    }
    let known: Vec<_> = known.iter().map(TaskId::as_str).collect();
    let fault = Fault::new(format!("nothing is stored of the task {task}"));
    let remedy = if known.is_empty() {
        "the run has no trajectories yet".to_owned()
    } else {
        format!("there is {}", known.join(", "))
    };
    Err(fault.remedy(remedy).into())
}
