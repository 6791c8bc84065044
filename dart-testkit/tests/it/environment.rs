//! The environment suite on the fake device under `dart_core::DeviceEnvironment`.

use async_trait::async_trait;
use dart_core::{
    Action, Demonstrate, DeviceEnvironment, DeviceEnvironmentConfig, EnvironmentFactory, Result,
    Task,
};
use dart_testkit::{
    Breakable, Clock, Fault, Faulty, Settings,
    demonstrate::DemonstrateHarness,
    demonstrate_conformance,
    environment::{EnvironmentHarness, first_expert_action, solve_with_expert},
    environment_conformance,
    fakes::{FakeConfig, FakeDevice, FakeDeviceConfig, FakeDriver, FakeFactory, task},
};

use crate::device::faulty_device;

const LIMITS: DeviceEnvironmentConfig = DeviceEnvironmentConfig {
    reset_timeout_ms: 10_000,
    step_timeout_ms: 10_000,
    score_timeout_ms: 10_000,
    close_timeout_ms: 10_000,
};

fn paused() -> Settings {
    Settings {
        clock: Clock::Paused,
        ..Settings::default()
    }
}

/// The episode layer over a device that can be broken.
pub(crate) struct Layer;

pub(crate) type LayeredEnv = DeviceEnvironment<Faulty<FakeDevice>, FakeDriver>;

#[async_trait]
impl EnvironmentHarness for Layer {
    type Env = LayeredEnv;

    fn settings(&self) -> Settings {
        paused()
    }

    async fn make(&self) -> Result<Box<LayeredEnv>> {
        let (device, _) = faulty_device();
        let env = DeviceEnvironment::new(device, FakeDriver::default(), true, LIMITS);
        Ok(Box::new(env))
    }

    fn task(&self) -> Task {
        task(10)
    }

    async fn solve(&self, env: &mut LayeredEnv) -> Result<()> {
        solve_with_expert(env).await
    }

    async fn visible_action(&self, env: &mut LayeredEnv) -> Result<Action> {
        first_expert_action(env).await
    }

    async fn breakable(&self, fault: Fault) -> Result<Option<Breakable<LayeredEnv>>> {
        let (device, switch) = faulty_device();
        let healer = switch.clone();
        let env = DeviceEnvironment::new(device, FakeDriver::default(), true, LIMITS);
        Ok(Some(Breakable {
            subject: Box::new(env),
            break_it: Box::new(move || switch.start(fault)),
            heal: Some(Box::new(move || healer.heal())),
        }))
    }
}

/// What the factory makes, behind `dyn`, with a task that ends by itself.
struct Made;

impl Made {
    fn factory() -> FakeFactory {
        FakeFactory::new(FakeConfig {
            device: FakeDeviceConfig {
                latency_ms: (0, 3),
                ..FakeDeviceConfig::default()
            },
            driver: FakeDriver {
                target_px: 6,
                ends_by_itself: true,
            },
            ..FakeConfig::default()
        })
    }
}

#[async_trait]
impl EnvironmentHarness for Made {
    type Env = dyn Demonstrate;

    fn settings(&self) -> Settings {
        Settings {
            not_applicable: &["c14", "c15"],
            ..paused()
        }
    }

    async fn make(&self) -> Result<Box<Self::Env>> {
        Self::factory().create_demonstrator().await
    }

    fn task(&self) -> Task {
        task(10)
    }

    async fn solve(&self, env: &mut Self::Env) -> Result<()> {
        solve_with_expert(env).await
    }

    async fn visible_action(&self, env: &mut Self::Env) -> Result<Action> {
        first_expert_action(env).await
    }
}

#[async_trait]
impl DemonstrateHarness for Made {
    type Env = dyn Demonstrate;

    fn settings(&self) -> Settings {
        paused()
    }

    async fn make(&self) -> Result<Box<Self::Env>> {
        Self::factory().create_demonstrator().await
    }

    fn tasks(&self) -> Vec<Task> {
        vec![task(10), task(2)]
    }
}

environment_conformance!(mod layer, Layer);
environment_conformance!(mod made, Made);
demonstrate_conformance!(Made);
