//! The simulated phone behind a real ADB server: pictures and touches go over ADB, tasks are set up
//! and judged inside the phone.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use dart_core::{
    Action, Demonstrate, Demonstrator, DeviceEnvironment, DeviceEnvironmentConfig, Environment,
    EnvironmentFactory, EpisodeEnd, Error, ErrorKind, Result, Reward, Split, Task, TaskDriver,
};
use dart_env_adb::{
    AdbConfig, AdbDevice, OwnServer,
    device::ScreenKind,
    simulator::{Options, Simulator},
};
use dart_env_sim::{SimConfig, SimDevice, SimDeviceKind, SimDriver};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, OnceCell};

/// The phone, and how it is reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdbPhoneConfig {
    /// Screen and task families of the phone.
    pub phone: SimConfig,
    /// The program that is started as ADB server, on a private port. Default `adb`, looked up.
    pub program: PathBuf,
    /// How pictures are taken. Default raw: there is no cable that PNG would save.
    pub screen: ScreenKind,
    /// Whether observations list the elements of the user interface, as `uiautomator` sees them; the
    /// auxiliary reading loss learns from them. Default true.
    pub observe_ui: bool,
    /// Whether each touch first asks how the screen is held. Default false: this phone never turns.
    pub check_rotation: bool,
}

impl Default for AdbPhoneConfig {
    fn default() -> Self {
        Self {
            phone: SimConfig::phone(),
            program: "adb".into(),
            screen: ScreenKind::Raw,
            observe_ui: true,
            check_rotation: false,
        }
    }
}

impl AdbPhoneConfig {
    /// One task for each family of the phone.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) if the device is no phone, or a value of it is out of range.
    pub fn tasks(&self, split: Split) -> Result<Vec<Task>> {
        if self.phone.device != SimDeviceKind::Phone {
            let message = "environment.phone.device has to be \"phone\"";
            return Err(Error::new(ErrorKind::Config, "dart-cli", "tasks", message));
        }
        self.phone.tasks(split)
    }
}

/// Makes phones, all behind one ADB server that is started with the first.
pub(crate) struct AdbPhoneFactory {
    config: AdbPhoneConfig,
    server: OnceCell<Arc<OwnServer>>,
}

impl AdbPhoneFactory {
    pub(crate) const fn new(config: AdbPhoneConfig) -> Self {
        Self {
            config,
            server: OnceCell::const_new(),
        }
    }

    async fn environment(&self) -> Result<DeviceEnvironment<AdbDevice, PhoneDriver>> {
        let config = &self.config;
        let start = || async { Ok::<_, Error>(Arc::new(OwnServer::start(&config.program).await?)) };
        let server = Arc::clone(self.server.get_or_try_init(start).await?);
        let device = SimDevice::new(&config.phone)?;
        let simulator = Simulator::start(device, Options::default()).await?;
        let adb = AdbConfig {
            screen: config.screen,
            observe_ui: config.observe_ui,
            check_rotation: config.check_rotation,
            // The phone has reacted when a command ends.
            settle_ms: 0,
            ..AdbConfig::new(server.server().address(), simulator.serial())
        };
        let device = AdbDevice::connect(adb).await?;
        let driver = PhoneDriver {
            phone: simulator.device(),
            driver: SimDriver::new(config.phone.clone())?,
            _simulator: simulator,
            _server: server,
        };
        let layer = DeviceEnvironmentConfig::default();
        Ok(DeviceEnvironment::new(device, driver, true, layer))
    }
}

#[async_trait]
impl EnvironmentFactory for AdbPhoneFactory {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        Ok(Box::new(self.environment().await?))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        Ok(Box::new(self.environment().await?))
    }
}

/// The simulator's driver, working inside the phone while the agent works over ADB.
struct PhoneDriver {
    phone: Arc<Mutex<SimDevice>>,
    driver: SimDriver,
    /// Both live as long as the environment.
    _simulator: Simulator<SimDevice>,
    _server: Arc<OwnServer>,
}

#[async_trait]
impl TaskDriver<AdbDevice> for PhoneDriver {
    async fn set_up(&mut self, _: &mut AdbDevice, task: &Task, seed: u64) -> Result<Arc<str>> {
        let mut phone = self.phone.lock().await;
        self.driver.set_up(&mut phone, task, seed).await
    }

    async fn ended(&mut self, _: &mut AdbDevice) -> Result<bool> {
        self.driver.ended(&mut *self.phone.lock().await).await
    }

    async fn score(&mut self, _: &mut AdbDevice, end: &EpisodeEnd) -> Result<Reward> {
        self.driver.score(&mut *self.phone.lock().await, end).await
    }

    async fn tear_down(&mut self, _: &mut AdbDevice) -> Result<()> {
        self.driver.tear_down(&mut *self.phone.lock().await).await
    }
}

#[async_trait]
impl Demonstrator<AdbDevice> for PhoneDriver {
    async fn expert_action(&mut self, _: &mut AdbDevice) -> Result<Option<Action>> {
        self.driver
            .expert_action(&mut *self.phone.lock().await)
            .await
    }
}
