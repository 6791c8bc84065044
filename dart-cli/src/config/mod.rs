//! [`RunConfig`]: one TOML file describes one experiment.

mod load;
mod prefill;
mod presets;
mod wording;

use std::path::Path;

use anyhow::Context as _;
use dart_core::Split;
use dart_curation::{CurationConfig, SqliteConfig};
use dart_policy::{ModelConfig, PolicyConfig};
use dart_rollout::{PoolConfig, RolloutConfig};
use dart_trainer::TrainerConfig;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

pub use load::{from_text, load};
pub use prefill::PrefillConfig;

use crate::{fault::Fault, simulated::Latencies};

/// The experiment that runs when none is named.
pub const DEFAULT_CONFIG: &str = "configs/sim-cpu.toml";

/// One experiment. In a file, `trainer.preset` chooses a whole method: the loss, and what is left
/// out in `curation.advantage` and `curation.overlong`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, deny_unknown_fields)]
pub struct RunConfig {
    /// Name of the experiment; run folders are named after it.
    pub name: String,
    /// Seeds weights, tasks, draws and batches. Default 0.
    pub seed: u64,
    /// Which clock the ring runs on. Default real.
    pub clock: ClockConfig,
    /// What the agent acts in.
    pub environment: EnvironmentConfig,
    /// The model that acts and learns.
    pub model: ModelConfig,
    /// The policy workers.
    pub policy: PolicySection,
    /// Imitation of scripted experts before reinforcement learning.
    pub warm_start: WarmStartConfig,
    /// What the experience pool is filled with beforehand.
    pub prefill: PrefillConfig,
    /// What is rolled out and what is trained on.
    pub curation: CurationConfig,
    /// How trajectories are stored, and how long.
    pub store: SqliteConfig,
    /// The cluster of environments.
    pub rollout: RolloutConfig,
    /// The learner.
    pub trainer: TrainerConfig,
    /// How long reinforcement learning goes on.
    pub training: TrainingConfig,
    /// Evaluation on held-out tasks.
    pub evaluation: EvaluationConfig,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            name: "run".into(),
            seed: 0,
            clock: ClockConfig::Real,
            environment: EnvironmentConfig::default(),
            model: ModelConfig::default(),
            policy: PolicySection::default(),
            warm_start: WarmStartConfig::default(),
            prefill: PrefillConfig::default(),
            curation: CurationConfig::default(),
            store: SqliteConfig::default(),
            rollout: RolloutConfig::default(),
            trainer: TrainerConfig::default(),
            training: TrainingConfig::default(),
            evaluation: EvaluationConfig::default(),
        }
    }
}

/// Which clock the ring runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ClockConfig {
    /// The machine's. Policy and learner compute on threads of their own.
    #[default]
    Real,
    /// A simulated one that jumps from event to event. Everything runs on one thread, trajectories
    /// are kept in memory, and the same seed and config give the same event log.
    Simulated {
        /// How long things take.
        #[serde(default)]
        latencies: Latencies,
    },
}

/// What the agent acts in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EnvironmentConfig {
    /// The simulator's phone behind a real ADB server.
    #[cfg(feature = "adb")]
    AdbPhone(crate::adb_phone::AdbPhoneConfig),
    /// Android devices and emulators, and a file of tasks.
    #[cfg(feature = "adb")]
    Android(dart_env_adb::tasks::AndroidConfig),
    /// Real web pages (MiniWoB++) in a real browser on a real desktop, over VNC.
    #[cfg(feature = "vnc")]
    Miniwob(dart_env_vnc::MiniwobConfig),
    /// Native programs on real desktops (OSWorld's tasks), over VNC.
    #[cfg(feature = "vnc")]
    Osworld(dart_env_vnc::osworld::OsworldConfig),
    /// The embedded simulator.
    #[cfg(feature = "sim")]
    Sim(dart_env_sim::SimConfig),
    /// A factory handed to [`run`](crate::run) by a program of the user's.
    External,
}

impl Default for EnvironmentConfig {
    fn default() -> Self {
        #[cfg(feature = "sim")]
        return Self::Sim(dart_env_sim::SimConfig::default());
        #[cfg(not(feature = "sim"))]
        return Self::External;
    }
}

/// The policy workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySection {
    /// Workers, each with its own copy of the weights and its own thread. Default 1: a machine of
    /// two cores has one for sampling and one for learning.
    pub workers: usize,
    /// Each worker.
    pub worker: PolicyConfig,
    /// Routing and weight sync.
    pub pool: PoolConfig,
}

impl Default for PolicySection {
    fn default() -> Self {
        Self {
            workers: 1,
            worker: PolicyConfig::default(),
            pool: PoolConfig::default(),
        }
    }
}

/// Imitation of scripted experts before reinforcement learning. It stands for the pretrained model
/// that the method starts from (arXiv 2509.23866 §4.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarmStartConfig {
    /// Whether there is one. Default true.
    pub enabled: bool,
    /// Ends it after this many seconds. Default 120.
    pub max_seconds: f64,
    /// Ends it after this many learner steps. Default 100,000: the seconds decide.
    pub max_steps: u64,
    /// Samples of one learner step. Default 128.
    pub batch_samples: usize,
    /// Environments in which experts act. Default 1: the simulator's need no more.
    pub environments: usize,
    /// Demonstrations to collect; afterwards those are used again. Default none: endless.
    pub demonstrations: Option<usize>,
    /// Demonstrations kept in memory; the oldest leave. Default 1024.
    pub buffer: usize,
    /// Times that a demonstration is used before it leaves the buffer, while new ones come in.
    /// Default 1.
    pub reuse: u32,
    /// Probability of a random click before each action of the expert, which shows how to go on
    /// from states that the expert alone never reaches. Default 0.
    pub perturb: f64,
    /// Instances of each task whose demonstration enters the experience pool. Default 32.
    pub pool_seeds: u64,
    /// Seconds between two checkpoints of the warm start. Default 30.
    pub checkpoint_every_seconds: f64,
}

