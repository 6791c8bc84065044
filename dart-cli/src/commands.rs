//! The commands: what each does, and on which runtime.

use std::{future::Future, io::IsTerminal, path::Path, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use dart_core::TrajectoryId;
use dart_curation::{SqliteArchive, TrajectoryQuery};
use dart_trainer::CheckpointDir;
use tokio_util::sync::CancellationToken;

use crate::{
    archive,
    args::{Cli, Command, ConfigArgs, EvalArgs, ShowArgs, TrainArgs},
    config::{ClockConfig, RunConfig},
    fault::{self, Fault},
    fault_points,
    held_out::success,
    report::Stage,
    run_dir::RunDir,
    session::Session,
    show, signals,
    task_report::TaskReport,
    terminal::{self, ReaderLeft, tell},
    train,
    wiring::World,
};

/// What `main` of the program does: parses the command line, runs, explains mistakes in one line.
pub fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("DART_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        // Colours are for people who look at it now; a line that nobody reads is no reason to panic.
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .log_internal_errors(false)
        .init();
    match run_command(Cli::parse().command) {
        Err(error) if !error.is::<ReaderLeft>() => {
            tell!("error: {}", fault::one_line(&error));
            ExitCode::from(fault::exit_code(&error))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn run_command(command: Command) -> Result<()> {
    fault_points::arm()?;
    match command {
        Command::Train(args) => train_command(&args, None),
        Command::Eval(args) => eval(&args),
        Command::Show(args) => block_on(ClockConfig::Real, |_| show_command(args)),
        Command::Inspect(args) => block_on(ClockConfig::Real, |_| archive::inspect(args)),
        Command::Export(args) => block_on(ClockConfig::Real, |_| archive::export(args)),
        Command::Import(args) => block_on(ClockConfig::Real, |_| archive::import(args)),
    }
}

/// Trains with a backend of the user's own, as `dart-rl train` does with the built-in ones.
///
/// # Errors
/// Those of `train`: mistakes in the config, a backend that cannot be used, a full disk.
pub fn run(args: &TrainArgs, world: World) -> Result<()> {
    train_command(args, Some(world))
}

fn train_command(args: &TrainArgs, world: Option<World>) -> Result<()> {
    let (config, run) = if args.resume {
        let run = RunDir::open(args.config.run_dir.as_deref().unwrap_or(Path::new(".")))?;
        (
            RunConfig::resolve(Some(&run.config()), &args.config.set, args.config.seed)?,
            Some(run),
        )
    } else {
        (resolve(&args.config)?, None)
    };
    if args.dry_run {
        return terminal::print(config.to_toml()?);
    }
    let world = world.map_or_else(
        || World::of(&config.environment, args.config.allow_host_exec),
        Ok,
    )?;
    let run = match run {
        Some(run) => run.locked()?,
        None => new_run(&args.config, &config)?,
    };
    let resume = args.resume;
    block_on(config.clock, move |cancel| async move {
        tell!("run folder: {}", run.path().display());
        let mut session = Session::open(config, run, world, cancel).await?;
        let trained = train::run(&mut session, resume).await;
        // The run is over, whether anybody reads its table or not.
        let _ = terminal::print(session.summary.table());
        let closed = session.close().await;
        trained.and(closed)
    })
}

fn resolve(args: &ConfigArgs) -> Result<RunConfig> {
    RunConfig::resolve(args.config.as_deref(), &args.set, args.seed)
}

fn new_run(args: &ConfigArgs, config: &RunConfig) -> Result<RunDir> {
    let run = RunDir::create(args.run_dir.as_deref(), &config.name)?;
    run.write("config.toml", config.to_toml()?.as_bytes())?;
    Ok(run)
}

fn eval(args: &EvalArgs) -> Result<()> {
    let checkpoint = find_checkpoint(&args.checkpoint)?;
    let made_by = checkpoint
        .parent()
        .and_then(Path::parent)
        .map(|run| run.join("config.toml"));
    let given = args
        .config
        .config
        .clone()
        .or(made_by.filter(|file| file.is_file()));
    let config = RunConfig::resolve(given.as_deref(), &args.config.set, args.config.seed)?;
    let world = World::of(&config.environment, args.config.allow_host_exec)?;
    let run = new_run(
        &args.config,
        &RunConfig {
            name: format!("eval-{}", config.name),
            ..config.clone()
        },
    )?;
    block_on(config.clock, move |cancel| async move {
        let episodes = config.evaluation.episodes;
        let mut session = Session::open(config, run, world, cancel).await?;
        session.load_weights(&checkpoint).await?;
        let found = session
            .held_out()
            .evaluations(session.policy(), episodes)
            .await?;
        let splits = found
            .iter()
            .map(|(split, found)| (split.clone(), success(found)));
        session
            .summary
            .held_out
            .insert(Stage::Final, splits.collect());
        let mut tasks = TaskReport::default();
        for (split, found) in found {
            tasks.add(&split, found);
        }
        session.write_evaluation(&tasks)?;
        session.close().await?;
        terminal::print(format_args!("{tasks}{}", session.summary.table()))
    })
}

/// A run folder, its folder of checkpoints, or one checkpoint: in any case one that is whole.
fn find_checkpoint(path: &Path) -> Result<std::path::PathBuf> {
    let nothing = || {
        Fault::new(format!("{} holds no valid checkpoint", path.display()))
            .remedy("name a run folder or one folder inside its checkpoints/")
    };
    if path.join("manifest.json").is_file() {
        return Ok(CheckpointDir::check(path)?.path);
    }
    let folder = [path.join("checkpoints"), path.to_path_buf()];
    let folder = folder
        .iter()
        .find(|folder| folder.is_dir())
        .ok_or_else(nothing)?;
    let newest = CheckpointDir::look(folder).newest_valid()?;
    Ok(newest.ok_or_else(nothing)?.path)
}

async fn show_command(args: ShowArgs) -> Result<()> {
    let run = RunDir::open(&args.run_dir)?;
    let given = args.trajectory.map(|text| text.parse()).transpose()?;
    let store = SqliteArchive::open(run.store()).await?;
    if args.list {
        return list(&store).await;
    }
    let id = which(&store, given).await?;
    let trajectory = store.get(id).await?.ok_or_else(|| {
        Fault::new(format!(
            "{} does not hold the steps of trajectory {id}",
            run.path().display()
        ))
        .remedy("list them with --list; store.retention says how many stay")
    })?;
    let out = args
        .out
        .unwrap_or_else(|| run.path().join("show").join(id.to_string()));
    show::write(&trajectory, &out)?;
    terminal::print(format_args!("{}\n", out.join("index.html").display()))
}

/// All that is stored, the latest first.
async fn list(store: &SqliteArchive) -> Result<()> {
    let query = TrajectoryQuery {
        limit: u32::MAX,
        ..TrajectoryQuery::default()
    };
    for found in store.list(&query).await? {
        let outcome = show::words::outcome(found.outcome);
        let (id, task, seed, steps) = (found.id, found.task, found.seed, found.steps);
        terminal::print(format_args!(
            "{id} {task} seed {seed}, {outcome}, {steps} steps\n"
        ))?;
    }
    Ok(())
}

async fn which(store: &SqliteArchive, given: Option<TrajectoryId>) -> Result<TrajectoryId> {
    if let Some(id) = given {
        return Ok(id);
    }
    let newest = store
        .list(&TrajectoryQuery {
            limit: 1,
            ..TrajectoryQuery::default()
        })
        .await?;
    let newest = newest.first().ok_or_else(|| {
        Fault::new("the run has no trajectories yet").remedy("wait until it has trained")
    })?;
    Ok(newest.id)
}

/// Runs on the runtime that the clock asks for; the token fires at the first signal.
fn block_on<F: Future<Output = Result<()>>>(
    clock: ClockConfig,
    work: impl FnOnce(CancellationToken) -> F,
) -> Result<()> {
    let mut builder = match clock {
        ClockConfig::Real => tokio::runtime::Builder::new_multi_thread(),
        ClockConfig::Simulated { .. } => tokio::runtime::Builder::new_current_thread(),
    };
    builder
        .enable_all()
        .start_paused(matches!(clock, ClockConfig::Simulated { .. }));
    let runtime = builder.build().context("cannot start the async runtime")?;
    runtime.block_on(async { work(signals::stop_on_signal()?).await })
}
