//! What the policy sees.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Rect, Result, Size};

/// The pixels of one screenshot: 8-bit RGB, rows top to bottom, no padding. Cloning shares them.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    size: Size,
    rgb: Arc<[u8]>,
}

impl Frame {
    /// Largest frame, in pixels: 64 Mpx. Larger screens are refused before anything is allocated.
    pub const MAX_PIXELS: usize = 64 << 20;

    /// Wraps `rgb`, which holds `size.area() * 3` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if the length does not fit the size, or the size is empty or too large.
    pub fn new(size: Size, rgb: impl Into<Arc<[u8]>>) -> Result<Self> {
        let rgb = rgb.into();
        let area = size.area();
        if area == 0 || area > Self::MAX_PIXELS || rgb.len() != area * 3 {
            return Err(Error::new(
                ErrorKind::Protocol,
                "dart-core",
                "frame",
                "a frame holds width * height * 3 bytes and at most 64 Mpx",
            )
            .with("size", size)
            .with("bytes", rgb.len()));
        }
        Ok(Self { size, rgb })
    }

    /// Width and height.
    pub const fn size(&self) -> Size {
        self.size
    }

    /// The bytes: red, green, blue for each pixel.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// Red, green and blue of one pixel, or `None` outside the frame.
    pub fn pixel(&self, x: u32, y: u32) -> Option<[u8; 3]> {
        let inside = x < self.size.width && y < self.size.height;
        let at = (y as usize * self.size.width as usize + x as usize) * 3;
        inside.then(|| [self.rgb[at], self.rgb[at + 1], self.rgb[at + 2]])
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frame({})", self.size)
    }
}

/// What a user-interface element is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each name says what the element is")]
pub enum UiRole {
    Button,
    Checkbox,
    Dialog,
    Icon,
    Label,
    ListItem,
    MenuItem,
    Other,
    Radio,
    Slider,
    Switch,
    Tab,
    TextField,
}

/// One visible element of the user interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UiElement {
    /// What it is for.
    pub role: UiRole,
    /// The text that it shows.
    pub text: String,
    /// Where the text (or, without text, the element) is drawn.
    pub bounds: Rect,
}

/// What the policy sees at one step.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The screenshot.
    pub frame: Frame,
    /// Why the previous action had no effect, if it was invalid.
    pub last_action_error: Option<String>,
    /// The visible elements, where the environment can list them. Never shown to a policy that
    /// is evaluated on pixels; used by auxiliary losses and for inspection.
    pub ui: Option<Arc<[UiElement]>>,
}

impl Observation {
    /// An observation of pixels alone.
    pub const fn of(frame: Frame) -> Self {
        Self {
            frame,
            last_action_error: None,
            ui: None,
        }
    }
}
