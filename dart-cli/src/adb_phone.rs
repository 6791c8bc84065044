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
    client::AdbServer,
    device::ScreenKind,
    simulator::{Options, Simulator},
    tasks::{check_experts, load},
};
use dart_env_sim::{SimConfig, SimDevice, SimDeviceKind, SimDriver};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Handle, sync::Mutex};

use crate::adb_apps;

/// Longest recovery of a phone. What has died is the server, and then only another phone helps.
const RECOVER_MS: u64 = 10_000;

/// When observations list the elements of the user interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObserveUi {
    /// In every episode; for a reading loss beside the policy gradient
    /// (`trainer.reading_weight`).
    Always,
    /// While experts demonstrate.
    #[default]
    Demonstrations,
    /// Never.
    Never,
}

/// The phone, and how it is reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdbPhoneConfig {
    /// Screen and task families of the phone.
    pub phone: SimConfig,
    /// A task file for the phone with apps (`dart_env_sim::apps`), which is then there in place of the
    /// one with task families. Default: none.
    pub tasks: Option<PathBuf>,
    /// The program that is started as ADB server, on a private port. Default `adb`, looked up.
    pub program: PathBuf,
    /// How pictures are taken. Default raw: there is no cable that PNG would save.
    pub screen: ScreenKind,
    /// When observations list the elements of the user interface, as `uiautomator` sees them; the
    /// auxiliary reading loss of the warm start learns from them. Default while experts demonstrate:
    /// the policy acts by the picture alone, and a dump costs as much as all the rest of a step.
    pub observe_ui: ObserveUi,
    /// Whether each touch first asks how the screen is held. Default false: this phone never turns.
    pub check_rotation: bool,
}

impl Default for AdbPhoneConfig {
    fn default() -> Self {
        Self {
            phone: SimConfig::phone(),
            tasks: None,
            program: "adb".into(),
            screen: ScreenKind::Raw,
            observe_ui: ObserveUi::Demonstrations,
            check_rotation: false,
        }
    }
}

impl AdbPhoneConfig {
    /// One task for each family of the phone, or those of the task file.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) if the device is no phone, a value of it is out of range, or the
    /// task file is wrong.
    pub fn tasks(&self, split: Split) -> Result<Vec<Task>> {
        if self.phone.device != SimDeviceKind::Phone {
            let message = "environment.phone.device has to be \"phone\"";
            return Err(Error::new(ErrorKind::Config, "dart-cli", "tasks", message));
        }
        let Some(path) = &self.tasks else {
            return self.phone.tasks(split);
        };
        let tasks = load(path)?.into_iter().filter(|task| task.split == split);
        tasks.map(|task| task.task()).collect()
    }
}

/// Makes phones, all behind one ADB server that is started with the first. If the server has died,
/// its phones fail and the next one is made with another server.
pub(crate) struct AdbPhoneFactory {
    config: AdbPhoneConfig,
    server: Mutex<Option<Arc<OwnServer>>>,
}

impl AdbPhoneFactory {
    pub(crate) const fn new(config: AdbPhoneConfig) -> Self {
        Self {
            config,
            server: Mutex::const_new(None),
        }
    }

    /// The server, if it answers, or a new one.
    async fn server(&self) -> Result<Arc<OwnServer>> {
        let mut present = self.server.lock().await;
        if let Some(server) = &*present {
            let Err(error) = server.server().version().await else {
                return Ok(Arc::clone(server));
            };
            tracing::warn!(%error, "the ADB server has died; starting another");
        }
        let server = Arc::new(OwnServer::start(&self.config.program).await?);
        *present = Some(Arc::clone(&server));
        Ok(server)
    }

    async fn environment(
        &self,
        observe_ui: bool,
    ) -> Result<DeviceEnvironment<AdbDevice, PhoneDriver>> {
        let config = &self.config;
        let server = self.server().await?;
        let device = SimDevice::new(&config.phone)?;
        let simulator = Simulator::start(device, Options::default()).await?;
        let connection = Connection::new(server.server(), &simulator.serial()).await?;
        let adb = AdbConfig {
            screen: config.screen,
            observe_ui,
            check_rotation: config.check_rotation,
            // The phone has reacted when a command ends.
            settle_ms: 0,
            recover_ms: RECOVER_MS,
            ..AdbConfig::new(server.server().address(), simulator.serial())
        };
        let device = AdbDevice::connect(adb).await?;
        let driver = PhoneDriver {
            phone: simulator.device(),
            driver: SimDriver::new(config.phone.clone())?,
            connection,
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
        let observe_ui = self.config.observe_ui == ObserveUi::Always;
        if let Some(tasks) = &self.config.tasks {
            check_experts(&load(tasks)?)?;
            let server = self.server().await?;
            let apps = adb_apps::environment(&self.config, server, observe_ui).await?;
            return Ok(Box::new(apps));
        }
        Ok(Box::new(self.environment(observe_ui).await?))
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        let observe_ui = self.config.observe_ui != ObserveUi::Never;
        if self.config.tasks.is_some() {
            let server = self.server().await?;
            let apps = adb_apps::environment(&self.config, server, observe_ui).await?;
            return Ok(Box::new(apps));
        }
        Ok(Box::new(self.environment(observe_ui).await?))
    }
}

/// The server's connection to a phone. Unless it is ended, the server keeps the phone in its list
/// and goes on looking for it long after it is gone.
pub(crate) struct Connection {
    server: AdbServer,
    /// Until it has ended.
    serial: Option<String>,
}

impl Connection {
    pub(crate) async fn new(server: &AdbServer, serial: &str) -> Result<Self> {
        let connection = Self {
            server: server.clone(),
            serial: Some(serial.to_owned()),
        };
        server.connect(serial).await?;
        Ok(connection)
    }

    /// A server that is gone, or has forgotten the phone, is as good.
    pub(crate) async fn end(&mut self) {
        if let Some(serial) = self.serial.take() {
            let _ = self.server.disconnect(&serial).await;
        }
    }
}

impl Drop for Connection {
    /// For environments that are thrown away without being closed; they may be broken.
    fn drop(&mut self) {
        if let (Some(serial), Ok(runtime)) = (self.serial.take(), Handle::try_current()) {
            let server = self.server.clone();
            runtime.spawn(async move {
                let _ = server.disconnect(&serial).await;
            });
        }
    }
}

/// The simulator's driver, working inside the phone while the agent works over ADB.
struct PhoneDriver {
    phone: Arc<Mutex<SimDevice>>,
    driver: SimDriver,
    connection: Connection,
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
        let torn_down = self.driver.tear_down(&mut *self.phone.lock().await).await;
        self.connection.end().await;
        torn_down
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
