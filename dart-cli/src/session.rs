//! Everything that a run holds, joined: the only place where the parts meet.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use anyhow::{Context, Result};
use dart_core::{
    BatchId, Curator, DemonstrationEncoder, EnvironmentFactory, Error, ErrorKind, Policy,
    PolicyVersion, Sampling, Split, Task, Trajectory,
};
use dart_curation::{
    DataManager, MemoryStore, SqliteConfig, SqliteStore, TrajectoryStore, imitation_batch,
};
use dart_policy::{Encoder, VlmModel, VlmPolicy};
use dart_rollout::PolicyPool;
use dart_trainer::{Checkpoint, CheckpointDir, GrpoLearner, LearnerHandle};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{ClockConfig, RunConfig},
    demonstrations::Experts,
    events::{EventFile, RunEvent},
    held_out::HeldOut,
    report::Summary,
    ring::RingState,
    run_dir::{JsonLines, RunDir},
    simulated::SlowFactory,
    wiring::World,
};

const STATE: &str = "run.json";
const CURATOR: &str = "curator.json";

/// Trajectories whose steps are scored in one pass.
const SCORED_AT_ONCE: usize = 64;

/// What a checkpoint knows of the run, besides learner and curator.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RunState {
    pub(crate) ring: RingState,
    pub(crate) summary: Summary,
}

/// Everything that a run holds.
pub(crate) struct Session {
    pub(crate) config: RunConfig,
    pub(crate) cancel: CancellationToken,
    pub(crate) learner: LearnerHandle,
    pub(crate) pool: Arc<PolicyPool>,
    pub(crate) curator: Arc<DataManager>,
    /// Environments of the ring; slow ones on the simulated clock.
    pub(crate) rollout_factory: Arc<dyn EnvironmentFactory>,
    pub(crate) events: EventFile,
    pub(crate) metrics: JsonLines,
    pub(crate) summary: Summary,
    world: World,
    encoder: Arc<dyn DemonstrationEncoder>,
    store: Arc<dyn TrajectoryStore>,
    checkpoints: CheckpointDir,
    run: RunDir,
    version: PolicyVersion,
}

impl Session {
    /// Builds every part of a run in `run`.
    pub(crate) async fn open(
        config: RunConfig,
        run: RunDir,
        world: World,
        cancel: CancellationToken,
    ) -> Result<Self> {
        let events = EventFile::new(
            run.lines("events.jsonl")?,
            config.clock != ClockConfig::Real,
        );
        let model = VlmModel::new(&config.model, config.seed)?;
        let pool = Arc::new(policies(&config, &model, &events)?);
        let encoder = Arc::new(Encoder::new(&model));
        let learner = learner(&config, model)?;
        let store = store(&config, &run).await?;
        let curator = DataManager::new(
            config.curation.clone(),
            world.tasks(Split::Train),
            config.seed,
            Arc::clone(&store),
        )?;
        let curator = Arc::new(curator.with_events(events.curation()));
        let rollout_factory = match config.clock {
            ClockConfig::Real => Arc::clone(&world.factory),
            ClockConfig::Simulated { latencies } => Arc::new(SlowFactory::new(
                Arc::clone(&world.factory),
                latencies,
                config.seed,
            )),
        };
        let checkpoints = CheckpointDir::open(run.checkpoints(), config.training.keep_checkpoints)?;
        let summary = Summary {
            name: config.name.clone(),
            seed: config.seed,
            ..Summary::default()
        };
        Ok(Self {
            metrics: run.lines("metrics.jsonl")?,
            version: PolicyVersion(0),
            config,
            cancel,
            learner,
            pool,
            curator,
            rollout_factory,
            events,
            summary,
            world,
            encoder,
            store,
            checkpoints,
            run,
        })
    }

    /// The learner's version.
    pub(crate) fn version(&self) -> PolicyVersion {
        self.version
    }

    pub(crate) fn set_version(&mut self, version: PolicyVersion) {
        self.version = version;
    }

    /// The pool as a policy.
    pub(crate) fn policy(&self) -> Arc<dyn Policy> {
        Arc::clone(&self.pool) as _
    }

    /// The scripted experts of the training tasks.
    pub(crate) fn experts(&self) -> Experts {
        Experts {
            factory: Arc::clone(&self.world.factory),
            encoder: Arc::clone(&self.encoder),
            tasks: self.world.tasks(Split::Train),
            perturb: self.config.warm_start.perturb,
            seed: self.config.seed,
            cancel: self.cancel.clone(),
        }
    }

    /// Evaluation on the held-out tasks.
    pub(crate) fn held_out(&self) -> HeldOut {
        self.world.held_out(&self.config, self.cancel.clone())
    }

    /// Hands the learner's weights to the policies. Returns once they are on their way.
    pub(crate) async fn publish(&mut self) -> Result<()> {
        let weights = self.learner.export().await?;
        self.version = weights.version;
        self.pool.publish(weights);
        Ok(())
    }

