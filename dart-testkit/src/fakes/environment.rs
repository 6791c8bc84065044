//! [`FakeEnvironment`]: the fake device under the real episode layer, and a factory of them.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use dart_core::{
    Demonstrate, DeviceEnvironment, DeviceEnvironmentConfig, Environment, EnvironmentFactory,
    Error, ErrorKind, Result, Split, Task, TaskId,
};

use super::{FakeDevice, FakeDeviceConfig, FakeDriver};

/// The fake device under the real episode layer.
pub type FakeEnvironment = DeviceEnvironment<FakeDevice, FakeDriver>;

/// How fake environments are made.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeConfig {
    /// The device.
    pub device: FakeDeviceConfig,
    /// The task.
    pub driver: FakeDriver,
    /// Deadlines.
    pub limits: DeviceEnvironmentConfig,
    /// Every how many `create` calls one fails as if the peer were away; 0 for never.
    pub fails_every: u64,
}

/// Makes fake environments. Each gets another seed for its latencies, in order of creation.
#[derive(Debug, Default)]
pub struct FakeFactory {
    config: FakeConfig,
    created: AtomicU64,
}

impl FakeFactory {
    /// A factory.
    pub const fn new(config: FakeConfig) -> Self {
        Self {
            config,
            created: AtomicU64::new(0),
        }
    }

    /// How many times an environment was asked for.
    pub fn created(&self) -> u64 {
        self.created.load(Ordering::Relaxed)
    }

    fn make(&self) -> Result<FakeEnvironment> {
        let number = self.created.fetch_add(1, Ordering::Relaxed) + 1;
        let FakeConfig {
            mut device,
            driver,
            limits,
            fails_every,
        } = self.config;
        if fails_every > 0 && number.is_multiple_of(fails_every) {
            let message = "the peer is away";
            return Err(Error::new(
                ErrorKind::Disconnected,
                "fake",
                "create",
                message,
            ));
        }
        device.seed = device.seed.wrapping_add(number);
        Ok(FakeEnvironment::new(
            FakeDevice::new(device),
            driver,
            true,
            limits,
        ))
    }
}

#[async_trait]
impl EnvironmentFactory for FakeFactory {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        Ok(Box::new(self.make()?))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        Ok(Box::new(self.make()?))
    }
}

/// The one task of fake environments.
///
/// # Panics
/// Never: its name is a valid one.
pub fn task(horizon: u32) -> Task {
    let Ok(id) = TaskId::new("fake.click-square") else {
        unreachable!("a valid task id")
    };
    Task {
        id,
        family: "click-square".into(),
        split: Split::Train,
        horizon,
        params: serde_json::Value::Null,
    }
}
