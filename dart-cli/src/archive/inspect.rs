//! `inspect`: what a run folder holds and whether it is whole.

use std::fmt;

use anyhow::Result;
use dart_core::ErrorKind;
use dart_curation::{Audit, SqliteArchive, StoreOverview, TrajectoryQuery};
use dart_trainer::CheckpointDir;
use serde::Serialize;

use super::mending;
use crate::{args::InspectArgs, fault::Fault, run_dir::RunDir, terminal};

#[derive(Serialize)]
struct Findings {
    /// `null` if it cannot be counted.
    store: Option<StoreOverview>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Each checkpoint, and what is wrong with it.
    checkpoints: Vec<(String, Option<String>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<Audit>,
}

impl Findings {
    /// Looks at all there is: what cannot be read hides nothing else.
    async fn of(run: &RunDir, verify: bool) -> Result<Self> {
        let mut findings = Self {
            store: None,
            problem: None,
            checkpoints: checkpoints(run)?,
            audit: None,
        };
        match SqliteArchive::open(run.store()).await {
            Ok(archive) => {
                match archive.overview().await {
                    Ok(store) => findings.store = Some(store),
                    Err(error) => findings.problem = Some(error.to_string()),
                }
                if verify {
                    findings.audit = Some(archive.audit().await);
                }
            }
            Err(error) if error.kind() == ErrorKind::Config => return Err(error.into()),
            Err(error) => findings.problem = Some(error.to_string()),
        }
        Ok(findings)
    }

    fn damaged(&self) -> bool {
        let torn = self.checkpoints.iter().any(|(_, fault)| fault.is_some());
        let audited = self.audit.as_ref();
        torn || self.problem.is_some() || audited.is_some_and(|audit| !audit.problems.is_empty())
    }
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
    if args.trajectories {
        return rows(&SqliteArchive::open(run.store()).await?).await;
    }
    let findings = Findings::of(&run, args.verify).await?;
    let shown = if args.json {
        terminal::print(format_args!("{}\n", serde_json::to_string(&findings)?))
    } else {
        terminal::print(&findings)
    };
    if findings.problem.is_some() || args.verify && findings.damaged() {
        let fault = Fault::new("the run folder is damaged; the findings are above");
        return Err(fault.remedy(mending(&run)).into());
    }
    shown
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
        terminal::print(format_args!("{}\n", serde_json::to_string(&row)?))?;
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

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(problem) = &self.problem {
            writeln!(f, "store         {problem}")?;
        }
        if let Some(store) = &self.store {
            overview(f, store)?;
        }
        for (name, fault) in &self.checkpoints {
            writeln!(f, "{name}       {}", fault.as_deref().unwrap_or("whole"))?;
        }
        let Some(audit) = &self.audit else {
            return Ok(());
        };
        let problems = audit.problems.len();
        writeln!(
            f,
            "verified      {} trajectories, {problems} problems",
            audit.checked
        )?;
        for problem in &audit.problems {
            writeln!(f, "  {problem}")?;
        }
        Ok(())
    }
}

fn overview(f: &mut fmt::Formatter<'_>, store: &StoreOverview) -> fmt::Result {
    let counts = [
        ("trajectories  ", store.trajectories),
        ("  with steps  ", store.with_steps),
        ("  successes   ", store.successes),
        ("  aborted     ", store.aborted),
        ("  used        ", store.used),
        ("  claimed     ", store.claimed),
        ("  quarantined ", store.quarantined),
        ("steps         ", store.steps),
    ];
    for (name, count) in counts {
        writeln!(f, "{name}{count}")?;
    }
    writeln!(f, "images        {} in the database", store.images)?;
    let megabytes = store.bytes as f64 / 1e6;
    writeln!(
        f,
        "database      {megabytes:.1} MB, schema {}",
        store.schema
    )?;
    match store.checkpoint {
        Some(version) => writeln!(f, "pointer       version {version}"),
        None => writeln!(f, "pointer       none"),
    }
}
