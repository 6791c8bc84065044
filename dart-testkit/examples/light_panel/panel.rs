//! Six lights; a click switches one. A whole backend: device, task driver, factory.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::*;

/// Three columns and two rows of lights, 32 x 32 pixels each; one bit for each, `None` when closed.
pub struct Panel(DeviceSpec, Option<u8>);

impl Panel {
    /// A panel with all lights off.
    pub fn new() -> Self {
        let actions = ActionSet::of(&[ActionKind::Click, ActionKind::Wait]);
        let spec = DeviceSpec::new("panel", Size::new(96, 64), actions);
        Self(spec, Some(0))
    }

    /// The lights, unless the panel is closed.
    pub fn lights(&mut self) -> Result<&mut u8> {
        let closed = || Error::new(ErrorKind::Misuse, "panel", "call", "the panel is closed");
        self.1.as_mut().ok_or_else(closed)
    }
}

#[async_trait]
impl Device for Panel {
    fn spec(&self) -> &DeviceSpec {
        &self.0
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        let lights = *self.lights()?;
        let light = |pixel: i32| lights >> (pixel % 96 / 32 + pixel / (96 * 32) * 3) & 1;
        let rgb: Vec<u8> = (0..96 * 64)
            .flat_map(|pixel| [40 + light(pixel) * 200; 3])
            .collect();
        Ok(Observation::of(Frame::new(self.0.screen, rgb)?))
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        self.0.check(action)?;
        let lights = self.lights()?;
        if let Action::Click { at, .. } = action {
            *lights ^= 1 << (at.x / 32 + at.y / 32 * 3);
        }
        Ok(())
    }

    async fn recover(&mut self) -> Result<()> {
        self.lights().map(|_| ()) // nothing is held down, nothing to connect
    }

    async fn close(&mut self) -> Result<()> {
        self.1 = None;
        Ok(())
    }
}

/// The lights that are to be on at the end.
pub struct Goal(pub u8);

#[async_trait]
impl TaskDriver<Panel> for Goal {
    async fn set_up(&mut self, panel: &mut Panel, _: &Task, seed: u64) -> Result<Arc<str>> {
        let (wanted, others) = (seed % 6, (seed / 6 % 64) as u8);
        self.0 = others | 1 << wanted;
        *panel.lights()? = others & !(1 << wanted);
        Ok(format!("turn on light {}", wanted + 1).into())
    }

    async fn ended(&mut self, panel: &mut Panel) -> Result<bool> {
        Ok(*panel.lights()? == self.0)
    }

    async fn score(&mut self, panel: &mut Panel, _: &EpisodeEnd) -> Result<Reward> {
        Ok((*panel.lights()? == self.0).into())
    }

    async fn tear_down(&mut self, _: &mut Panel) -> Result<()> {
        Ok(())
    }
}

/// Makes panels.
pub struct PanelFactory;

#[async_trait]
impl EnvironmentFactory for PanelFactory {
    async fn create(&self) -> Result<Box<dyn Environment>> {
        Ok(self.create_demonstrator().await?)
    }

    async fn create_demonstrator(&self) -> Result<Box<dyn Demonstrate>> {
        let limits = DeviceEnvironmentConfig::default();
        let env = DeviceEnvironment::new(Panel::new(), Goal(0), true, limits);
        Ok(Box::new(env))
    }
}
