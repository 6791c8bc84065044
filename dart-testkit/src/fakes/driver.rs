//! [`FakeDriver`]: click the square.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{
    Action, Demonstrator, Device, EpisodeEnd, Rect, Result, Reward, ScreenPx, Size, Task,
    TaskDriver,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::FakeDevice;
use crate::Faulty;

/// A device that is, or contains, a [`FakeDevice`].
pub trait HasFakeDevice: Device {
    /// The fake device.
    fn fake(&mut self) -> &mut FakeDevice;
}

impl HasFakeDevice for FakeDevice {
    fn fake(&mut self) -> &mut FakeDevice {
        self
    }
}

impl<D: HasFakeDevice> HasFakeDevice for Faulty<D> {
    fn fake(&mut self) -> &mut FakeDevice {
        self.inner_mut().fake()
    }
}

/// The task: click the square until it is green. The seed places it.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeDriver {
    /// Side of the square, pixels; 0 is the default, 4.
    pub target_px: u32,
    /// Whether the episode ends by itself when the square is green.
    pub ends_by_itself: bool,
}

impl FakeDriver {
    /// Where the square of this seed is.
    fn target(self, screen: Size, seed: u64) -> Rect {
        let side = if self.target_px == 0 {
            4
        } else {
            self.target_px
        };
        let side = side.min(screen.width).min(screen.height);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let x = rng.random_range(0..=screen.width - side);
        let y = rng.random_range(0..=screen.height - side);
        Rect::new(x as i32, y as i32, side, side)
    }
}

#[async_trait]
impl<D: HasFakeDevice> TaskDriver<D> for FakeDriver {
    async fn set_up(&mut self, device: &mut D, _task: &Task, seed: u64) -> Result<Arc<str>> {
        let fake = device.fake();
        fake.place(self.target(fake.spec().screen, seed));
        // A round trip to the device, which is where a broken one is noticed.
        device
            .perform(&Action::MoveTo {
                at: ScreenPx::new(0, 0),
            })
            .await?;
        Ok("Click the red square.".into())
    }

    async fn ended(&mut self, device: &mut D) -> Result<bool> {
        Ok(self.ends_by_itself && device.fake().is_lit())
    }

    async fn score(&mut self, device: &mut D, _end: &EpisodeEnd) -> Result<Reward> {
        Ok(device.fake().is_lit().into())
    }

    async fn tear_down(&mut self, _device: &mut D) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl<D: HasFakeDevice> Demonstrator<D> for FakeDriver {
    async fn expert_action(&mut self, device: &mut D) -> Result<Option<Action>> {
        let fake = device.fake();
        Ok(Some(if fake.is_lit() {
            Action::Done
        } else {
            Action::click(fake.target().center())
        }))
    }
}
