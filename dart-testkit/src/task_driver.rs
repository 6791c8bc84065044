//! The suite of [`TaskDriver`]: one check for each line of its contract.

use async_trait::async_trait;
use dart_core::{Action, Device, EpisodeEnd, Frame, Result, Task, TaskDriver};

use crate::suite::{Checked, Failure, Settings, Verdict, ensure, suite};

/// What the checks need to know about a task driver.
#[async_trait]
pub trait TaskDriverHarness: Sync {
    /// The device that the driver works on.
    type Device: Device;
    /// What is tested.
    type Driver: TaskDriver<Self::Device>;

    /// How to run the checks.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Makes a device and a driver.
    async fn make(&self) -> Result<(Self::Device, Self::Driver)>;

    /// A task.
    fn task(&self) -> Task;

    /// The seed of the task instance that the checks use.
    fn seed(&self) -> u64 {
        7
    }

    /// Whether the same task and seed give the same first frame. If not, frames are not compared.
    fn deterministic(&self) -> bool;

    /// An action that changes the screen that has just been set up.
    async fn visible_action(
        &self,
        device: &mut Self::Device,
        driver: &mut Self::Driver,
    ) -> Result<Action>;
}

suite! {
    $
    /// Makes one `#[test]` of each check of the task driver suite, and `coverage`, in a module
    /// named `task_driver_conformance` or, with `mod name, harness`, otherwise.
    task_driver_conformance in task_driver for TaskDriverHarness:
    c01_set_up_makes_the_same_instance_whatever_was_before,
    c02_ended_changes_nothing,
    c03_score_changes_nothing,
    c04_tear_down_is_possible_at_any_time,
}

async fn frame<H: TaskDriverHarness>(device: &mut H::Device) -> Result<Frame, Failure> {
    Ok(device.screenshot().await?.frame)
}

fn same<H: TaskDriverHarness>(h: &H, a: &Frame, b: &Frame, what: &str) -> Result<(), Failure> {
    ensure(
        !h.deterministic() || a == b,
        format!("{what} changed the screen"),
    )
}

/// Line 1. `set_up` leaves the device in the initial state of the task instance, whatever was on it
/// before, and returns the instruction.
pub async fn c01_set_up_makes_the_same_instance_whatever_was_before<H: TaskDriverHarness>(
    h: &H,
) -> Checked {
    let (mut device, mut driver) = h.make().await?;
    let task = h.task();
    let first = driver.set_up(&mut device, &task, h.seed()).await?;
    ensure(!first.trim().is_empty(), "the instruction is empty")?;
    let before = frame::<H>(&mut device).await?;
    let action = h.visible_action(&mut device, &mut driver).await?;
    device.perform(&action).await?;
    driver.set_up(&mut device, &task, h.seed() + 1).await?;
    let again = driver.set_up(&mut device, &task, h.seed()).await?;
    ensure(first == again, format!("{first:?} became {again:?}"))?;
    let after = frame::<H>(&mut device).await?;
    same(h, &before, &after, "an earlier episode")?;
    let end = EpisodeEnd::default();
    let reward = driver.score(&mut device, &end).await?;
    ensure(!reward.is_success(), "a task just set up scores 1")?;
    Ok(Verdict::Passed)
}

/// Line 2. `ended` tells whether the task has ended by itself and changes nothing.
pub async fn c02_ended_changes_nothing<H: TaskDriverHarness>(h: &H) -> Checked {
    let (mut device, mut driver) = h.make().await?;
    driver.set_up(&mut device, &h.task(), h.seed()).await?;
    let before = frame::<H>(&mut device).await?;
    for _ in 0..2 {
        let ended = driver.ended(&mut device).await?;
        ensure(!ended, "a task just set up has ended")?;
    }
    let after = frame::<H>(&mut device).await?;
    same(h, &before, &after, "ended")?;
    Ok(Verdict::Passed)
}

/// Line 3. `score` judges what is on the device now and changes nothing that a second `score` would see.
pub async fn c03_score_changes_nothing<H: TaskDriverHarness>(h: &H) -> Checked {
    let (mut device, mut driver) = h.make().await?;
    driver.set_up(&mut device, &h.task(), h.seed()).await?;
    let action = h.visible_action(&mut device, &mut driver).await?;
    device.perform(&action).await?;
    let before = frame::<H>(&mut device).await?;
    let end = EpisodeEnd {
        last_action: Some(action),
        ..EpisodeEnd::default()
    };
    let first = driver.score(&mut device, &end).await?;
    let second = driver.score(&mut device, &end).await?;
    ensure(
        first == second,
        format!("score gave {first:?}, then {second:?}"),
    )?;
    let after = frame::<H>(&mut device).await?;
    same(h, &before, &after, "score")?;
    Ok(Verdict::Passed)
}

/// Line 4. `tear_down` may be called at any time and twice.
pub async fn c04_tear_down_is_possible_at_any_time<H: TaskDriverHarness>(h: &H) -> Checked {
    let (mut device, mut driver) = h.make().await?;
    driver.tear_down(&mut device).await?;
    driver.set_up(&mut device, &h.task(), h.seed()).await?;
    driver.tear_down(&mut device).await?;
    driver.tear_down(&mut device).await?;
    driver.set_up(&mut device, &h.task(), h.seed()).await?;
    Ok(Verdict::Passed)
}
