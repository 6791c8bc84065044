//! Coordinates. Three spaces that must never be mixed, each a type of its own, joined only by a [`Viewport`].
//!
//! A screenshot is resized before a model sees it, so a model speaks in pixels of the *resized*
//! image ([`ModelPx`]); devices act in pixels of the screen ([`ScreenPx`]); task files and some
//! models use fractions ([`Norm`]).

use serde::{Deserialize, Serialize};

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Size {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
}

impl Size {
    /// A size of `width` x `height` pixels.
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// Number of pixels.
    pub const fn area(self) -> usize {
        self.width as usize * self.height as usize
    }

    /// Whether `point` lies on the screen.
    pub const fn contains(self, point: ScreenPx) -> bool {
        point.x >= 0
            && point.y >= 0
            && (point.x as u32) < self.width
            && (point.y as u32) < self.height
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// A point in screen pixels; (0, 0) is the top left pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScreenPx {
    /// Pixels from the left edge.
    pub x: i32,
    /// Pixels from the top edge.
    pub y: i32,
}

impl ScreenPx {
    /// The pixel in column `x` and row `y`.
    pub const fn new(x: i32, y: i32) -> Self {
        Self { x, y }
    }
}

/// A point in pixels of the image that the model sees.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelPx {
    /// Pixels from the left edge of the resized image.
    pub x: f32,
    /// Pixels from the top edge of the resized image.
    pub y: f32,
}

/// A point as fractions of width and height, each in `0.0..=1.0`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Norm {
    /// Fraction of the width.
    pub x: f32,
    /// Fraction of the height.
    pub y: f32,
}

/// An axis-parallel rectangle in screen pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rect {
    /// Left edge.
    pub x: i32,
    /// Top edge.
    pub y: i32,
    /// Width; 0 means empty.
    pub width: u32,
    /// Height; 0 means empty.
    pub height: u32,
}

impl Rect {
    /// A rectangle with its top left corner at (`x`, `y`).
    pub const fn new(x: i32, y: i32, width: u32, height: u32) -> Self {
        Self {
            x,
            y,
            width,
            height,
        }
    }

    /// The middle, rounded towards the top left.
    pub const fn center(self) -> ScreenPx {
        ScreenPx::new(
            self.x + (self.width / 2) as i32,
            self.y + (self.height / 2) as i32,
        )
    }

    /// Whether `point` lies inside.
    pub const fn contains(self, point: ScreenPx) -> bool {
        point.x >= self.x
            && point.y >= self.y
            && point.x < self.x + self.width as i32
            && point.y < self.y + self.height as i32
    }
}

/// The only way from one coordinate space to another.
///
/// ```
/// use dart_core::{ModelPx, ScreenPx, Size, Viewport};
///
/// // UI-TARS: 1920x1080 is resized to 1932x1092 (multiples of 28).
/// let viewport = Viewport::new(Size::new(1920, 1080), Size::new(1932, 1092));
/// let middle = viewport.to_screen(ModelPx { x: 966.0, y: 546.0 });
/// assert_eq!(middle, ScreenPx::new(960, 540));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Viewport {
    screen: Size,
    model: Size,
}

impl Viewport {
    /// A screen of `screen` pixels shown to the model as an image of `model` pixels.
    ///
    /// # Panics
    /// If a side is zero: such a screen shows nothing.
    pub const fn new(screen: Size, model: Size) -> Self {
        assert!(
            screen.area() > 0 && model.area() > 0,
            "a viewport has no empty side"
        );
        Self { screen, model }
    }

    /// The screen's size.
    pub const fn screen(self) -> Size {
        self.screen
    }

    /// The size of the image that the model sees.
    pub const fn model(self) -> Size {
        self.model
    }

    /// Model to screen, clamped to the screen: a model cannot point outside it.
    pub fn to_screen(self, point: ModelPx) -> ScreenPx {
        let scale = |value: f32, from: u32, to: u32| {
            let scaled = f64::from(value) * f64::from(to) / f64::from(from);
            scaled.floor().clamp(0.0, f64::from(to - 1)) as i32
        };
        ScreenPx::new(
            scale(point.x, self.model.width, self.screen.width),
            scale(point.y, self.model.height, self.screen.height),
        )
    }

    /// Screen to model: the centre of the screen pixel.
    pub fn to_model(self, point: ScreenPx) -> ModelPx {
        let scale = |value: i32, from: u32, to: u32| {
            ((f64::from(value) + 0.5) * f64::from(to) / f64::from(from)) as f32
        };
        ModelPx {
            x: scale(point.x, self.screen.width, self.model.width),
            y: scale(point.y, self.screen.height, self.model.height),
        }
    }

    /// Fractions to screen, clamped to the screen.
    pub fn norm_to_screen(self, point: Norm) -> ScreenPx {
        self.to_screen(ModelPx {
            x: point.x * self.model.width as f32,
            y: point.y * self.model.height as f32,
        })
    }

    /// Screen to fractions.
    pub fn to_norm(self, point: ScreenPx) -> Norm {
        Norm {
            x: (point.x as f32 + 0.5) / self.screen.width as f32,
            y: (point.y as f32 + 0.5) / self.screen.height as f32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn model_round_trip_keeps_the_pixel(
            w in 1u32..3000, h in 1u32..3000, mw in 1u32..3000, mh in 1u32..3000, fx in 0.0f32..1.0, fy in 0.0f32..1.0,
        ) {
            // Upscaling only: a coarser model image cannot tell neighbouring pixels apart.
            let viewport = Viewport::new(Size::new(w, h), Size::new(w.max(mw), h.max(mh)));
            let point = ScreenPx::new((fx * w as f32) as i32, (fy * h as f32) as i32);
            prop_assert_eq!(viewport.to_screen(viewport.to_model(point)), point);
            prop_assert_eq!(viewport.norm_to_screen(viewport.to_norm(point)), point);
        }

        #[test]
        fn never_leaves_the_screen(x in -1e6f32..1e6, y in -1e6f32..1e6) {
            let viewport = Viewport::new(Size::new(160, 120), Size::new(168, 112));
            let inside = viewport.screen().contains(viewport.to_screen(ModelPx { x, y }));
            prop_assert!(inside);
        }
    }

    #[test]
    fn a_resized_screenshot_moves_the_click() {
        // trycua/cua#898: coordinates of a half-size image were used as screen pixels.
        let viewport = Viewport::new(Size::new(3840, 2160), Size::new(1920, 1080));
        assert_eq!(
            viewport.to_screen(ModelPx {
                x: 1900.0,
                y: 1000.0
            }),
            ScreenPx::new(3800, 2000)
        );
    }
}
