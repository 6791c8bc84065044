//! The device and environment suites, through a real ADB server to the simulated phone.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use dart_core::{Action, DeviceEnvironment, DeviceEnvironmentConfig, Result, Split, Task, TaskId};
use dart_env_adb::{AdbConfig, AdbDevice, device::ScreenKind, simulator::Options};
use dart_testkit::{
    Breakable, Fault, Settings, device::DeviceHarness, device_conformance, environment,
    environment::EnvironmentHarness, environment_conformance, task_driver::TaskDriverHarness,
    task_driver_conformance,
};

use crate::{
    lab::{self, Lab},
    pad::PadDriver,
};

std::thread_local! {
    // Each check runs on one thread with one runtime, which ends before these do.
    static LABS: std::cell::RefCell<HashMap<String, Arc<Lab>>> = std::cell::RefCell::default();
}

async fn lab() -> Arc<Lab> {
    let lab = Arc::new(Lab::new(Options::default()).await);
    let serial = format!("adb {}", lab.phone.serial());
    LABS.with_borrow_mut(|labs| labs.insert(serial, Arc::clone(&lab)));
    lab
}

fn lab_of(device: &AdbDevice) -> Arc<Lab> {
    let name = &dart_core::Device::spec(device).name;
    LABS.with_borrow(|labs| Arc::clone(&labs[name]))
}

type Switch = Box<dyn FnOnce() + Send>;

/// Breaks and heals a phone.
fn switches(lab: &Arc<Lab>, fault: Fault) -> (Switch, Switch) {
    let (broken, healed) = (Arc::clone(lab), Arc::clone(lab));
    let break_it = move || match fault {
        Fault::Stall => broken.phone.faults().stall = true,
        Fault::Cut => {
            broken.phone.faults().refuse = true;
            broken.phone.cut();
        }
    };
    let heal = move || {
        let mut faults = healed.phone.faults();
        faults.stall = false;
        faults.refuse = false;
    };
    (Box::new(break_it), Box::new(heal))
}

struct Phone(ScreenKind);

impl Phone {
    fn config(&self, lab: &Lab) -> AdbConfig {
        AdbConfig {
            screen: self.0,
            observe_ui: self.0 == ScreenKind::Png,
            ..lab.config()
        }
    }

    fn settings() -> Settings {
        Settings {
            skipped: lab::skipped(),
            ..Settings::default()
        }
    }

    async fn environment(&self, lab: &Lab) -> Result<PhoneEnvironment> {
        let device = AdbDevice::connect(self.config(lab)).await?;
        let driver = PadDriver(lab.phone.device());
        let limits = DeviceEnvironmentConfig::default();
        Ok(DeviceEnvironment::new(device, driver, true, limits))
    }
}

type PhoneEnvironment = DeviceEnvironment<AdbDevice, PadDriver>;

fn task() -> Task {
    Task {
        id: TaskId::new("pad").unwrap(),
        family: "pad".into(),
        split: Split::Train,
        horizon: 20,
        params: serde_json::Value::Null,
    }
}

#[async_trait]
impl DeviceHarness for Phone {
    type Device = AdbDevice;

    fn settings(&self) -> Settings {
        Self::settings()
    }

    async fn make(&self) -> Result<Box<AdbDevice>> {
        let device = AdbDevice::connect(self.config(&*lab().await)).await?;
        Ok(Box::new(device))
    }

    async fn visible_action(&self, device: &mut AdbDevice) -> Result<Action> {
        let pad = lab_of(device).phone.device();
        let at = pad.lock().await.target.center();
        Ok(Action::Tap { at })
    }

    async fn breakable(&self, fault: Fault) -> Result<Option<Breakable<AdbDevice>>> {
        let lab = lab().await;
        let device = AdbDevice::connect(self.config(&lab)).await?;
        let (break_it, heal) = switches(&lab, fault);
        Ok(Some(Breakable {
            subject: Box::new(device),
            break_it,
            heal: Some(heal),
        }))
    }
}

#[async_trait]
impl EnvironmentHarness for Phone {
    type Env = PhoneEnvironment;

    fn settings(&self) -> Settings {
        Self::settings()
    }

    async fn make(&self) -> Result<Box<PhoneEnvironment>> {
        Ok(Box::new(self.environment(&*lab().await).await?))
    }

    fn task(&self) -> Task {
        task()
    }

    async fn solve(&self, env: &mut PhoneEnvironment) -> Result<()> {
        environment::solve_with_expert(env).await
    }

    async fn visible_action(&self, env: &mut PhoneEnvironment) -> Result<Action> {
        environment::first_expert_action(env).await
    }

    async fn breakable(&self, fault: Fault) -> Result<Option<Breakable<PhoneEnvironment>>> {
        let lab = lab().await;
        let env = self.environment(&lab).await?;
        let (break_it, heal) = switches(&lab, fault);
        Ok(Some(Breakable {
            subject: Box::new(env),
            break_it,
            heal: Some(heal),
        }))
    }
}

#[async_trait]
impl TaskDriverHarness for Phone {
    type Device = AdbDevice;
    type Driver = PadDriver;

    fn settings(&self) -> Settings {
        Self::settings()
    }

    async fn make(&self) -> Result<(AdbDevice, PadDriver)> {
        let lab = lab().await;
        let device = AdbDevice::connect(self.config(&lab)).await?;
        Ok((device, PadDriver(lab.phone.device())))
    }

    fn task(&self) -> Task {
        task()
    }

    fn deterministic(&self) -> bool {
        true
    }

    async fn visible_action(
        &self,
        device: &mut AdbDevice,
        driver: &mut PadDriver,
    ) -> Result<Action> {
        let action = dart_core::Demonstrator::expert_action(driver, device).await?;
        Ok(action.unwrap_or(Action::Done))
    }
}

device_conformance!(mod raw_device, Phone(ScreenKind::Raw));
device_conformance!(mod png_device, Phone(ScreenKind::Png));
environment_conformance!(mod phone_environment, Phone(ScreenKind::Raw));
task_driver_conformance!(mod phone_task_driver, Phone(ScreenKind::Framebuffer));
