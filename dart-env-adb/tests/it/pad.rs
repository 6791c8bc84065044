//! A small touch device: a square that a tap turns green, and a record of all actions.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{
    Action, ActionSet, Demonstrator, Device, DeviceSpec, EpisodeEnd, Frame, Observation, Rect,
    Result, Reward, ScreenPx, Size, Task, TaskDriver, UiElement, UiRole,
};
use dart_env_adb::AdbDevice;
use tokio::sync::Mutex;

pub(crate) const SCREEN: Size = Size::new(60, 100);

#[derive(Debug)]
pub(crate) struct Pad {
    spec: DeviceSpec,
    pub(crate) target: Rect,
    pub(crate) lit: bool,
    pub(crate) performed: Vec<Action>,
}

impl Pad {
    pub(crate) fn new(screen: Size) -> Self {
        Self {
            spec: DeviceSpec::new("pad", screen, ActionSet::PHONE),
            target: Rect::new(20, 30, 10, 10),
            lit: false,
            performed: Vec::new(),
        }
    }

    pub(crate) fn place(&mut self, seed: u64) {
        self.target = Rect::new((seed % 40) as i32, (seed % 70) as i32, 10, 10);
        self.lit = false;
        self.performed.clear();
    }

    /// All text that was typed; enter is a line break.
    pub(crate) fn typed(&self) -> String {
        let text = |action: &Action| match action {
            Action::Type { text } => text.clone(),
            Action::KeyboardEnter => "\n".into(),
            _ => String::new(),
        };
        self.performed.iter().map(text).collect()
    }
}

#[async_trait]
impl Device for Pad {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        let size = self.spec.screen;
        let mut rgb = vec![90; size.area() * 3];
        for (at, pixel) in rgb.chunks_exact_mut(3).enumerate() {
            let (x, y) = (
                (at as u32 % size.width) as i32,
                (at as u32 / size.width) as i32,
            );
            if self.target.contains(ScreenPx::new(x, y)) {
                pixel.copy_from_slice(if self.lit {
                    &[0, 200, 10]
                } else {
                    &[200, 13, 10]
                });
            }
        }
        let mut observation = Observation::of(Frame::new(size, rgb)?);
        observation.ui = Some(Arc::new([UiElement {
            role: UiRole::Button,
            text: "a <b> & \"c\"".into(),
            bounds: self.target,
        }]));
        Ok(observation)
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        self.spec.check(action)?;
        if let Action::Tap { at } = action {
            self.lit ^= self.target.contains(*at);
        }
        self.performed.push(action.clone());
        Ok(())
    }

    async fn recover(&mut self) -> Result<()> {
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The task: tap the square. Sets up and judges inside; acts and looks over ADB.
#[derive(Debug)]
pub(crate) struct PadDriver(pub(crate) Arc<Mutex<Pad>>);

#[async_trait]
impl TaskDriver<AdbDevice> for PadDriver {
    async fn set_up(&mut self, _device: &mut AdbDevice, _: &Task, seed: u64) -> Result<Arc<str>> {
        self.0.lock().await.place(seed);
        Ok("Tap the square.".into())
    }

    async fn ended(&mut self, _device: &mut AdbDevice) -> Result<bool> {
        Ok(false)
    }

    async fn score(&mut self, _device: &mut AdbDevice, _end: &EpisodeEnd) -> Result<Reward> {
        Ok(self.0.lock().await.lit.into())
    }

    async fn tear_down(&mut self, _device: &mut AdbDevice) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Demonstrator<AdbDevice> for PadDriver {
    async fn expert_action(&mut self, _device: &mut AdbDevice) -> Result<Option<Action>> {
        let pad = self.0.lock().await;
        let at = pad.target.center();
        Ok((!pad.lit).then_some(Action::Tap { at }))
    }
}
