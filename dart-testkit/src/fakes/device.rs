//! [`FakeDevice`]: a screen with one square that turns green when it is clicked.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use dart_core::{
    Action, ActionKind, ActionSet, Device, DeviceSpec, Error, ErrorKind, Frame, Observation, Rect,
    Result, ScreenPx, Size,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const ORIGIN: &str = "fake device";
const BACKGROUND: [u8; 3] = [40, 40, 40];
const OFF: [u8; 3] = [200, 30, 30];
const ON: [u8; 3] = [30, 200, 30];
const POINTER: [u8; 3] = [255, 255, 255];
const TEXT: [u8; 3] = [220, 220, 90];

/// How a [`FakeDevice`] looks and how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeDeviceConfig {
    /// The screen. Default 32x24.
    pub screen: Size,
    /// Shortest and longest time of a call, milliseconds; drawn for each call. Default 0 to 0.
    pub latency_ms: (u64, u64),
    /// Seeds the latencies.
    pub seed: u64,
}

impl Default for FakeDeviceConfig {
    fn default() -> Self {
        Self {
            screen: Size::new(32, 24),
            latency_ms: (0, 0),
            seed: 0,
        }
    }
}

/// A screen with one square that a click turns green, and back. Typed text is drawn as a bar along
/// the bottom, the pointer as a white pixel.
#[derive(Debug)]
pub struct FakeDevice {
    spec: DeviceSpec,
    latency_ms: (u64, u64),
    rng: ChaCha8Rng,
    /// The square.
    target: Rect,
    lit: bool,
    pointer: ScreenPx,
    text: String,
    held: BTreeSet<String>,
    performed: Vec<Action>,
    closed: bool,
}

impl FakeDevice {
    /// The actions it performs: a few of a desktop's.
    pub const ACTIONS: ActionSet = ActionSet::of(&[
        ActionKind::Click,
        ActionKind::KeyDown,
        ActionKind::KeyUp,
        ActionKind::MouseDown,
        ActionKind::MouseUp,
        ActionKind::MoveTo,
        ActionKind::Type,
        ActionKind::Wait,
    ]);

    /// A device with the square in the middle.
    pub fn new(config: FakeDeviceConfig) -> Self {
        let screen = config.screen;
        let middle = ScreenPx::new((screen.width / 2) as i32, (screen.height / 2) as i32);
        Self {
            spec: DeviceSpec {
                name: "fake".into(),
                screen,
                actions: Self::ACTIONS,
            },
            latency_ms: config.latency_ms,
            rng: ChaCha8Rng::seed_from_u64(config.seed),
            target: Rect::new(middle.x, middle.y, 4, 4),
            lit: false,
            pointer: ScreenPx::new(0, 0),
            text: String::new(),
            held: BTreeSet::new(),
            performed: Vec::new(),
            closed: false,
        }
    }

    /// Puts the square somewhere, dark, and forgets everything else.
    pub fn place(&mut self, target: Rect) {
        self.target = target;
        self.lit = false;
        self.pointer = ScreenPx::new(0, 0);
        self.text.clear();
        self.held.clear();
    }

    /// Where the square is.
    pub const fn target(&self) -> Rect {
        self.target
    }

    /// Whether the square is green.
    pub const fn is_lit(&self) -> bool {
        self.lit
    }

    /// Number of keys and buttons held down.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Every action performed so far.
    pub fn performed(&self) -> &[Action] {
        &self.performed
    }

    fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.closed {
            let message = "the device is closed";
            return Err(Error::new(ErrorKind::Misuse, ORIGIN, operation, message));
        }
        Ok(())
    }

    async fn take_time(&mut self) {
        let (shortest, longest) = self.latency_ms;
        if longest > 0 {
            let millis = self.rng.random_range(shortest..=longest);
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
    }

    fn apply(&mut self, action: &Action) {
        match action {
            Action::Click { at, .. } => {
                self.pointer = *at;
                self.lit ^= self.target.contains(*at);
            }
            Action::MoveTo { at } => self.pointer = *at,
            Action::KeyDown { key } => {
                self.held.insert(key.to_string());
            }
            Action::KeyUp { key } => {
                self.held.remove(&key.to_string());
            }
            Action::MouseDown { button } => {
                self.held.insert(format!("{button:?} button"));
            }
            Action::MouseUp { button } => {
                self.held.remove(&format!("{button:?} button"));
            }
            Action::Type { text } => self.text.push_str(text),
            _ => {}
        }
        self.performed.push(action.clone());
    }

    fn color(&self, at: ScreenPx) -> [u8; 3] {
        let bottom = at.y + 1 == self.spec.screen.height as i32;
        if at == self.pointer {
            POINTER
        } else if self.target.contains(at) {
            if self.lit { ON } else { OFF }
        } else if bottom && (at.x as usize) < self.text.len() {
            TEXT
        } else {
            BACKGROUND
        }
    }
}

#[async_trait]
impl Device for FakeDevice {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        self.check_open("screenshot")?;
        self.take_time().await;
        let Size { width, height } = self.spec.screen;
        let pixels = (0..height as i32).flat_map(|y| (0..width as i32).map(move |x| (x, y)));
        let rgb: Vec<u8> = pixels
            .flat_map(|(x, y)| self.color(ScreenPx::new(x, y)))
            .collect();
        Ok(Observation::of(Frame::new(self.spec.screen, rgb)?))
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        self.check_open("perform")?;
        self.spec.check(action)?;
        self.take_time().await;
        if let Action::Wait { millis } = action {
            tokio::time::sleep(Duration::from_millis(u64::from(*millis))).await;
        }
        self.apply(action);
        Ok(())
    }

    async fn recover(&mut self) -> Result<()> {
        self.check_open("recover")?;
        self.take_time().await;
        self.held.clear();
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        self.closed = true;
        Ok(())
    }
}
