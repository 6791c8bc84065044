//! A screen that never changes.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{
    Action, ActionSet, Device, DeviceSpec, Frame, Observation, Rect, Result, Size, UiElement,
    UiRole,
};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Noise in blocks: neither trivial to compress nor hopeless. One button lies on it.
#[derive(Debug)]
pub(crate) struct Still(DeviceSpec, Observation);

impl Still {
    pub(crate) fn new(screen: Size) -> Result<Self> {
        let mut noise = vec![0; screen.area().div_ceil(16)];
        ChaCha8Rng::seed_from_u64(7).fill_bytes(&mut noise);
        let rgb: Vec<u8> = (0..screen.area() * 3)
            .map(|at| noise[at / 48 % noise.len()])
            .collect();
        let mut observation = Observation::of(Frame::new(screen, rgb)?);
        let button = UiElement {
            role: UiRole::Button,
            text: "A > B & \"C\"".into(),
            bounds: Rect::new(1, 2, 9, 6),
        };
        observation.ui = Some(Arc::new([button]));
        let spec = DeviceSpec::new("still", screen, ActionSet::PHONE);
        Ok(Self(spec, observation))
    }
}

#[async_trait]
impl Device for Still {
    fn spec(&self) -> &DeviceSpec {
        &self.0
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        Ok(self.1.clone())
    }

    async fn perform(&mut self, _: &Action) -> Result<()> {
        Ok(())
    }

    async fn recover(&mut self) -> Result<()> {
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }
}