impl Default for WarmStartConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            max_seconds: 120.0,
            max_steps: 100_000,
            batch_samples: 128,
            environments: 1,
            demonstrations: None,
            buffer: 1024,
            reuse: 1,
            perturb: 0.0,
            pool_seeds: 32,
            checkpoint_every_seconds: 30.0,
        }
    }
}

/// How long reinforcement learning goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// Ends it after this many seconds on the run's clock. Default 240.
    pub max_seconds: f64,
    /// Ends it after this many learner steps. Default 1,000,000: the seconds decide.
    pub max_steps: u64,
    /// Ends it after this many steps of its environments, at the end of a learner step: a budget
    /// that does not depend on how fast the machine is. Default none.
    pub max_environment_steps: Option<u64>,
    /// Learner steps between two checkpoints. Default 50.
    pub checkpoint_every: u64,
    /// Checkpoints kept. Default 3.
    pub keep_checkpoints: usize,
    /// Whether events.jsonl names every episode on the real clock too. Default false: there are a
    /// thousand a second, and each is in the store.
    pub log_episodes: bool,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            max_seconds: 240.0,
            max_steps: 1_000_000,
            max_environment_steps: None,
            checkpoint_every: 50,
            keep_checkpoints: 3,
            log_episodes: false,
        }
    }
}

/// Evaluation on held-out tasks: greedy, with seeds and layouts that training never sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationConfig {
    /// Episodes of each task family and split. Default 40: a standard error of 8 points for one
    /// family, 2.5 for the mean of ten.
    pub episodes: u64,
    /// Episodes of each family and split before any learning. Default 10.
    pub untrained_episodes: u64,
    /// Environments at once. Default 32.
    pub environments: usize,
    /// Environment steps of training between two evaluations, whose results make the `curve` of
    /// summary.json. Default none: they take time away from training.
    pub every_environment_steps: Option<u64>,
    /// Which held-out splits. Default both.
    pub splits: Vec<Split>,
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self {
            episodes: 40,
            untrained_episodes: 10,
            environments: 32,
            every_environment_steps: None,
            splits: vec![Split::Layouts, Split::Words],
        }
    }
}

impl Serialize for RunConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for RunConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = toml::Table::deserialize(deserializer)?;
        presets::complete(&mut table);
        Self::deserialize(toml::Value::Table(table)).map_err(D::Error::custom)
    }
}

impl RunConfig {
    /// Checks what a type alone cannot, before anything is started.
    ///
    /// # Errors
    /// A [`Fault`] or [`Config`](dart_core::ErrorKind::Config) error that names the key.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.model.validate().context("in [model]")?;
        self.curation.validate().context("in [curation]")?;
        self.rollout.validate().context("in [rollout]")?;
        self.trainer.validate().context("in [trainer]")?;
        let positive = [
            ("policy.workers", self.policy.workers as f64),
            ("warm_start.max_seconds", self.warm_start.max_seconds),
            (
                "warm_start.checkpoint_every_seconds",
                self.warm_start.checkpoint_every_seconds,
            ),
            (
                "warm_start.batch_samples",
                self.warm_start.batch_samples as f64,
            ),
            (
                "warm_start.environments",
                self.warm_start.environments as f64,
            ),
            ("warm_start.buffer", self.warm_start.buffer as f64),
            ("warm_start.reuse", f64::from(self.warm_start.reuse)),
            ("training.max_seconds", self.training.max_seconds),
            (
                "training.checkpoint_every",
                self.training.checkpoint_every as f64,
            ),
            (
                "training.keep_checkpoints",
                self.training.keep_checkpoints as f64,
            ),
            ("evaluation.episodes", self.evaluation.episodes as f64),
            (
                "evaluation.environments",
                self.evaluation.environments as f64,
            ),
        ];
        let budgets = [
            (
                "training.max_environment_steps",
                self.training.max_environment_steps,
            ),
            (
                "evaluation.every_environment_steps",
                self.evaluation.every_environment_steps,
            ),
        ];
        if let Some((key, _)) = budgets.iter().find(|(_, steps)| *steps == Some(0)) {
            let remedy = "it must be above 0, or left out";
            return Err(Fault::new(format!("{key} is 0")).remedy(remedy).into());
        }
        if let Some((key, value)) = positive.iter().find(|(_, v)| !v.is_finite() || *v <= 0.0) {
            return Err(Fault::new(format!("{key} is {value}"))
                .remedy("it must be above 0")
                .into());
        }
        if !(0.0..=1.0).contains(&self.warm_start.perturb) {
            return Err(Fault::new("warm_start.perturb is a probability, 0 to 1").into());
        }
        Ok(())
    }

    /// The resolved config as TOML.
    ///
    /// # Errors
    /// Never for a config that was read from TOML.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        Ok(toml::to_string_pretty(self)?)
    }

    /// Reads the experiment of a command line: the file (or the default), overrides and seed.
    ///
    /// # Errors
    /// A [`Fault`] that names the file, line or key.
    pub fn resolve(
        file: Option<&Path>,
        overrides: &[String],
        seed: Option<u64>,
    ) -> anyhow::Result<Self> {
        let mut config: Self = load(file.unwrap_or(Path::new(DEFAULT_CONFIG)), overrides)?;
        config.seed = seed.unwrap_or(config.seed);
        config.validate()?;
        Ok(config)
    }
}
