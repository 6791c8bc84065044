//! From the config's choice of environment to a factory and its tasks: one arm for each backend.

use std::sync::Arc;

use anyhow::Result;
use dart_core::{EnvironmentFactory, Split, Task};
use dart_curation::overlap::overlaps;
#[cfg(feature = "vnc")]
use dart_env_vnc::osworld::{HostExec, OsworldFactory};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{EnvironmentConfig, RunConfig},
    fault::Fault,
    held_out::HeldOut,
    session::Tasks,
};

/// A backend: what makes its environments, and its tasks.
#[derive(Clone)]
pub struct World {
    /// Makes environments.
    pub factory: Arc<dyn EnvironmentFactory>,
    /// Tasks of every split; the training split is never empty.
    tasks: Tasks,
}

impl World {
    /// A backend of the user's own.
    ///
    /// # Errors
    /// A [`Fault`] if there is no task to train on.
    pub fn new(
        factory: Arc<dyn EnvironmentFactory>,
        tasks: impl IntoIterator<Item = Task>,
    ) -> Result<Self> {
        let tasks: Vec<Task> = tasks.into_iter().collect();
        for overlap in overlaps(&tasks) {
            tracing::warn!("{overlap}; its held-out success says nothing");
        }
        let mut by_split = Tasks::new();
        for task in tasks {
            by_split.entry(task.split).or_default().push(Arc::new(task));
        }
        if by_split.get(&Split::Train).is_none_or(Vec::is_empty) {
            return Err(Fault::new("the environment has no training task")
                .remedy("name at least one family or task in [environment]")
                .into());
        }
        Ok(Self {
            factory,
            tasks: by_split,
        })
    }

    /// The backend that the config names.
    ///
    /// # Errors
    /// Those of the backend, naming the setting; a [`Fault`] for `kind = "external"`, which needs
    /// a program that hands a backend to [`run`](crate::run).
    pub fn of(
        config: &EnvironmentConfig,
        #[cfg_attr(not(feature = "vnc"), allow(unused_variables, reason = "for desktops"))]
        allow_host_exec: bool,
    ) -> Result<Self> {
        match config {
            #[cfg(feature = "adb")]
            EnvironmentConfig::AdbPhone(config) => {
                let tasks = every_split(|split| config.tasks(split))?;
                Self::new(
                    Arc::new(crate::adb_phone::AdbPhoneFactory::new(config.clone())),
                    tasks,
                )
            }
            #[cfg(feature = "adb")]
            EnvironmentConfig::Android(config) => {
                let tasks = every_split(|split| config.tasks(split))?;
                Self::new(
                    Arc::new(dart_env_adb::tasks::AndroidFactory::new(config.clone())?),
                    tasks,
                )
            }
            #[cfg(feature = "vnc")]
            EnvironmentConfig::Miniwob(config) => {
                let tasks = every_split(|split| config.tasks(split))?;
                Self::new(
                    Arc::new(dart_env_vnc::MiniwobFactory::new(config.clone())?),
                    tasks,
                )
            }
            #[cfg(feature = "vnc")]
            EnvironmentConfig::Osworld(config) => {
                let host_exec = if allow_host_exec {
                    HostExec::Allowed
                } else {
                    HostExec::Denied
                };
                let tasks = every_split(|split| config.tasks(split, host_exec))?;
                let factory = OsworldFactory::new(config.clone(), host_exec)?;
                Self::new(Arc::new(factory), tasks)
            }
            #[cfg(feature = "sim")]
            EnvironmentConfig::Sim(config) => {
                let tasks = every_split(|split| config.tasks(split))?;
                Self::new(
                    Arc::new(dart_env_sim::SimFactory::new(config.clone())?),
                    tasks,
                )
            }
            EnvironmentConfig::External => Err(Fault::new(
                "environment.kind = \"external\" has no backend in this program",
            )
            .remedy("see docs/adding-an-environment.md, or choose kind = \"sim\"")
            .into()),
        }
    }

    /// The tasks of one split.
    pub(crate) fn tasks(&self, split: Split) -> Vec<Arc<Task>> {
        self.tasks.get(&split).cloned().unwrap_or_default()
    }

    /// Evaluation on the held-out tasks.
    pub(crate) fn held_out(&self, config: &RunConfig, cancel: CancellationToken) -> HeldOut {
        HeldOut {
            config: config.evaluation.clone(),
            rollout: config.rollout.clone(),
            tasks: self.tasks.clone(),
            factory: Arc::clone(&self.factory),
            cancel,
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("tasks", &self.tasks)
            .finish_non_exhaustive()
    }
}

fn every_split(tasks: impl Fn(Split) -> dart_core::Result<Vec<Task>>) -> Result<Vec<Task>> {
    let mut all = Vec::new();
    for split in Split::ALL {
        all.extend(tasks(split)?);
    }
    Ok(all)
}
