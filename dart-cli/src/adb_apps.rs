//! The simulated phone with apps behind a real ADB server: the agent acts over ADB, and a task file
//! sets tasks up and judges them over ADB as well, as on a real phone.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{
    Action, Demonstrator, DeviceEnvironment, DeviceEnvironmentConfig, EpisodeEnd, Result, Reward,
    Task, TaskDriver,
};
use dart_env_adb::{
    AdbConfig, AdbDevice, OwnServer,
    simulator::{Console, Options, Simulator, System},
    tasks::{AndroidDriver, SnapshotHook},
};
use dart_env_sim::apps::{AppPhone, Platform, Row, Table};

use crate::adb_phone::{AdbPhoneConfig, Connection};

/// The snapshot that every episode begins with.
const FRESH: &str = "fresh";

/// A phone with apps, joined with the tasks of a file.
pub(crate) async fn environment(
    config: &AdbPhoneConfig,
    server: Arc<OwnServer>,
    observe_ui: bool,
) -> Result<DeviceEnvironment<AdbDevice, AppsDriver>> {
    let system = System::new();
    system.save(FRESH);
    let apps = AppPhone::new(&config.phone, Arc::new(Shared(system.clone())))?;
    let options = Options {
        packages: AppPhone::packages(),
        ..Options::default()
    };
    let simulator = Simulator::start_with(apps, system, options).await?;
    let console = simulator.open_console(None).await?;
    let connection = Connection::new(server.server(), &simulator.serial()).await?;
    let adb = AdbConfig {
        screen: config.screen,
        observe_ui,
        check_rotation: config.check_rotation,
        // The phone has reacted when a command ends.
        settle_ms: 0,
        ..AdbConfig::new(server.server().address(), simulator.serial())
    };
    let device = AdbDevice::connect(adb).await?;
    let hook = SnapshotHook::Console {
        name: FRESH.into(),
        address: Some(console.address().to_string()),
        token_file: None,
        limit_ms: 10_000,
    };
    let driver = AppsDriver {
        driver: AndroidDriver::with_snapshot(hook),
        connection,
        _console: console,
        _simulator: simulator,
        _server: server,
    };
    let layer = DeviceEnvironmentConfig::default();
    Ok(DeviceEnvironment::new(device, driver, true, layer))
}

/// The task file's driver, holding all that the phone needs.
pub(crate) struct AppsDriver {
    driver: AndroidDriver,
    connection: Connection,
    /// These live as long as the environment.
    _console: Console,
    _simulator: Simulator<AppPhone>,
    _server: Arc<OwnServer>,
}

#[async_trait]
impl TaskDriver<AdbDevice> for AppsDriver {
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
        let torn_down = self.driver.tear_down(device).await;
        self.connection.end().await;
        torn_down
    }
}

#[async_trait]
impl Demonstrator<AdbDevice> for AppsDriver {
    async fn expert_action(&mut self, device: &mut AdbDevice) -> Result<Option<Action>> {
        self.driver.expert_action(device).await
    }
}

/// The system of the simulated shell as the apps see it.
#[derive(Debug)]
struct Shared(System);

impl Platform for Shared {
    fn setting(&self, namespace: &str, key: &str) -> Option<String> {
        self.0.setting(namespace, key)
    }

    fn put_setting(&self, namespace: &str, key: &str, value: &str) {
        self.0.put_setting(namespace, key, value);
    }

    fn file_names(&self, folder: &str) -> Vec<String> {
        self.0.file_names(folder)
    }

    fn read_file(&self, path: &str) -> Option<Vec<u8>> {
        self.0.read_file(path)
    }

    fn write_file(&self, path: &str, content: Vec<u8>) -> bool {
        self.0.write_file(path, content).is_ok()
    }

    fn remove_file(&self, path: &str) {
        self.0.remove_file(path);
    }

    fn edit_table(&self, table: &Table, edit: &mut dyn FnMut(&mut Vec<Row>)) {
        let place = (table.database, table.name);
        self.0.edit_table(place, table.columns, |rows| edit(rows));
    }

    fn log(&self, tag: &str, message: &str) {
        self.0.log(tag, message);
    }

    fn show(&self, package: &str) {
        self.0.show(package);
    }
}
