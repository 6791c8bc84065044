//! `inspect`: what a run folder holds and whether it is whole.

use anyhow::Result;
use dart_curation::{Audit, SqliteArchive, StoreOverview, TrajectoryQuery};
use dart_trainer::CheckpointDir;
use serde::Serialize;

use crate::{args::InspectArgs, fault::Fault, run_dir::RunDir};

#[derive(Serialize)]
struct Findings {
    store: StoreOverview,
    /// Each checkpoint, and what is wrong with it.
    checkpoints: Vec<(String, Option<String>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<Audit>,
}

/// One stored trajectory as a line of JSON.
#[derive(Serialize)]
struct Row {
    id: String,
    group: u64,
    task: String,
    seed: u64,
    outcome: dart_core::Outcome,
    steps: u32,
    oldest_version: Option<u64>,
    newest_version: Option<u64>,
    used_in: Option<u64>,
    quarantined: Option<String>,
    has_steps: bool,
}

/// Prints, and fails if `--verify` finds something.
pub(crate) async fn inspect(args: InspectArgs) -> Result<()> {
    let run = RunDir::open(&args.run_dir)?;
    let archive = SqliteArchive::open(run.store()).await?;
    if args.trajectories {
        return rows(&archive).await;
    }
    let findings = Findings {
        store: archive.overview().await?,
        checkpoints: checkpoints(&run)?,
        audit: if args.verify {
            Some(archive.audit().await?)
        } else {
            None
        },
    };
    if args.json {
        println!("{}", serde_json::to_string(&findings)?);
    } else {
        print(&findings);
    }
    let damaged = findings
        .checkpoints
        .iter()
        .any(|(_, fault)| fault.is_some())
        || findings
            .audit
            .is_some_and(|audit| !audit.problems.is_empty());
    if args.verify && damaged {
        return Err(Fault::new("the run folder is damaged; the findings are above").into());
    }
    Ok(())
}

async fn rows(archive: &SqliteArchive) -> Result<()> {
    let query = TrajectoryQuery {
        limit: u32::MAX,
        ..TrajectoryQuery::default()
    };
    for found in archive.list(&query).await?.into_iter().rev() {
        let row = Row {
            id: found.id.to_string(),
            group: found.group.0,
            task: found.task.to_string(),
            seed: found.seed,
            outcome: found.outcome,
            steps: found.steps,
            oldest_version: found.oldest_version.map(|version| version.0),
            newest_version: found.newest_version.map(|version| version.0),
            used_in: found.used_in.map(|batch| batch.0),
            quarantined: found.quarantined,
            has_steps: found.has_body,
        };
        println!("{}", serde_json::to_string(&row)?);
    }
    Ok(())
}

fn checkpoints(run: &RunDir) -> Result<Vec<(String, Option<String>)>> {
    let Ok(folder) = std::fs::read_dir(run.checkpoints()) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in folder {
        let path = entry?.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        if let Some(name) = name.filter(|name| name.starts_with('v') && path.is_dir()) {
            let fault = CheckpointDir::check(&path).err();
            found.push((name, fault.map(|fault| fault.to_string())));
        }
    }
    found.sort();
    Ok(found)
}

fn print(findings: &Findings) {
    let store = &findings.store;
    println!("trajectories  {}", store.trajectories);
    println!("  with steps  {}", store.with_steps);
    println!("  successes   {}", store.successes);
    println!("  aborted     {}", store.aborted);
    println!("  used        {}", store.used);
    println!("  claimed     {}", store.claimed);
    println!("  quarantined {}", store.quarantined);
    println!("steps         {}", store.steps);
    println!("images        {} in the database", store.images);
    println!(
        "database      {:.1} MB, schema {}",
        store.bytes as f64 / 1e6,
        store.schema
    );
    match store.checkpoint {
        Some(version) => println!("pointer       version {version}"),
        None => println!("pointer       none"),
    }
    for (name, fault) in &findings.checkpoints {
        println!("{name}       {}", fault.as_deref().unwrap_or("whole"));
    }
    if let Some(audit) = &findings.audit {
        println!(
            "verified      {} trajectories, {} problems",
            audit.checked,
            audit.problems.len()
        );
        for problem in &audit.problems {
            println!("  {problem}");
        }
    }
}
