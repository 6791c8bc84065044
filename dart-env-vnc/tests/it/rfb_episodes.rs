//! Faults in the middle of an episode: a typed error within the deadline, or the episode goes on;
//! never a reward that nobody earned. The task is to click at one place.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use dart_core::{
    Action, Device, DeviceEnvironment, DeviceEnvironmentConfig, Environment, EpisodeEnd, ErrorKind,
    Key, NamedKey, Result, Reward, ScreenPx, Split, Task, TaskDriver,
};
use dart_env_vnc::VncDevice;

use crate::{
    rfb_faults::scripted,
    rfb_server::{FakeServer, Mode, Quirk},
    rfb_stream::Stream,
};

const PLACE: ScreenPx = ScreenPx::new(30, 20);

/// Judges by pixels: the click is done if they are other ones than at the start.
#[derive(Default)]
struct ClickTask {
    start: Option<[u8; 3]>,
}

async fn place(device: &mut VncDevice) -> Result<Option<[u8; 3]>> {
    let frame = device.screenshot().await?.frame;
    Ok(frame.pixel(PLACE.x as u32, PLACE.y as u32))
}

#[async_trait]
impl TaskDriver<VncDevice> for ClickTask {
    async fn set_up(&mut self, device: &mut VncDevice, _: &Task, _: u64) -> Result<Arc<str>> {
        self.start = place(device).await?;
        Ok("click".into())
    }

    async fn ended(&mut self, _: &mut VncDevice) -> Result<bool> {
        Ok(false)
    }

    async fn score(&mut self, device: &mut VncDevice, _: &EpisodeEnd) -> Result<Reward> {
        let now = place(device).await?;
        Ok(if now.is_some() && now != self.start {
            Reward::SUCCESS
        } else {
            Reward::FAILURE
        })
    }

    async fn tear_down(&mut self, _: &mut VncDevice) -> Result<()> {
        Ok(())
    }
}

type Env = DeviceEnvironment<VncDevice, ClickTask>;

fn task() -> Task {
    Task {
        id: "click".to_owned().try_into().unwrap(),
        family: "click".to_owned(),
        split: Split::Train,
        horizon: 50,
        params: serde_json::Value::Null,
    }
}

fn environment(device: VncDevice) -> Env {
    let config = DeviceEnvironmentConfig::default();
    DeviceEnvironment::new(device, ClickTask::default(), false, config)
}

async fn begun(quirk: Quirk) -> (FakeServer, Env) {
    let server = FakeServer::start(quirk).await;
    let device = VncDevice::connect(server.config()).await.unwrap();
    let mut env = environment(device);
    env.reset(&task(), 1).await.unwrap();
    (server, env)
}

/// A whole episode that succeeds.
async fn play(env: &mut Env) {
    env.reset(&task(), 2).await.unwrap();
    env.step(&Action::click(PLACE)).await.unwrap();
    env.step(&Action::Done).await.unwrap();
    assert!(env.score().await.unwrap().is_success());
}

/// Breaks the server after the click that would have earned the reward.
async fn broken_after_the_click(mode: Mode, kind: ErrorKind) {
    let (server, mut env) = begun(Quirk::None).await;
    env.step(&Action::click(PLACE)).await.unwrap();
    server.set(mode);
    let begun = Instant::now();
    let error = env.step(&Action::click(PLACE)).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.is_retryable());
    let error = env.score().await.unwrap_err();
    assert_ne!(error.kind(), ErrorKind::InvalidAction, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{error}");
    server.set(Mode::Serve);
    play(&mut env).await;
}

#[tokio::test]
async fn a_server_that_is_killed_gives_no_reward() {
    broken_after_the_click(Mode::Cut, ErrorKind::Disconnected).await;
}

#[tokio::test]
async fn a_half_open_connection_gives_no_reward() {
    broken_after_the_click(Mode::Stall, ErrorKind::Timeout).await;
}

#[tokio::test]
async fn a_server_that_is_killed_before_the_score_gives_no_reward() {
    let (server, mut env) = begun(Quirk::None).await;
    env.step(&Action::click(PLACE)).await.unwrap();
    env.step(&Action::Done).await.unwrap();
    server.set(Mode::Cut);
    assert!(env.score().await.is_err());
    server.set(Mode::Serve);
    play(&mut env).await;
}

#[tokio::test]
async fn one_byte_at_a_time_is_an_episode_like_any_other() {
    let server = FakeServer::start(Quirk::Bytewise).await;
    let config = dart_env_vnc::VncConfig {
        update_timeout_ms: 20_000,
        ..server.config()
    };
    let device = VncDevice::connect(config).await.unwrap();
    play(&mut environment(device)).await;
}

/// The size is that of the observation and of the specification from the next step on.
#[tokio::test]
async fn a_resize_in_an_episode_is_followed() {
    let (_server, mut env) = begun(Quirk::Resizing).await;
    let outcome = env.step(&Action::click(ScreenPx::new(0, 0))).await.unwrap();
    let size = outcome.observation.frame.size();
    assert_eq!((size.width, size.height), (80, 40));
    env.step(&Action::click(PLACE)).await.unwrap();
    env.step(&Action::Done).await.unwrap();
    assert!(env.score().await.unwrap().is_success());
}

/// vncdotool#90: a server whose first update is black paints later; what is black is not taken for
/// the start of an episode as long as nothing was painted.
#[tokio::test]
async fn a_server_that_never_paints_begins_no_episode() {
    let stream = Stream::ready(64, 48).update(1).rect([0, 0, 64, 48], -223);
    let error = VncDevice::connect(scripted(vec![(0, stream)], false).await).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Timeout);
}

/// os-autoinst#1095: the server is restarted or reverted under an episode that goes on: what was
/// held is let go, the pointer is where it was, and the actions so far still count.
#[tokio::test]
async fn case_23_a_restart_keeps_what_the_episode_knows() {
    let server = FakeServer::start(Quirk::None).await;
    let mut device = VncDevice::connect(server.config()).await.unwrap();
    device.perform(&Action::MoveTo { at: PLACE }).await.unwrap();
    let key = Key::Named(NamedKey::Shift);
    device.perform(&Action::KeyDown { key }).await.unwrap();
    server.set(Mode::Cut);
    device.screenshot().await.unwrap_err();
    server.set(Mode::Serve);
    device.recover().await.unwrap();
    assert_eq!(server.held(), 0);
    let before = place(&mut device).await.unwrap();
    // No place is given: it is where the pointer was before the restart.
    let button = dart_core::MouseButton::Left;
    device.perform(&Action::MouseDown { button }).await.unwrap();
    device.perform(&Action::MouseUp { button }).await.unwrap();
    assert_ne!(place(&mut device).await.unwrap(), before);
}
