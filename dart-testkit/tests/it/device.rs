//! The device and task driver suites on the fake device, plain and wrapped.

use std::time::Duration;

use async_trait::async_trait;
use dart_core::{Action, Result, Task};
use dart_testkit::{
    Breakable, Clock, Fault, Faulty, Settings,
    device::DeviceHarness,
    device_conformance,
    fakes::{FakeDevice, FakeDeviceConfig, FakeDriver, HasFakeDevice, task},
    task_driver::TaskDriverHarness,
    task_driver_conformance,
};

const CONFIG: FakeDeviceConfig = FakeDeviceConfig {
    screen: dart_core::Size::new(32, 24),
    latency_ms: (1, 4),
    seed: 5,
};

/// The device's own deadline.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

pub(crate) fn faulty_device() -> (Faulty<FakeDevice>, dart_testkit::faulty::FaultSwitch) {
    Faulty::new(FakeDevice::new(CONFIG), DEADLINE)
}

pub(crate) struct Plain;

#[async_trait]
impl DeviceHarness for Plain {
    type Device = FakeDevice;

    fn settings(&self) -> Settings {
        Settings {
            clock: Clock::Paused,
            not_applicable: &["c04", "c05"],
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Box<FakeDevice>> {
        Ok(Box::new(FakeDevice::new(CONFIG)))
    }

    async fn visible_action(&self, device: &mut FakeDevice) -> Result<Action> {
        Ok(Action::click(device.target().center()))
    }

    async fn held(&self, device: &mut FakeDevice) -> Result<Option<usize>> {
        Ok(Some(device.held()))
    }
}

pub(crate) struct Wrapped;

#[async_trait]
impl DeviceHarness for Wrapped {
    type Device = Faulty<FakeDevice>;

    fn settings(&self) -> Settings {
        Settings {
            clock: Clock::Paused,
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Box<Self::Device>> {
        Ok(Box::new(faulty_device().0))
    }

    async fn visible_action(&self, device: &mut Self::Device) -> Result<Action> {
        Ok(Action::click(device.fake().target().center()))
    }

    async fn held(&self, device: &mut Self::Device) -> Result<Option<usize>> {
        Ok(Some(device.fake().held()))
    }

    async fn breakable(&self, fault: Fault) -> Result<Option<Breakable<Self::Device>>> {
        let (device, switch) = faulty_device();
        let healer = switch.clone();
        Ok(Some(Breakable {
            subject: Box::new(device),
            break_it: Box::new(move || switch.start(fault)),
            heal: Some(Box::new(move || healer.heal())),
        }))
    }
}

struct Driver;

#[async_trait]
impl TaskDriverHarness for Driver {
    type Device = FakeDevice;
    type Driver = FakeDriver;

    fn settings(&self) -> Settings {
        Plain.settings_without_exemptions()
    }

    async fn make(&self) -> Result<(FakeDevice, FakeDriver)> {
        Ok((FakeDevice::new(CONFIG), FakeDriver::default()))
    }

    fn task(&self) -> Task {
        task(10)
    }

    fn deterministic(&self) -> bool {
        true
    }

    async fn visible_action(
        &self,
        device: &mut FakeDevice,
        _driver: &mut FakeDriver,
    ) -> Result<Action> {
        Ok(Action::click(device.target().center()))
    }
}

impl Plain {
    fn settings_without_exemptions(&self) -> Settings {
        Settings {
            not_applicable: &[],
            ..self.settings()
        }
    }
}

device_conformance!(mod plain, Plain);
device_conformance!(mod wrapped, Wrapped);
task_driver_conformance!(Driver);