    /// Gives demonstrations the log-probs that the present weights give their tokens.
    pub(crate) async fn score(&self, shown: &mut [Trajectory], sampling: Sampling) -> Result<()> {
        for (index, part) in shown.chunks_mut(SCORED_AT_ONCE).enumerate() {
            let batch = imitation_batch(BatchId(index as u64), part)?;
            let scores = self.learner.score(batch).await?;
            let steps = part.iter_mut().flat_map(|trajectory| &mut trajectory.steps);
            for (step, score) in steps.zip(scores) {
                step.decision.rollout_log_probs = score.iter().map(|lp| lp.min(0.0)).collect();
                step.decision.temperature = sampling.temperature;
                step.decision.version = self.version;
            }
        }
        Ok(())
    }

    /// Writes a checkpoint of the whole run.
    pub(crate) async fn checkpoint(&mut self, ring: RingState) -> Result<()> {
        let staging = self.run.path().join(".staging");
        reset_folder(&staging)?;
        self.learner.save(staging.clone()).await?;
        std::fs::write(staging.join(CURATOR), self.curator.snapshot().await?)?;
        let state = RunState {
            ring,
            summary: self.summary.clone(),
        };
        std::fs::write(staging.join(STATE), serde_json::to_vec_pretty(&state)?)?;
        let (checkpoints, version) = (self.checkpoints.clone(), self.version);
        let write = move || checkpoints.write(version, |folder| move_files(&staging, folder));
        match self.config.clock {
            ClockConfig::Simulated { .. } => write()?,
            ClockConfig::Real => tokio::task::spawn_blocking(write).await??,
        };
        self.events
            .push(&RunEvent::Checkpoint { version: version.0 });
        Ok(())
    }

    /// Goes back to the newest valid checkpoint; `None` if there is none.
    pub(crate) async fn restore(&mut self) -> Result<Option<RunState>> {
        let Some(found) = self.checkpoints.newest_valid()? else {
            // Nothing of what is stored was trained on in the lineage that begins now.
            self.store.rewind(PolicyVersion(0)).await?;
            return Ok(None);
        };
        let state = self.restore_from(&found).await.with_context(|| {
            format!("the checkpoint {} cannot be resumed", found.path.display())
        })?;
        Ok(Some(state))
    }

    async fn restore_from(&mut self, found: &Checkpoint) -> Result<RunState> {
        if let Some(warning) = &found.warning {
            tracing::warn!("{warning}");
        }
        let state: RunState = serde_json::from_slice(&std::fs::read(found.path.join(STATE))?)?;
        self.learner.restore(found.path.clone()).await?;
        self.curator
            .restore(&std::fs::read(found.path.join(CURATOR))?)
            .await?;
        self.summary = state.summary.clone();
        self.publish().await?;
        self.pool.settled().await;
        Ok(state)
    }

    /// Loads the weights of one checkpoint, and nothing else of it.
    pub(crate) async fn load_weights(&mut self, checkpoint: &Path) -> Result<()> {
        self.learner.restore(checkpoint.to_path_buf()).await?;
        self.publish().await?;
        self.pool.settled().await;
        Ok(())
    }

    /// Writes `summary.json`.
    pub(crate) fn write_summary(&self) -> Result<()> {
        self.run
            .write("summary.json", &serde_json::to_vec_pretty(&self.summary)?)
    }
}

/// Policies of the run: `workers` copies of the model, each on its own thread.
fn policies(config: &RunConfig, model: &VlmModel, events: &EventFile) -> Result<PolicyPool> {
    let mut workers: Vec<Arc<dyn Policy>> = Vec::new();
    for _ in 0..config.policy.workers {
        let worker = &config.policy.worker;
        workers.push(match config.clock {
            ClockConfig::Real => Arc::new(VlmPolicy::spawn(model, worker)?),
            ClockConfig::Simulated { .. } => Arc::new(VlmPolicy::inline(model, worker)?),
        });
    }
    let sink = Arc::new(events.clone());
    Ok(PolicyPool::with(
        workers,
        config.policy.pool.clone(),
        Some(sink),
    )?)
}

fn learner(config: &RunConfig, model: VlmModel) -> Result<LearnerHandle> {
    let mut settings = config.trainer.clone();
    settings.seed = config.seed;
    let learner = Box::new(GrpoLearner::new(model, settings)?);
    Ok(match config.clock {
        ClockConfig::Real => LearnerHandle::spawn(learner)?,
        ClockConfig::Simulated { .. } => LearnerHandle::inline(learner),
    })
}

async fn store(config: &RunConfig, run: &RunDir) -> Result<Arc<dyn TrajectoryStore>> {
    Ok(match config.clock {
        ClockConfig::Real => {
            Arc::new(SqliteStore::open_with(&run.store(), SqliteConfig::default()).await?)
        }
        ClockConfig::Simulated { .. } => Arc::new(MemoryStore::new()),
    })
}

fn reset_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Moves every file of `from` into `to`, on the same file system.
fn move_files(from: &Path, to: &Path) -> dart_core::Result<()> {
    let moved = || -> std::io::Result<()> {
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            std::fs::rename(entry.path(), to.join(entry.file_name()))?;
        }
        std::fs::remove_dir(from)
    };
    moved().map_err(|error| {
        Error::new(
            ErrorKind::Storage,
            "dart-cli",
            "checkpoint",
            "files cannot be moved",
        )
        .with("folder", to.display())
        .caused_by(error)
    })
}

/// Tasks of every split, shared.
pub(crate) type Tasks = BTreeMap<Split, Vec<Arc<Task>>>;
