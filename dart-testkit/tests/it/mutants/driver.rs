//! Task drivers and experts that break one line each.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{
    Action, Demonstrator, Device, DeviceEnvironment, DeviceEnvironmentConfig, EpisodeEnd, Error,
    ErrorKind, Result, Reward, ScreenPx, Task, TaskDriver,
};
use dart_testkit::{
    Clock, Settings,
    demonstrate::{self, DemonstrateHarness},
    fakes::{FakeDevice, FakeDeviceConfig, FakeDriver, task},
    task_driver::{self, TaskDriverHarness},
};

use super::Expectations;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    LeavesTheOldScreen,
    SaysNothing,
    StartsSolved,
    MovesThePointerWhenAsked,
    EndsAtOnce,
    ResetsWhenScored,
    TearsDownOnce,
    NeedsSetUpToTearDown,
    MissesTheTarget,
    GivesUp,
    ChangesItsMind,
    ActsWhenAsked,
}

struct Mutant {
    inner: FakeDriver,
    flaw: Flaw,
    set_up: bool,
    ever_set_up: bool,
    asked: u32,
}

impl Mutant {
    const fn new(flaw: Flaw) -> Self {
        let inner = FakeDriver {
            target_px: 4,
            ends_by_itself: false,
        };
        Self {
            inner,
            flaw,
            set_up: false,
            ever_set_up: false,
            asked: 0,
        }
    }
}

#[async_trait]
impl TaskDriver<FakeDevice> for Mutant {
    async fn set_up(
        &mut self,
        device: &mut FakeDevice,
        task: &Task,
        seed: u64,
    ) -> Result<Arc<str>> {
        let again = std::mem::replace(&mut self.set_up, true);
        self.ever_set_up = true;
        let instruction = if self.flaw == Flaw::LeavesTheOldScreen && again {
            "Click the red square.".into()
        } else {
            self.inner.set_up(device, task, seed).await?
        };
        match self.flaw {
            Flaw::SaysNothing => return Ok("".into()),
            Flaw::StartsSolved => {
                let target = device.target().center();
                device.perform(&Action::click(target)).await?;
            }
            _ => {}
        }
        Ok(instruction)
    }

    async fn ended(&mut self, device: &mut FakeDevice) -> Result<bool> {
        if self.flaw == Flaw::MovesThePointerWhenAsked {
            let at = ScreenPx::new(31, 23);
            device.perform(&Action::MoveTo { at }).await?;
        }
        if self.flaw == Flaw::EndsAtOnce {
            return Ok(true);
        }
        self.inner.ended(device).await
    }

    async fn score(&mut self, device: &mut FakeDevice, end: &EpisodeEnd) -> Result<Reward> {
        let reward = self.inner.score(device, end).await?;
        if self.flaw == Flaw::ResetsWhenScored {
            device.place(device.target());
        }
        Ok(reward)
    }

    async fn tear_down(&mut self, _device: &mut FakeDevice) -> Result<()> {
        let was_set_up = std::mem::replace(&mut self.set_up, false);
        let refuses = match self.flaw {
            Flaw::NeedsSetUpToTearDown => !was_set_up && !self.ever_set_up,
            Flaw::TearsDownOnce => !was_set_up && self.ever_set_up,
            _ => false,
        };
        if refuses {
            let message = "nothing to tear down";
            return Err(Error::new(
                ErrorKind::Misuse,
                "mutant",
                "tear down",
                message,
            ));
        }
        Ok(())
    }
}

#[async_trait]
impl Demonstrator<FakeDevice> for Mutant {
    async fn expert_action(&mut self, device: &mut FakeDevice) -> Result<Option<Action>> {
        self.asked += 1;
        match self.flaw {
            Flaw::MissesTheTarget => Ok(Some(Action::Done)),
            Flaw::GivesUp => Ok(None),
            Flaw::ChangesItsMind if self.asked.is_multiple_of(2) && !device.is_lit() => {
                Ok(Some(Action::Wait { millis: 1 }))
            }
            Flaw::ActsWhenAsked => {
                let at = ScreenPx::new(31, 23);
                device.perform(&Action::Type { text: "x".into() }).await?;
                device.perform(&Action::MoveTo { at }).await?;
                self.inner.expert_action(device).await
            }
            _ => self.inner.expert_action(device).await,
        }
    }
}

struct Harness(Flaw);

fn settings() -> Settings {
    Settings {
        clock: Clock::Paused,
        ..Settings::default()
    }
}

#[async_trait]
impl TaskDriverHarness for Harness {
    type Device = FakeDevice;
    type Driver = Mutant;

    fn settings(&self) -> Settings {
        settings()
    }

    async fn make(&self) -> Result<(FakeDevice, Mutant)> {
        let device = FakeDevice::new(FakeDeviceConfig::default());
        Ok((device, Mutant::new(self.0)))
    }

    fn task(&self) -> Task {
        task(10)
    }

    fn deterministic(&self) -> bool {
        true
    }

    async fn visible_action(&self, device: &mut FakeDevice, _: &mut Mutant) -> Result<Action> {
        Ok(Action::click(device.target().center()))
    }
}

#[async_trait]
impl DemonstrateHarness for Harness {
    type Env = DeviceEnvironment<FakeDevice, Mutant>;

    fn settings(&self) -> Settings {
        settings()
    }

    async fn make(&self) -> Result<Box<Self::Env>> {
        let device = FakeDevice::new(FakeDeviceConfig::default());
        let limits = DeviceEnvironmentConfig::default();
        let driver = Mutant::new(self.0);
        Ok(Box::new(DeviceEnvironment::new(
            device, driver, true, limits,
        )))
    }

    fn tasks(&self) -> Vec<Task> {
        vec![task(10)]
    }
}

#[tokio::test(start_paused = true)]
async fn each_flaw_of_a_driver_is_found_by_its_line() {
    use Flaw::*;
    let table = [
        (None, ""),
        (LeavesTheOldScreen, "c01"),
        (SaysNothing, "c01"),
        (StartsSolved, "c01"),
        (MovesThePointerWhenAsked, "c02"),
        (EndsAtOnce, "c02"),
        (ResetsWhenScored, "c03"),
        (TearsDownOnce, "c04"),
        (NeedsSetUpToTearDown, "c04"),
    ];
    let mut expectations = Expectations::default();
    for (flaw, expected) in table {
        let results = task_driver::run_all(&Harness(flaw)).await;
        expectations.compare(&format!("{flaw:?}"), &results, expected);
    }
    expectations.assert_met();
}

#[tokio::test(start_paused = true)]
async fn each_flaw_of_an_expert_is_found_by_its_line() {
    use Flaw::*;
    let table = [
        (None, ""),
        (MissesTheTarget, "c01"),
        (GivesUp, "c01"),
        // Asked once for each step, as it is in c01, it is right every other time.
        (ChangesItsMind, "c02"),
        (ActsWhenAsked, "c02"),
    ];
    let mut expectations = Expectations::default();
    for (flaw, expected) in table {
        let results = demonstrate::run_all(&Harness(flaw)).await;
        expectations.compare(&format!("{flaw:?}"), &results, expected);
    }
    expectations.assert_met();
}
