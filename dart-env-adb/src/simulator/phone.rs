//! The state that all connections of a simulated phone share.

use std::{
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dart_core::{
    Action, ActionKind, Device, Frame, MouseButton, Observation, Rect, Result, ScreenPx, Size,
};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    options::{Faults, Options},
    system::{State, System},
};

/// A frame, and what was made of it.
#[derive(Debug)]
struct Picture {
    frame: Frame,
    printed: Arc<Vec<u8>>,
}

#[derive(Debug)]
pub(crate) struct Phone<D> {
    pub(crate) device: Arc<Mutex<D>>,
    pub(crate) options: Options,
    pub(crate) system: System,
    faults: StdMutex<Faults>,
    /// The last picture as `screencap` prints it.
    picture: StdMutex<Option<Picture>>,
    /// Ends the present connections.
    links: StdMutex<CancellationToken>,
}

fn lock<T>(mutex: &StdMutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D> Phone<D> {
    pub(crate) fn new(device: D, system: System, options: Options) -> Self {
        options
            .serial_number
            .clone_into(&mut system.state().serial_number);
        Self {
            device: Arc::new(Mutex::new(device)),
            options,
            system,
            faults: StdMutex::default(),
            picture: StdMutex::default(),
            links: StdMutex::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.system.state()
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    /// The token that ends a connection made now.
    pub(crate) fn link(&self) -> CancellationToken {
        lock(&self.links).child_token()
    }

    pub(crate) fn cut(&self) {
        std::mem::take(&mut *lock(&self.links)).cancel();
    }

    /// Restarts: connections are cut, for a while none is taken, and nothing hangs any more.
    pub(crate) fn reboot(&self) {
        let pause = Duration::from_millis(self.options.reboot_ms);
        self.state().booting_until = Some(Instant::now() + pause);
        self.faults().stall = false;
        self.cut();
    }

    /// What `print` makes of `frame`; what it made before if nothing has changed on the screen.
    pub(crate) fn printed(&self, frame: &Frame, print: impl FnOnce() -> Vec<u8>) -> Arc<Vec<u8>> {
        let mut last = lock(&self.picture);
        // The frame is kept, so its memory is no other frame's.
        let same = |old: &&Picture| {
            std::ptr::eq(old.frame.rgb(), frame.rgb()) && old.frame.size() == frame.size()
        };
        if let Some(old) = last.as_ref().filter(same) {
            return Arc::clone(&old.printed);
        }
        let printed = Arc::new(print());
        *last = Some(Picture {
            frame: frame.clone(),
            printed: Arc::clone(&printed),
        });
        printed
    }

    pub(crate) fn is_booting(&self) -> bool {
        let until = self.state().booting_until;
        until.is_some_and(|until| Instant::now() < until)
    }
}

impl<D: Device> Phone<D> {
    /// What is on the screen, turned if the phone is.
    pub(crate) async fn screen(&self) -> Result<Observation> {
        let mut observation = self.device.lock().await.screenshot().await?;
        if self.faults().rotated {
            let natural = observation.frame.size();
            observation.frame = turned(&observation.frame)?;
            let elements = observation.ui.iter().flat_map(|all| all.iter().cloned());
            let elements = elements.map(|mut element| {
                element.bounds = turned_rect(element.bounds, natural);
                element
            });
            observation.ui = observation.ui.is_some().then(|| elements.collect());
        }
        Ok(observation)
    }

    /// Width and height of the screen as it is held.
    pub(crate) async fn size(&self) -> Size {
        let size = self.natural_size().await;
        if self.faults().rotated {
            Size::new(size.height, size.width)
        } else {
            size
        }
    }

    /// Width and height of the screen held upright.
    pub(crate) async fn natural_size(&self) -> Size {
        self.device.lock().await.spec().screen
    }

    /// Performs the first of `actions` that the device takes; points are as the phone is held. A
    /// point outside touches nothing.
    pub(crate) async fn perform(&self, actions: &[Action]) -> Result<()> {
        let mut device = self.device.lock().await;
        let spec = device.spec().clone();
        let known = |action: &&Action| spec.actions.contains(action.kind());
        let Some(action) = actions.iter().find(known) else {
            return Ok(());
        };
        let action = if self.faults().rotated {
            upright(action.clone(), spec.screen)
        } else {
            action.clone()
        };
        if action.points().any(|at| !spec.screen.contains(at)) {
            return Ok(());
        }
        device.perform(&action).await
    }
}

/// A tap, on devices with a mouse a click.
pub(crate) fn taps(at: ScreenPx, count: u8) -> [Action; 2] {
    let click = Action::Click {
        at,
        button: MouseButton::Left,
        count,
        modifiers: dart_core::Modifiers::NONE,
    };
    debug_assert_eq!(click.kind(), ActionKind::Click);
    match count {
        1 => [Action::Tap { at }, click],
        _ => [Action::DoubleTap { at }, click],
    }
}

/// The picture turned clockwise.
fn turned(frame: &Frame) -> Result<Frame> {
    let Size { width, height } = frame.size();
    let mut rgb = Vec::with_capacity(frame.rgb().len());
    for x in 0..width {
        for y in (0..height).rev() {
            rgb.extend(frame.pixel(x, y).unwrap_or_default());
        }
    }
    Frame::new(Size::new(height, width), rgb)
}

const fn turned_rect(rect: Rect, natural: Size) -> Rect {
    let x = natural.height as i32 - rect.y - rect.height as i32;
    Rect::new(x, rect.x, rect.height, rect.width)
}

/// `action` with its points as on the screen held upright.
fn upright(mut action: Action, natural: Size) -> Action {
    let back = |at: ScreenPx| ScreenPx::new(at.y, natural.height as i32 - 1 - at.x);
    match &mut action {
        Action::Click { at, .. }
        | Action::DoubleTap { at }
        | Action::LongPress { at }
        | Action::Tap { at } => *at = back(*at),
        Action::Swipe { from, to } => (*from, *to) = (back(*from), back(*to)),
        Action::DragTo { from, to } => (*from, *to) = (from.map(back), back(*to)),
        _ => {}
    }
    action
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_moves_pixels_points_and_rectangles_alike() {
        let size = Size::new(3, 2);
        let rgb: Vec<u8> = (0..6).flat_map(|n| [n, n, n]).collect();
        let frame = Frame::new(size, rgb).unwrap();
        let turned_frame = turned(&frame).unwrap();
        assert_eq!(turned_frame.size(), Size::new(2, 3));
        for (x, y) in [(0, 0), (1, 0), (1, 2), (0, 2)] {
            let tap = upright(
                Action::Tap {
                    at: ScreenPx::new(x, y),
                },
                size,
            );
            let at = tap.points().next().unwrap();
            let before = frame.pixel(at.x as u32, at.y as u32);
            assert_eq!(turned_frame.pixel(x as u32, y as u32), before);
        }
        let rect = turned_rect(Rect::new(2, 1, 1, 1), size);
        assert_eq!(rect, Rect::new(0, 2, 1, 1));
    }
}
