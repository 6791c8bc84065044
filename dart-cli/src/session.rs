//! Everything that a run holds, joined: the only place where the parts meet.

mod parts;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use dart_core::{
    BatchId, Curator, DemonstrationEncoder, EnvironmentFactory, Policy, PolicyVersion, Sampling,
    Split, Task, Trajectory, fault,
};
use dart_curation::{CuratorCheckpoint, DataManager, Recovered, TrajectoryStore, imitation_batch};
use dart_policy::{Encoder, VlmModel};
use dart_rollout::PolicyPool;
use dart_trainer::{Checkpoint, CheckpointDir, LearnerHandle, Sealed};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::parts::{is_full, learner, move_files, policies, reset_folder, store};
use crate::{
    archive::mending,
    config::{ClockConfig, RunConfig},
    demonstrations::Experts,
    events::{EventFile, RunEvent},
    fault::Fault,
    held_out::HeldOut,
    report::Summary,
    ring::RingState,
    run_dir::{JsonLines, RunDir},
    simulated::SlowFactory,
    terminal::tell,
    warm_start::WarmStartReport,
    wiring::World,
};

const STATE: &str = "run.json";
const CURATOR: &str = "curator.json";

/// Pause between two tries to write a checkpoint while the disk is full.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// Trajectories whose steps are scored in one pass.
const SCORED_AT_ONCE: usize = 64;

