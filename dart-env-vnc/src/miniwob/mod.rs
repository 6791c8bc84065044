//! MiniWoB++ as environments: real web pages in a real browser on a real desktop.
//!
//! MiniWoB++ (Liu et al. 2018, <https://github.com/Farama-Foundation/miniwob-plusplus>) is a set of
//! small web tasks. Here each environment has a desktop, its own or one that is running already; the
//! agent sees and clicks it through VNC, and only the driver speaks to the page. Deviations from the
//! usual interfaces: the reward display is taken out of the page, the page's clock is switched off,
//! and a success is any positive reward without discount for time, but for the pages that also pay
//! for what is half done or wrong (see [`TASKS`]).

mod attach;
mod config;
mod device;
mod driver;
mod registry;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use attach::Seats;
use dart_core::{Demonstrate, DeviceEnvironment, Environment, EnvironmentFactory, Result};

pub use attach::AttachConfig;
pub use config::MiniwobConfig;
pub use device::DesktopDevice;
pub use driver::MiniwobDriver;
pub use registry::{TASKS, TaskInfo, task_info};

/// Makes MiniWoB++ environments, each with a desktop of its own, or each on one of the running
/// desktops that [`MiniwobConfig::attach`] names.
#[derive(Debug)]
pub struct MiniwobFactory {
    config: Arc<MiniwobConfig>,
    seats: Arc<Seats>,
}

impl MiniwobFactory {
    /// Checks the settings, the pages and the programs.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the setting, the missing pages and how to
    /// get them, or the missing program and its package. With [`MiniwobConfig::attach`], no program
    /// is needed, and the error may be that a password is not set; whether the desktops answer
    /// turns out when an environment is made.
    pub fn new(config: MiniwobConfig) -> Result<Self> {
        config.check()?;
        Ok(Self {
            seats: Seats::new(config.attach.clone()),
            config: Arc::new(config),
        })
    }

    async fn device(&self) -> Result<DesktopDevice> {
        let MiniwobConfig { screen, attach, .. } = &*self.config;
        if attach.is_empty() {
            return DesktopDevice::start(self.config.desktop.clone(), *screen).await;
        }
        let patience = Duration::from_millis(self.config.command_timeout_ms);
        DesktopDevice::attach(self.seats.take().await?, *screen, patience).await
    }

    async fn make(
        &self,
        list_elements: bool,
    ) -> Result<DeviceEnvironment<DesktopDevice, MiniwobDriver>> {
        let driver = MiniwobDriver::start(Arc::clone(&self.config), list_elements).await?;
        let device = self.device().await?;
        let fixed = |task: &String| config::info(task).is_ok_and(|info| !info.moves);
        let deterministic = self.config.tasks.iter().all(fixed);
        let limits = self.config.limits;
        Ok(DeviceEnvironment::new(
            device,
            driver,
            deterministic,
            limits,
        ))
    }
}

#[async_trait]
impl EnvironmentFactory for MiniwobFactory {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        Ok(Box::new(self.make(false).await?))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        Ok(Box::new(self.make(true).await?))
    }
}
