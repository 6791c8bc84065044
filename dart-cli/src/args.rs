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
