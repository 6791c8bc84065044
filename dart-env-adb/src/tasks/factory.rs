//! [`AndroidFactory`]: devices and their tasks as environments.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dart_core::{
    Action, Demonstrate, Demonstrator, DeviceEnvironment, DeviceEnvironmentConfig, Environment,
    EnvironmentFactory, EpisodeEnd, Result, Reward, Split, Task, TaskDriver,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{AndroidTask, driver::AndroidDriver, load, snapshot::SnapshotHook};
use crate::{
    device::{AdbConfig, AdbDevice},
    error::AdbError,
};

/// The devices, and the file with their tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AndroidConfig {
    /// The devices. Each is used by one environment at a time.
    pub devices: Vec<AdbConfig>,
    /// The task file, or a folder of them: TOML, or AndroidEnv's textproto ([`load()`](super::load())).
    pub tasks: PathBuf,
    /// What the logged rewards of an episode have to sum up to for it to be worth 1, in place of what
    /// the tasks say. Default: what they say, which for AndroidEnv's is 1.
    pub full_reward: Option<f64>,
    /// How each device's state is restored before each episode. Default: it is not; the steps of a
    /// task make what they need.
    pub snapshot: Option<SnapshotHook>,
    /// Longest wait for a device that another environment uses, milliseconds. Default 60,000.
    pub wait_ms: u64,
    /// Deadlines of episodes.
    pub limits: DeviceEnvironmentConfig,
}

impl Default for AndroidConfig {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            tasks: PathBuf::new(),
            full_reward: None,
            snapshot: None,
            wait_ms: 60_000,
            limits: DeviceEnvironmentConfig::default(),
        }
    }
}

impl AndroidConfig {
    /// The tasks of a split.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming file and place.
    pub fn tasks(&self, split: Split) -> Result<Vec<Task>> {
        let tasks = load(&self.tasks)?.into_iter();
        let ours = tasks.filter(|task| task.split == split);
        ours.map(|mut task| {
            if let (Some(full), Some(reward)) = (self.full_reward, &mut task.reward) {
                reward.full = full;
                let compiled = reward.compile();
                compiled.map_err(|error| error.at("load tasks"))?;
            }
            task.task()
        })
        .collect()
    }

    /// Whether there are devices, each named once.
    fn check(&self) -> Result<(), AdbError> {
        let mut seen = BTreeSet::new();
        for device in &self.devices {
            if !seen.insert((&device.server, &device.serial)) {
                let message = format!("environment.devices names {:?} twice", device.serial);
                return Err(AdbError::Config(message));
            }
            if let Some(hook) = &self.snapshot {
                hook.check(&device.serial)?;
            }
        }
        if seen.is_empty() {
            let message =
                "environment.devices names no device: `adb devices` lists those there are";
            return Err(AdbError::Config(message.into()));
        }
        Ok(())
    }
}

/// Makes environments out of devices; one that is closed or dropped gives its device back.
#[derive(Debug)]
pub struct AndroidFactory {
    config: AndroidConfig,
    free: Arc<Mutex<Vec<AdbConfig>>>,
    permits: Arc<Semaphore>,
}

impl AndroidFactory {
    /// Checks `config`; connects to nothing yet.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if there is no device, or one is named twice.
    pub fn new(config: AndroidConfig) -> Result<Self> {
        config.check().map_err(|error| error.at("devices"))?;
        for device in &config.devices {
            device.target()?;
        }
        let mut free = config.devices.clone();
        free.reverse();
        Ok(Self {
            permits: Arc::new(Semaphore::new(free.len())),
            free: Arc::new(Mutex::new(free)),
            config,
        })
    }

    async fn environment(&self) -> Result<DeviceEnvironment<AdbDevice, LeasedDriver>> {
        let lease = self.lease().await?;
        let device = AdbDevice::connect(lease.config.clone()).await?;
        let snapshot = self.config.snapshot.clone();
        let driver = LeasedDriver {
            driver: snapshot.map_or_else(AndroidDriver::default, AndroidDriver::with_snapshot),
            _lease: lease,
        };
        let limits = self.config.limits;
        Ok(DeviceEnvironment::new(device, driver, false, limits))
    }

    async fn lease(&self) -> Result<Lease> {
        let limit = Duration::from_millis(self.config.wait_ms);
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(limit, permit).await;
        let Ok(Ok(permit)) = permit else {
            let message = "every device is in use: name more, or fewer environments";
            return Err(AdbError::Busy(message.into()).at("devices"));
        };
        let config = lock(&self.free).pop();
        let config = config.ok_or_else(|| AdbError::Busy("no device".into()).at("devices"))?;
        Ok(Lease {
            config,
            free: Arc::clone(&self.free),
            _permit: permit,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device in use; given back when dropped.
#[derive(Debug)]
struct Lease {
    config: AdbConfig,
    free: Arc<Mutex<Vec<AdbConfig>>>,
    // Dropped after the device is back.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&self.free).push(self.config.clone());
    }
}

/// The driver, holding the device.
#[derive(Debug)]
struct LeasedDriver {
    driver: AndroidDriver,
    _lease: Lease,
}

#[async_trait]
impl TaskDriver<AdbDevice> for LeasedDriver {
    async fn set_up(&mut self, device: &mut AdbDevice, task: &Task, seed: u64) -> Result<Arc<str>> {
        self.driver.set_up(device, task, seed).await
    }

    async fn ended(&mut self, device: &mut AdbDevice) -> Result<bool> {
        self.driver.ended(device).await
    }

    async fn score(&mut self, device: &mut AdbDevice, end: &EpisodeEnd) -> Result<Reward> {
        self.driver.score(device, end).await
    }

    async fn tear_down(&mut self, device: &mut AdbDevice) -> Result<()> {
        self.driver.tear_down(device).await
    }
}

#[async_trait]
impl Demonstrator<AdbDevice> for LeasedDriver {
    async fn expert_action(&mut self, device: &mut AdbDevice) -> Result<Option<Action>> {
        self.driver.expert_action(device).await
    }
}

#[async_trait]
impl EnvironmentFactory for AndroidFactory {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        Ok(Box::new(self.environment().await?))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        check_experts(&load(&self.config.tasks)?)?;
        Ok(Box::new(self.environment().await?))
    }
}

/// Whether every training task has an expert.
///
/// # Errors
/// [`Unsupported`](dart_core::ErrorKind::Unsupported), naming the first that has none.
pub fn check_experts(tasks: &[AndroidTask]) -> Result<()> {
    let mut trained = tasks.iter().filter(|task| task.split == Split::Train);
    let Some(task) = trained.find(|task| task.expert.is_empty()) else {
        return Ok(());
    };
    let message = format!(
        "task {} has no expert: give it one, or set warm_start.enabled = false",
        task.id
    );
    Err(AdbError::Unsupported(message).at("demonstrate"))
}
