//! What the episode layer of dart-core does where a driver or a device misbehaves.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dart_core::{
    Action, DeviceEnvironment, DeviceEnvironmentConfig, Environment, EpisodeEnd, Error, ErrorKind,
    Result, Reward, StepStatus, Task, TaskDriver,
};
use dart_testkit::{
    Fault, Faulty, drop_after,
    fakes::{FakeDevice, FakeDeviceConfig, FakeDriver, HasFakeDevice, task},
    faulty::{FaultSwitch, Mishap},
    poll_once_then_drop,
};

/// A driver whose clean-up never ends.
struct Clinging(FakeDriver);

#[async_trait]
impl<D: HasFakeDevice> TaskDriver<D> for Clinging {
    async fn set_up(&mut self, device: &mut D, task: &Task, seed: u64) -> Result<Arc<str>> {
        self.0.set_up(device, task, seed).await
    }

    async fn ended(&mut self, device: &mut D) -> Result<bool> {
        self.0.ended(device).await
    }

    async fn score(&mut self, device: &mut D, end: &EpisodeEnd) -> Result<Reward> {
        self.0.score(device, end).await
    }

    async fn tear_down(&mut self, _device: &mut D) -> Result<()> {
        std::future::pending().await
    }
}

type Env = DeviceEnvironment<Faulty<FakeDevice>, FakeDriver>;

fn environment() -> (Env, FaultSwitch) {
    let (device, switch) = Faulty::new(
        FakeDevice::new(FakeDeviceConfig::default()),
        Duration::from_secs(5),
    );
    let config = DeviceEnvironmentConfig::default();
    let env = DeviceEnvironment::new(device, FakeDriver::default(), true, config);
    (env, switch)
}

async fn is_closed(device: &mut FakeDevice) -> bool {
    use dart_core::Device;
    matches!(device.screenshot().await, Err(error) if error.kind() == ErrorKind::Misuse)
}

#[tokio::test(start_paused = true)]
async fn a_clean_up_that_hangs_does_not_keep_the_device_open() {
    let device = FakeDevice::new(FakeDeviceConfig::default());
    let driver = Clinging(FakeDriver::default());
    let mut env = DeviceEnvironment::new(device, driver, true, DeviceEnvironmentConfig::default());
    env.reset(&task(3), 0).await.unwrap();
    let closed = drop_after(Duration::from_mins(1), env.close()).await;
    let error = closed.expect("close has a deadline").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(is_closed(env.device_mut()).await);
    env.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_close_is_made_good_by_the_next() {
    let device = FakeDevice::new(FakeDeviceConfig::default());
    let driver = Clinging(FakeDriver::default());
    let mut env = DeviceEnvironment::new(device, driver, true, DeviceEnvironmentConfig::default());
    assert!(poll_once_then_drop(env.close()).await.is_none());
    let step = env.step(&Action::Done).await;
    assert_eq!(step.unwrap_err().kind(), ErrorKind::Misuse);
    assert!(!is_closed(env.device_mut()).await);
    let _ = env.close().await;
    assert!(is_closed(env.device_mut()).await);
}

/// A device that finds out only when it tries that it cannot type this.
struct Picky(FakeDevice);

#[async_trait]
impl dart_core::Device for Picky {
    fn spec(&self) -> &dart_core::DeviceSpec {
        self.0.spec()
    }

    async fn screenshot(&mut self) -> Result<dart_core::Observation> {
        self.0.screenshot().await
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        match action {
            Action::Type { text } if !text.is_ascii() => {
                let kind = ErrorKind::Unsupported;
                Err(Error::new(kind, "picky", "type", "no key prints that"))
            }
            _ => self.0.perform(action).await,
        }
    }

    async fn recover(&mut self) -> Result<()> {
        self.0.recover().await
    }

    async fn close(&mut self) -> Result<()> {
        self.0.close().await
    }
}

impl HasFakeDevice for Picky {
    fn fake(&mut self) -> &mut FakeDevice {
        &mut self.0
    }
}

#[tokio::test]
async fn an_action_that_the_device_refuses_does_not_end_the_episode() {
    let device = Picky(FakeDevice::new(FakeDeviceConfig::default()));
    let config = DeviceEnvironmentConfig::default();
    let mut env = DeviceEnvironment::new(device, FakeDriver::default(), true, config);
    env.reset(&task(1), 0).await.unwrap();
    let text = "é".to_owned();
    let refused = env.step(&Action::Type { text }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    // It was no step either: the one step of the horizon is still there.
    let outcome = env.step(&Action::Wait { millis: 1 }).await.unwrap();
    assert!(matches!(outcome.status, StepStatus::Truncated(_)));
}

#[tokio::test(start_paused = true)]
async fn the_layer_has_deadlines_of_its_own() {
    let (mut env, switch) = environment();
    env.reset(&task(3), 0).await.unwrap();
    switch.at_call(switch.calls() + 1, Mishap::Hang);
    let step = env.step(&Action::Wait { millis: 1 }).await;
    assert_eq!(step.unwrap_err().kind(), ErrorKind::Timeout);
    let step = env.step(&Action::Wait { millis: 1 }).await;
    assert_eq!(step.unwrap_err().kind(), ErrorKind::Cancelled);
    env.reset(&task(3), 0).await.unwrap();
    env.step(&Action::Wait { millis: 1 }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_is_no_fault() {
    let (mut env, switch) = environment();
    env.reset(&task(3), 0).await.unwrap();
    switch.at_call(switch.calls() + 1, Mishap::Slow(Duration::from_secs(80)));
    env.step(&Action::Wait { millis: 1 }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_device_can_be_survived() {
    let (mut env, switch) = environment();
    env.reset(&task(3), 0).await.unwrap();
    switch.at_call(switch.calls() + 1, Mishap::Panic);
    let shared = Arc::new(tokio::sync::Mutex::new(env));
    let worker = shared.clone();
    let joined = tokio::spawn(async move {
        let step = worker.lock().await.step(&Action::Wait { millis: 1 }).await;
        step.map(|_| ())
    });
    assert!(joined.await.unwrap_err().is_panic());
    let mut env = shared.lock().await;
    let step = env.step(&Action::Wait { millis: 1 }).await;
    assert_eq!(step.unwrap_err().kind(), ErrorKind::Cancelled);
    env.reset(&task(3), 0).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn planned_faults_last_until_they_are_healed() {
    let (mut env, switch) = environment();
    for (mishap, kind) in [
        (Mishap::Stall, ErrorKind::Timeout),
        (Mishap::Cut, ErrorKind::Disconnected),
    ] {
        env.reset(&task(3), 0).await.unwrap();
        switch.at_call(switch.calls() + 2, mishap);
        let step = env.step(&Action::Wait { millis: 1 }).await;
        assert_eq!(step.unwrap_err().kind(), kind);
        assert_eq!(env.reset(&task(3), 0).await.unwrap_err().kind(), kind);
        switch.heal();
        env.reset(&task(3), 0).await.unwrap();
    }
    switch.start(Fault::Cut);
    assert!(env.score().await.is_ok(), "the fake judge needs no peer");
}
