//! The suites on the light panel.

use async_trait::async_trait;
use dart_core::*;
use dart_testkit::{
    Settings, demonstrate, demonstrate_conformance,
    device::DeviceHarness,
    device_conformance,
    environment::{self, EnvironmentHarness},
    environment_conformance,
};

use super::{
    panel::{Panel, PanelFactory},
    tasks::tasks,
};

/// What the checks need to know about the panel.
struct Harness;

#[async_trait]
impl EnvironmentHarness for Harness {
    type Env = dyn Demonstrate;

    fn settings(&self) -> Settings {
        Settings {
            not_applicable: &["c14", "c15"], // no connection that could stall or be cut
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Box<Self::Env>> {
        PanelFactory.create_demonstrator().await
    }

    fn task(&self) -> Task {
        let mut task = tasks().expect("valid names").remove(0);
        task.horizon = 10; // room for the checks
        task
    }

    async fn solve(&self, env: &mut Self::Env) -> Result<()> {
        environment::solve_with_expert(env).await
    }

    async fn visible_action(&self, env: &mut Self::Env) -> Result<Action> {
        environment::first_expert_action(env).await
    }
}

#[async_trait]
impl DeviceHarness for Harness {
    type Device = Panel;

    fn settings(&self) -> Settings {
        Settings {
            not_applicable: &["c04", "c05"],
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Box<Panel>> {
        Ok(Box::new(Panel::new()))
    }

    async fn visible_action(&self, _: &mut Panel) -> Result<Action> {
        Ok(Action::click(ScreenPx::new(5, 5)))
    }
}

#[async_trait]
impl demonstrate::DemonstrateHarness for Harness {
    type Env = dyn Demonstrate;

    async fn make(&self) -> Result<Box<Self::Env>> {
        PanelFactory.create_demonstrator().await
    }

    fn tasks(&self) -> Vec<Task> {
        tasks().expect("valid names")
    }
}

environment_conformance!(Harness);
device_conformance!(Harness);
demonstrate_conformance!(Harness);
