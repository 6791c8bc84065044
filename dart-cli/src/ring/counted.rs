//! Environments whose steps are counted: the budget that a loaded machine does not change.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use dart_core::{
    Action, Demonstrate, EnvSpec, Environment, EnvironmentFactory, Reset, Result, Reward,
    StepOutcome, Task,
};

/// A factory that counts the steps of all its environments, those of aborted episodes too.
pub(crate) struct CountedFactory {
    inner: Arc<dyn EnvironmentFactory>,
    steps: Arc<AtomicU64>,
}

impl CountedFactory {
    /// Counts from `before` on.
    pub(crate) fn new(inner: Arc<dyn EnvironmentFactory>, before: u64) -> Self {
        Self {
            inner,
            steps: Arc::new(AtomicU64::new(before)),
        }
    }

    /// The counter.
    pub(crate) fn steps(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.steps)
    }
}

#[async_trait]
impl EnvironmentFactory for CountedFactory {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        Ok(Box::new(CountedEnvironment {
            inner: self.inner.create().await?,
            steps: self.steps(),
        }))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        self.inner.create_demonstrator().await
    }
}

struct CountedEnvironment {
    inner: Box<dyn Environment>,
    steps: Arc<AtomicU64>,
}

#[async_trait]
impl Environment for CountedEnvironment {
    fn spec(&self) -> &EnvSpec {
        self.inner.spec()
    }

    async fn reset(&mut self, task: &Task, seed: u64) -> Result<Reset> {
        self.inner.reset(task, seed).await
    }

    async fn step(&mut self, action: &Action) -> Result<StepOutcome> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.inner.step(action).await
    }

    async fn score(&mut self) -> Result<Reward> {
        self.inner.score().await
    }

    async fn close(&mut self) -> Result<()> {
        self.inner.close().await
    }
}
