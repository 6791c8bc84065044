//! Drawing with a list of what can be read.

use dart_core::{Rect, UiElement, UiRole};

use super::theme;
use crate::{
    canvas::{Canvas, Rgb},
    font::{self, ADVANCE, GLYPH_HEIGHT},
    geom::overlap,
};

/// From the left edge of a widget to its first character, px.
const PAD: i32 = 5;

/// What a text is for, the text, its colour.
#[derive(Clone, Copy)]
pub(super) struct Label<'a>(pub(super) UiRole, pub(super) &'a str, pub(super) Rgb);

/// A picture in the making and what can be read on it.
pub(super) struct Painter<'a> {
    pub(super) canvas: &'a mut Canvas,
    pub(super) list: Vec<UiElement>,
}

impl Painter<'_> {
    /// Writes a label, cut to `width` pixels, and lists it.
    pub(super) fn text(&mut self, label: Label<'_>, (x, y): (i32, i32), width: i32) {
        let Label(role, text, color) = label;
        let shown: String = text.chars().take(font::fitting(width)).collect();
        self.canvas.text((x, y), shown.chars(), color);
        let bounds = font::text_bounds(x, y, shown.chars().count());
        self.note(role, shown, bounds);
    }

    /// Lists what is drawn elsewhere.
    pub(super) fn note(&mut self, role: UiRole, text: String, bounds: Rect) {
        self.list.push(UiElement { role, text, bounds });
    }

    /// A label at the left of `rect`, in the middle of its height.
    pub(super) fn left(&mut self, label: Label<'_>, rect: Rect, indent: i32) {
        let at = (rect.x + PAD + indent, middle(rect));
        self.text(label, at, rect.width as i32 - 2 * PAD - indent);
    }

    /// A label in the middle of `rect`, at a whole number of characters from the left: its letters
    /// stand in the same columns whatever its length.
    pub(super) fn centered(&mut self, label: Label<'_>, rect: Rect) {
        let room = font::fitting(rect.width as i32 - 2 * PAD);
        let indent = room.saturating_sub(label.1.chars().count()) / 2;
        self.left(label, rect, indent as i32 * ADVANCE);
    }

    /// Takes what `rect` hides off the list.
    pub(super) fn cover(&mut self, rect: Rect) {
        self.list.retain(|element| !overlap(element.bounds, rect));
    }

    /// A filled rectangle with a thin border.
    pub(super) fn panel(&mut self, rect: Rect, face: Rgb) {
        self.canvas.fill(rect, face);
        self.canvas.frame(rect, 1, theme::EDGE);
    }
}

/// The top of a line of text in the middle of `rect`.
pub(super) fn middle(rect: Rect) -> i32 {
    rect.y + (rect.height as i32 - GLYPH_HEIGHT) / 2
}