/// What a checkpoint knows of the run, besides learner and curator.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RunState {
    pub(crate) ring: RingState,
    pub(crate) summary: Summary,
    /// How far the warm start had come, if it was not over yet.
    #[serde(default)]
    pub(crate) warm_start: Option<WarmStartReport>,
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
    /// Seconds of training before this process went on, and when it did.
    trained: (f64, Instant),
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
            config.clock != ClockConfig::Real || config.training.log_episodes,
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
            trained: (0.0, Instant::now()),
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
            skip: 0,
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

    /// Writes a checkpoint of the whole run at a point of reinforcement learning.
    pub(crate) async fn checkpoint(&mut self, ring: RingState) -> Result<()> {
        self.write_checkpoint(ring, None).await
    }

    /// Writes a checkpoint in the middle of the warm start.
    pub(crate) async fn checkpoint_warm_start(&mut self, report: WarmStartReport) -> Result<()> {
        self.write_checkpoint(RingState::default(), Some(report))
            .await
    }

    /// Files first, then the pointer and what was used, in one transaction, then `LATEST`. A crash
    /// in between leaves the checkpoint before, or this one; the pointer in the store says which.
    async fn write_checkpoint(
        &mut self,
        ring: RingState,
        warm_start: Option<WarmStartReport>,
    ) -> Result<()> {
        let patience = Duration::from_secs(self.config.store.full_patience_seconds);
        let end = Instant::now() + patience;
        let mut told = false;
        let (curator, sealed) = loop {
            match self.write_files(ring, warm_start).await {
                Ok(written) => break written,
                Err(error) if is_full(&error) && Instant::now() < end => {
                    if !std::mem::replace(&mut told, true) {
                        let folder = self.run.path().display();
                        tell!("the disk that holds {folder} is full; waiting for room");
                    }
                    tokio::select! {
                        () = self.cancel.cancelled() => return Err(error),
                        () = tokio::time::sleep(FULL_PAUSE) => {}
                    }
                }
                Err(error) => return Err(error),
            }
        };
        let oldest_kept = sealed.oldest_kept()?;
        self.curator
            .seal(curator, sealed.name(), oldest_kept)
            .await?;
        fault::point("run.pointer-written");
        self.blocking(move || sealed.publish()).await?;
        let version = self.version.0;
        self.events.push(&RunEvent::Checkpoint { version });
        Ok(())
    }

    /// The files of a checkpoint, in their place, and what sealing them will write.
    async fn write_files(
        &mut self,
        ring: RingState,
        warm_start: Option<WarmStartReport>,
    ) -> Result<(CuratorCheckpoint, Sealed)> {
        let staging = self.run.path().join(".staging");
        reset_folder(&staging)?;
        self.learner.save(staging.clone()).await?;
        fault::point("run.learner-saved");
        self.curator.start_at(self.version);
        let curator = self.curator.checkpoint()?;
        std::fs::write(staging.join(CURATOR), &curator.snapshot)?;
        self.note_time();
        let state = RunState {
            ring,
            summary: self.summary.clone(),
            warm_start,
        };
        std::fs::write(staging.join(STATE), serde_json::to_vec_pretty(&state)?)?;
        let (checkpoints, version) = (self.checkpoints.clone(), self.version);
        let sealed = self.blocking(move || {
            let draft = checkpoints.begin(version)?;
            move_files(&staging, draft.path())?;
            draft.seal()
        });
        Ok((curator, sealed.await?))
    }

    /// Runs what waits for the disk; on the simulated clock at once.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> dart_core::Result<T> + Send + 'static,
    ) -> Result<T> {
        Ok(match self.config.clock {
            ClockConfig::Simulated { .. } => work()?,
            ClockConfig::Real => tokio::task::spawn_blocking(work).await??,
        })
    }

    /// Goes back to the newest valid checkpoint up to the pointer in the store, or up to `LATEST` if
    /// the store has none; `None` if there is none.
    pub(crate) async fn restore(&mut self) -> Result<Option<RunState>> {
        let found = if let Some(pointer) = self.store.pointer().await? {
            self.checkpoints.newest_valid_up_to(pointer.version)?
        } else {
            self.insist_on_pointer()?;
            self.checkpoints.newest_valid()?
        };
        let Some(found) = found else {
            if !self.checkpoints.is_empty()? {
                let folder = self.run.checkpoints();
                let message = format!("no checkpoint in {} can be read", folder.display());
                let fault = Fault::new(message).remedy("begin anew in another folder");
                return Err(fault.into());
            }
            // Nothing of what is stored was trained on in the lineage that begins now.
            self.store.rewind(PolicyVersion(0)).await?;
            self.events.push(&RunEvent::Resumed {
                version: 0,
                taken_in: 0,
                left: 0,
            });
            return Ok(None);
        };
        let state = self.restore_from(&found).await.with_context(|| {
            format!("the checkpoint {} cannot be resumed", found.path.display())
        })?;
        Ok(Some(state))
    }

    /// `LATEST` is swapped after the pointer is written: with the one and without the other, the
    /// store is another one than the checkpoints belong to.
    fn insist_on_pointer(&self) -> Result<()> {
        let durable = self.config.clock == ClockConfig::Real;
        if !durable || !self.run.checkpoints().join("LATEST").exists() {
            return Ok(());
        }
        let store = self.run.store();
        let message = format!(
            "the store in {} knows no checkpoint of this run: it was lost or replaced",
            store.display()
        );
        Err(Fault::new(message).remedy(mending(&self.run)).into())
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
        let recovered = self.curator.recover().await?;
        self.events.push(&RunEvent::Resumed {
            version: found.version.0,
            taken_in: recovered.taken_in,
            left: recovered.left,
        });
        if recovered != Recovered::default() {
            tell!(
                "finished after the checkpoint: {} trajectories taken in, {} by weights that are lost",
                recovered.taken_in,
                recovered.left
            );
        }
        self.summary = state.summary.clone();
        self.trained.0 = self.summary.train_seconds;
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

    /// Finishes what is being stored and lets go of the folder.
    pub(crate) async fn close(&self) -> Result<()> {
        Ok(self.store.close().await?)
    }

    /// Every checkpoint knows how long training took so far, however it ends.
    fn note_time(&mut self) {
        let (before, start) = self.trained;
        self.summary.train_seconds = before + start.elapsed().as_secs_f64();
    }

    /// Writes `summary.json`, and what was found task by task to `tasks.json`.
    pub(crate) fn write_evaluation(&self, tasks: &impl Serialize) -> Result<()> {
        self.write_summary()?;
        self.run
            .write("tasks.json", &serde_json::to_vec_pretty(tasks)?)
    }

    /// Writes `summary.json`.
    pub(crate) fn write_summary(&self) -> Result<()> {
        self.run
            .write("summary.json", &serde_json::to_vec_pretty(&self.summary)?)
    }
}

/// Tasks of every split, shared.
pub(crate) type Tasks = BTreeMap<Split, Vec<Arc<Task>>>;
