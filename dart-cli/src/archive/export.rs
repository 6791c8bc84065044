//! `export`: trajectories leave a run, which may be going on.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
};

use anyhow::{Context, Result};
use dart_curation::{SqliteArchive, TrajectoryQuery};

use super::{arrays::Arrays, format::Line};
use crate::{
    args::{ExportArgs, ExportFormat},
    fault::Fault,
    run_dir::RunDir,
};

/// Writes what the arguments choose.
pub(crate) async fn export(args: ExportArgs) -> Result<()> {
    let run = RunDir::open(&args.run_dir)?;
    let archive = SqliteArchive::open(run.store()).await?;
    if args.out.join("trajectories.jsonl").exists() {
        let message = format!("{} already holds an export", args.out.display());
        return Err(Fault::new(message).remedy("name another folder").into());
    }
    let images = args.out.join("images");
    fs::create_dir_all(&images).with_context(|| format!("cannot make {}", images.display()))?;
    let query = TrajectoryQuery {
        task: args.task.map(dart_core::TaskId::new).transpose()?,
        success: args.success,
        limit: args.limit,
    };
    let mut found = archive.list(&query).await?;
    // Oldest first, as they were made.
    found.reverse();
    let path = args.out.join("trajectories.jsonl");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut lines = BufWriter::new(file);
    let mut arrays = Arrays::default();
    let (mut written, mut damaged) = (0u64, 0u64);
    for summary in found {
        let trajectory = match archive.get(summary.id).await {
            Ok(Some(trajectory)) => trajectory,
            Ok(None) => continue,
            Err(error) => {
                eprintln!("left out: {error}");
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
    println!("{written} trajectories in {}", args.out.display());
    if damaged > 0 {
        eprintln!("{damaged} trajectories are damaged; `dart-rl inspect --verify` names them");
    }
    Ok(())
}
