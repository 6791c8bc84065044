//! The contracts of `dart-core`, line by line.

use async_trait::async_trait;
use dart_core::{Action, Demonstrator, Result, ScreenPx, Split, Task};
use dart_env_sim::{SimConfig, SimDevice, SimDeviceKind, SimDriver, SimEnvironment};
use dart_testkit::{
    Settings, demonstrate::DemonstrateHarness, demonstrate_conformance, device::DeviceHarness,
    device_conformance, environment, environment::EnvironmentHarness, environment_conformance,
    task_driver::TaskDriverHarness, task_driver_conformance,
};

use crate::support;

/// A function call can neither stall nor be cut off.
const IN_PROCESS_DEVICE: &[&str] = &["c04", "c05"];
const IN_PROCESS_ENVIRONMENT: &[&str] = &["c14", "c15"];

/// One of the two devices.
struct Sim(SimDeviceKind);

impl Sim {
    fn config(&self) -> SimConfig {
        match self.0 {
            SimDeviceKind::Desktop => SimConfig::default(),
            SimDeviceKind::Phone => SimConfig::phone(),
        }
    }

    fn tasks(&self) -> Vec<Task> {
        self.config().tasks(Split::Train).unwrap()
    }

    /// The task with the longest horizon: it has room for the checks.
    fn longest(&self) -> Task {
        let tasks = self.tasks().into_iter();
        tasks.max_by_key(|task| task.horizon).unwrap()
    }
}

const DESKTOP: Sim = Sim(SimDeviceKind::Desktop);
const PHONE: Sim = Sim(SimDeviceKind::Phone);

#[async_trait]
impl DeviceHarness for Sim {
    type Device = SimDevice;

    fn settings(&self) -> Settings {
        Settings {
            not_applicable: IN_PROCESS_DEVICE,
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Box<SimDevice>> {
        Ok(Box::new(SimDevice::new(&self.config())?))
    }

    async fn visible_action(&self, _device: &mut SimDevice) -> Result<Action> {
        // The checkbox of the welcome screen changes with every click.
        let at = ScreenPx::new(36, 36);
        Ok(match self.0 {
            SimDeviceKind::Desktop => Action::click(at),
            SimDeviceKind::Phone => Action::Tap { at },
        })
    }

    async fn held(&self, device: &mut SimDevice) -> Result<Option<usize>> {
        Ok(Some(device.held()))
    }
}

#[async_trait]
impl EnvironmentHarness for Sim {
    type Env = SimEnvironment;

    fn settings(&self) -> Settings {
        Settings {
            not_applicable: IN_PROCESS_ENVIRONMENT,
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Box<SimEnvironment>> {
        Ok(Box::new(support::environment(&self.config())))
    }

    fn task(&self) -> Task {
        self.longest()
    }

    async fn solve(&self, env: &mut SimEnvironment) -> Result<()> {
        environment::solve_with_expert(env).await
    }

    async fn visible_action(&self, env: &mut SimEnvironment) -> Result<Action> {
        environment::first_expert_action(env).await
    }
}

#[async_trait]
impl DemonstrateHarness for Sim {
    type Env = SimEnvironment;

    async fn make(&self) -> Result<Box<SimEnvironment>> {
        Ok(Box::new(support::environment(&self.config())))
    }

    fn tasks(&self) -> Vec<Task> {
        self.tasks()
    }
}

#[async_trait]
impl TaskDriverHarness for Sim {
    type Device = SimDevice;
    type Driver = SimDriver;

    async fn make(&self) -> Result<(SimDevice, SimDriver)> {
        let config = self.config();
        Ok((SimDevice::new(&config)?, SimDriver::new(config)?))
    }

    fn task(&self) -> Task {
        self.longest()
    }

    fn deterministic(&self) -> bool {
        true
    }

    async fn visible_action(
        &self,
        device: &mut SimDevice,
        driver: &mut SimDriver,
    ) -> Result<Action> {
        let action = driver.expert_action(device).await?;
        Ok(action.unwrap_or(Action::Done))
    }
}

device_conformance!(mod desktop_device, DESKTOP);
device_conformance!(mod phone_device, PHONE);
environment_conformance!(mod desktop_environment, DESKTOP);
environment_conformance!(mod phone_environment, PHONE);
demonstrate_conformance!(mod desktop_demonstrate, DESKTOP);
demonstrate_conformance!(mod phone_demonstrate, PHONE);
task_driver_conformance!(mod desktop_task_driver, DESKTOP);
task_driver_conformance!(mod phone_task_driver, PHONE);
