//! [`OsworldFactory`]: makes OSWorld environments.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{
    Demonstrate, DeviceEnvironment, Environment, EnvironmentFactory, Error, ErrorKind, Result,
};

use super::{
    config::{GuestConfig, HostExec, OsworldConfig},
    device::{OsworldDevice, Seat},
    driver::{self, OsworldDriver},
    seats::Seats,
};

/// Makes OSWorld environments, each with a desktop of its own.
#[derive(Debug)]
pub struct OsworldFactory {
    config: Arc<OsworldConfig>,
    host_exec: HostExec,
    seats: Arc<Seats>,
}

impl OsworldFactory {
    /// Checks the settings and the programs.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config), naming the setting, or the missing program and its package.
    pub fn new(config: OsworldConfig, host_exec: HostExec) -> Result<Self> {
        driver::check(&config, host_exec)?;
        let servers = match &config.guest {
            GuestConfig::Local(_) => Vec::new(),
            GuestConfig::Servers { servers } => servers.clone(),
        };
        Ok(Self {
            config: Arc::new(config),
            host_exec,
            seats: Seats::new(servers),
        })
    }

    /// Makes one environment.
    ///
    /// # Errors
    /// As [`EnvironmentFactory::create`].
    pub async fn make(&self) -> Result<DeviceEnvironment<OsworldDevice, OsworldDriver>> {
        let seat = match &self.config.guest {
            GuestConfig::Local(local) => Seat::Local(Arc::new(local.clone())),
            GuestConfig::Servers { .. } => Seat::Server(Box::new(self.seats.take()?)),
        };
        let driver = OsworldDriver::new(Arc::clone(&self.config), self.host_exec)?;
        let device = OsworldDevice::start(seat).await?;
        // Native programs blink and show the time.
        Ok(DeviceEnvironment::new(
            device,
            driver,
            false,
            self.config.limits,
        ))
    }
}

#[async_trait]
impl EnvironmentFactory for OsworldFactory {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        Ok(Box::new(self.make().await?))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        let message = "OSWorld's tasks have no scripted expert: set warm_start.enabled = false";
        let kind = ErrorKind::Unsupported;
        Err(Error::new(kind, "dart-env-vnc", "osworld", message))
    }
}
