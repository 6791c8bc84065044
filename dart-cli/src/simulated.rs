//! Simulated latencies: environments that take (virtual) time.
//!
//! On the simulated clock nothing waits for real; an episode takes the time that these
//! latencies say. They come from seeds alone, so the same seed and config give the same event log
//! (invariant I8). Shapes and medians: lognormal, as fitted to the public logs of the method's
//! authors (median environment step 13.2 s, σ 0.5; median model call 6.7 s, σ 0.4).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dart_core::{
    Action, Demonstrate, EnvSpec, Environment, EnvironmentFactory, Reset, Result, Reward,
    StepOutcome, Task,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// How long things take on the simulated clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Latencies {
    /// Median of an environment step, model call included, milliseconds. Default 19,900.
    pub step_median_ms: f64,
    /// Spread of a step: σ of the logarithm. Default 0.5.
    pub step_sigma: f64,
    /// Median of a reset, milliseconds. Default 195,000.
    pub reset_median_ms: f64,
    /// Spread of a reset. Default 0.3.
    pub reset_sigma: f64,
    /// One learner step, milliseconds for each sample. Default 1,190.
    pub learner_sample_ms: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            step_median_ms: 19_900.0,
            step_sigma: 0.5,
            reset_median_ms: 195_000.0,
            reset_sigma: 0.3,
            learner_sample_ms: 1_190.0,
        }
    }
}

/// A factory whose environments take time.
pub(crate) struct SlowFactory {
    inner: Arc<dyn EnvironmentFactory>,
    latencies: Latencies,
    seed: u64,
    made: AtomicU64,
}

impl SlowFactory {
    pub(crate) fn new(inner: Arc<dyn EnvironmentFactory>, latencies: Latencies, seed: u64) -> Self {
        Self {
            inner,
            latencies,
            seed,
            made: AtomicU64::new(0),
        }
    }
}

#[async_trait]
impl EnvironmentFactory for SlowFactory {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        let inner = self.inner.create().await?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(self.made.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(Box::new(SlowEnvironment {
            inner,
            latencies: self.latencies,
            rng,
        }))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        self.inner.create_demonstrator().await
    }
}

struct SlowEnvironment {
    inner: Box<dyn Environment>,
    latencies: Latencies,
    rng: ChaCha8Rng,
}

impl SlowEnvironment {
    async fn pass(&mut self, median_ms: f64, sigma: f64) {
        let millis = median_ms * (sigma * standard_normal(&mut self.rng)).exp();
        tokio::time::sleep(Duration::from_micros((millis * 1e3) as u64)).await;
    }
}

/// Box and Muller's transform.
fn standard_normal(rng: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

#[async_trait]
impl Environment for SlowEnvironment {
    fn spec(&self) -> &EnvSpec {
        self.inner.spec()
    }

    async fn reset(&mut self, task: &Task, seed: u64) -> Result<Reset> {
        self.pass(self.latencies.reset_median_ms, self.latencies.reset_sigma)
            .await;
        self.inner.reset(task, seed).await
    }

    async fn step(&mut self, action: &Action) -> Result<StepOutcome> {
        self.pass(self.latencies.step_median_ms, self.latencies.step_sigma)
            .await;
        self.inner.step(action).await
    }

    async fn score(&mut self) -> Result<Reward> {
        self.inner.score().await
    }

    async fn close(&mut self) -> Result<()> {
        self.inner.close().await
    }
}
