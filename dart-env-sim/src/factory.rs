//! [`SimFactory`]: makes environments.

use async_trait::async_trait;
use dart_core::{
    Demonstrate, DeviceEnvironment, DeviceEnvironmentConfig, Environment, EnvironmentFactory,
    Result,
};

use crate::{config::SimConfig, device::SimDevice, driver::SimDriver};

/// A simulated device joined with its tasks.
pub type SimEnvironment = DeviceEnvironment<SimDevice, SimDriver>;

/// Makes simulated environments. They are deterministic and share nothing.
#[derive(Clone, Debug)]
pub struct SimFactory {
    config: SimConfig,
}

impl SimFactory {
    /// Checks `config`.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if a value of it is out of range.
    pub fn new(config: SimConfig) -> Result<Self> {
        config.validate()?;
        Ok(Self { config })
    }

    /// Makes one environment.
    ///
    /// # Errors
    /// None for a configuration that [`new`](Self::new) accepted.
    pub fn environment(&self) -> Result<SimEnvironment> {
        let device = SimDevice::new(&self.config)?;
        let driver = SimDriver::new(self.config.clone())?;
        let layer = DeviceEnvironmentConfig::default();
        Ok(DeviceEnvironment::new(device, driver, true, layer))
    }
}

#[async_trait]
impl EnvironmentFactory for SimFactory {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        Ok(Box::new(self.environment()?))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        Ok(Box::new(self.environment()?))
    }
}
