//! The conformance suites of environments, demonstrators, drivers and devices, on MiniWoB++.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{process::Command, sync::Arc, time::Duration};

use async_trait::async_trait;
use dart_core::{
    Action, Demonstrate, Demonstrator, EnvironmentFactory, Result, ScreenPx, Split, Task,
};
use dart_env_vnc::{DesktopDevice, MiniwobDriver, MiniwobFactory, cdp::Cdp};
use dart_testkit::{
    Breakable, Fault, Settings, demonstrate::DemonstrateHarness, demonstrate_conformance,
    device::DeviceHarness, device_conformance, environment, environment::EnvironmentHarness,
    environment_conformance, task_driver::TaskDriverHarness, task_driver_conformance,
};

use crate::miniwob::{Env, config, make, missing, task};

/// For the conformance suites. The task takes two clicks, the first of which is visible and does
/// not end the episode.
struct Harness;

fn settings() -> Settings {
    Settings {
        limit: Duration::from_mins(2),
        skipped: missing(),
        ..Settings::default()
    }
}

#[async_trait]
impl EnvironmentHarness for Harness {
    type Env = Env;

    fn settings(&self) -> Settings {
        settings()
    }

    async fn make(&self) -> Result<Box<Env>> {
        Ok(Box::new(make(&config()).await?))
    }

    fn task(&self) -> Task {
        Task {
            horizon: 20,
            ..task("click-option", Split::Train)
        }
    }

    async fn solve(&self, env: &mut Env) -> Result<()> {
        environment::solve_with_expert(env).await
    }

    async fn visible_action(&self, env: &mut Env) -> Result<Action> {
        environment::first_expert_action(env).await
    }

    async fn breakable(&self, fault: Fault) -> Result<Option<Breakable<Env>>> {
        let mut subject = Box::new(make(&config()).await?);
        let faults = Faults::of(subject.device_mut())?;
        Ok(Some(faults.breakable(subject, fault)))
    }
}

/// Ways to make the VNC server of a desktop fail.
struct Faults {
    server: String,
}

impl Faults {
    fn of(device: &mut DesktopDevice) -> Result<Self> {
        // Browser, window manager, server, each with its supervisor.
        let server = device.desktop()?.process_ids()[4].to_string();
        Ok(Self { server })
    }

    fn breakable<T: ?Sized>(self, subject: Box<T>, fault: Fault) -> Breakable<T> {
        let signal = move |signal: &str| {
            let sent = Command::new("kill").args([signal, &self.server]).status();
            assert!(sent.unwrap().success());
        };
        match fault {
            Fault::Stall => {
                let signal = Arc::new(signal);
                let resume = Arc::clone(&signal);
                Breakable {
                    subject,
                    break_it: Box::new(move || signal("-STOP")),
                    heal: Some(Box::new(move || resume("-CONT"))),
                }
            }
            Fault::Cut => Breakable {
                subject,
                break_it: Box::new(move || signal("-KILL")),
                // A new desktop is started by itself.
                heal: Some(Box::new(|| {})),
            },
        }
    }
}

environment_conformance!(Harness);

#[async_trait]
impl DemonstrateHarness for Harness {
    type Env = dyn Demonstrate;

    fn settings(&self) -> Settings {
        settings()
    }

    async fn make(&self) -> Result<Box<dyn Demonstrate>> {
        MiniwobFactory::new(config())?.create_demonstrator().await
    }

    fn tasks(&self) -> Vec<Task> {
        // The others are in the module `miniwob_tasks`.
        let pages = [
            "click-button",
            "click-dialog",
            "click-option",
            "click-tab",
            "click-test",
            "click-test-2",
            "click-widget",
            "focus-text",
        ];
        pages.map(|page| task(page, Split::Train)).to_vec()
    }
}

demonstrate_conformance!(Harness);

#[async_trait]
impl TaskDriverHarness for Harness {
    type Device = DesktopDevice;
    type Driver = MiniwobDriver;

    fn settings(&self) -> Settings {
        settings()
    }

    async fn make(&self) -> Result<(DesktopDevice, MiniwobDriver)> {
        let config = config();
        let device = DesktopDevice::start(config.desktop.clone(), config.screen).await?;
        Ok((device, MiniwobDriver::start(Arc::new(config), true).await?))
    }

    fn task(&self) -> Task {
        task("click-option", Split::Train)
    }

    fn deterministic(&self) -> bool {
        true
    }

    async fn visible_action(
        &self,
        device: &mut DesktopDevice,
        driver: &mut MiniwobDriver,
    ) -> Result<Action> {
        let action = driver.expert_action(device).await?;
        Ok(action.unwrap_or(Action::Done))
    }
}

task_driver_conformance!(Harness);

/// The device alone, on a page that changes its colour when a button of the mouse goes down.
struct Alone;

#[async_trait]
impl DeviceHarness for Alone {
    type Device = DesktopDevice;

    fn settings(&self) -> Settings {
        Settings {
            // A stalled server is given up, the desktop ended and a new one started.
            deadline: Duration::from_secs(40),
            ..settings()
        }
    }

    async fn make(&self) -> Result<Box<DesktopDevice>> {
        let config = config();
        Ok(Box::new(
            DesktopDevice::start(config.desktop, config.screen).await?,
        ))
    }

    async fn visible_action(&self, device: &mut DesktopDevice) -> Result<Action> {
        let browser = device.desktop()?.devtools_address();
        let mut cdp = Cdp::connect(browser, Duration::from_secs(10)).await?;
        // Each click shows a colour that was not there before.
        let script = "window.clicks ?? (window.clicks = 0, onmousedown = () => { clicks += 1; \
            document.documentElement.style.background = `rgb(0,${clicks},255)`; }, 0)";
        cdp.evaluate(script).await?;
        Ok(Action::click(ScreenPx::new(30, 20)))
    }

    async fn breakable(&self, fault: Fault) -> Result<Option<Breakable<DesktopDevice>>> {
        let mut subject = DeviceHarness::make(self).await?;
        let faults = Faults::of(&mut subject)?;
        Ok(Some(faults.breakable(subject, fault)))
    }
}

device_conformance!(Alone);
