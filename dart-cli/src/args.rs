//! The command line. A flag describes this invocation; the experiment is described by the config.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Trains and evaluates vision-language agents that operate graphical interfaces.
#[derive(Debug, Parser)]
#[command(name = "dart-rl", version, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a policy.
    Train(TrainArgs),
    /// Evaluate a checkpoint under any config.
    Eval(EvalArgs),
    /// Write a stored trajectory as PNG frames and one HTML page.
    Show(ShowArgs),
    /// Say what a run has stored, and whether it is whole; also while it goes on.
    Inspect(InspectArgs),
    /// Write stored trajectories as JSON lines and PNG images; also while the run goes on.
    Export(ExportArgs),
    /// Store the trajectories of an export in a run.
    Import(ImportArgs),
}

/// Which experiment.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// The experiment. Default: configs/sim-cpu.toml.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Overrides one setting, such as `trainer.learning_rate=1e-4`. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Seeds everything; overrides `seed` of the config.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Folder of the run. Default: a new folder under runs/.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Let task files and the config's evaluator run programs on this machine (OSWorld's tasks).
    #[arg(long)]
    pub allow_host_exec: bool,
}

/// Arguments of `train`.
#[derive(Args, Clone, Debug)]
pub struct TrainArgs {
    /// Which experiment.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Go on with the run in `--run-dir` from its newest valid checkpoint.
    #[arg(long, requires = "run_dir")]
    pub resume: bool,
    /// Print the resolved config and stop.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `eval`.
#[derive(Args, Clone, Debug)]
pub struct EvalArgs {
    /// Which experiment. Default: the config of the run that made the checkpoint.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// A run folder (its newest valid checkpoint) or one checkpoint folder.
    #[arg(long, value_name = "DIR")]
    pub checkpoint: PathBuf,
}

/// Arguments of `show`.
#[derive(Args, Clone, Debug)]
pub struct ShowArgs {
    /// The run folder.
    #[arg(long, value_name = "DIR")]
    pub run_dir: PathBuf,
    /// Which trajectory: 32 hexadecimal digits. Default: the newest.
    pub trajectory: Option<String>,
    /// List the stored trajectories instead.
    #[arg(long)]
    pub list: bool,
    /// Where to write. Default: RUN_DIR/show/TRAJECTORY.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Arguments of `inspect`.
#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// The run folder.
    #[arg(long, value_name = "DIR")]
    pub run_dir: PathBuf,
    /// Read everything and compare it with its checksums; fail if something is damaged.
    #[arg(long)]
    pub verify: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Print one JSON line for each trajectory instead, oldest first.
    #[arg(long, conflicts_with_all = ["verify", "json"])]
    pub trajectories: bool,
}

/// Arguments of `export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// The run folder.
    #[arg(long, value_name = "DIR")]
    pub run_dir: PathBuf,
    /// Where to write.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Of this task alone.
    #[arg(long)]
    pub task: Option<String>,
    /// Successes (`true`) or failures (`false`) alone.
    #[arg(long)]
    pub success: Option<bool>,
    /// The newest ones, at most this many.
    #[arg(long, default_value_t = 1000)]
    pub limit: u32,
    /// What to write besides the JSON lines.
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub format: ExportFormat,
}

/// What `export` writes.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// JSON lines and PNG images.
    Jsonl,
    /// The same, and the numbers of all steps as one safetensors file.
    Safetensors,
}

/// Arguments of `import`.
#[derive(Args, Clone, Debug)]
pub struct ImportArgs {
    /// The run folder; the run must not be going on.
    #[arg(long, value_name = "DIR")]
    pub run_dir: PathBuf,
    /// The folder that `export` wrote.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
}
