//! What the simpler widgets look like.

use std::ops::Range;

use dart_core::{Rect, UiRole};

use super::{
    SCROLL_BAR, TICK, TextEdit,
    painter::{Label, Painter},
    theme,
    widget::{close_box, icon_label, scroll_bar, tab_rect, tick},
};
use crate::{
    font::{ADVANCE, GLYPH_HEIGHT},
    geom::{bottom, grown, right},
};

/// Width of the box or disc of a checkbox or radio and the gap after it: two characters.
const MARK: i32 = 2 * ADVANCE;

/// The selection of a focused field, or its caret.
pub(super) fn selection(
    painter: &mut Painter<'_>,
    (left, top): (i32, i32),
    edit: &TextEdit,
    shown: Range<usize>,
) {
    let column = |index: usize| left + (index - shown.start) as i32 * ADVANCE;
    let selection = edit.selection();
    let (from, to) = (
        selection.start.max(shown.start),
        selection.end.min(shown.end),
    );
    if from < to {
        let width = (column(to) - column(from) + 1) as u32;
        let back = Rect::new(column(from) - 1, top - 1, width, GLYPH_HEIGHT as u32 + 2);
        painter.canvas.fill(back, theme::ACCENT);
        let chars = edit.chars()[from..to].iter().copied();
        painter.canvas.text((column(from), top), chars, theme::FACE);
    } else if edit.caret() <= shown.end {
        let caret = Rect::new(
            column(edit.caret()) - 1,
            top - 1,
            1,
            GLYPH_HEIGHT as u32 + 2,
        );
        painter.canvas.fill(caret, theme::INK);
    }
}

/// A box, ticked or not, and its label.
pub(super) fn checkbox(painter: &mut Painter<'_>, rect: Rect, text: &str, on: bool) {
    let mark = Rect::new(rect.x + 3, rect.y + 3, 10, 10);
    painter
        .canvas
        .fill(mark, if on { theme::ACCENT } else { theme::FACE });
    painter.canvas.frame(mark, 1, theme::INK);
    if on {
        painter
            .canvas
            .bits((mark.x + 1, mark.y + 2), 8, &theme::TICK, theme::FACE);
    }
    painter.left(Label(UiRole::Checkbox, text, theme::INK), rect, MARK);
}

/// A disc, filled or not, and its label.
pub(super) fn radio(painter: &mut Painter<'_>, rect: Rect, text: &str, on: bool) {
    let (x, y) = (rect.x + 3, rect.y + 3);
    painter.canvas.bits((x, y), 10, &theme::DISC, theme::INK);
    if on {
        painter.canvas.bits((x, y), 10, &theme::DISC, theme::ACCENT);
        painter
            .canvas
            .bits((x + 3, y + 3), 4, &theme::DOT, theme::FACE);
    } else {
        painter
            .canvas
            .bits((x + 1, y + 1), 8, &theme::HOLE, theme::FACE);
    }
    painter.left(Label(UiRole::Radio, text, theme::INK), rect, MARK);
}

/// A coloured square above a name.
pub(super) fn icon(painter: &mut Painter<'_>, rect: Rect, text: &str, hue: usize) {
    let square = Rect::new(rect.x + 8, rect.y + 2, 16, 16);
    let color = theme::HUES[hue % theme::HUES.len()];
    painter.canvas.fill(square, color);
    painter.canvas.frame(square, 1, theme::EDGE);
    let room = 5usize.saturating_sub(text.chars().count()) / 2;
    let label = icon_label(rect);
    let at = (label.x + room as i32 * ADVANCE, label.y);
    painter.text(
        Label(UiRole::Icon, text, theme::INK),
        at,
        label.width as i32,
    );
}

/// The face of a scroll view and its scroll bar.
pub(super) fn scroll(painter: &mut Painter<'_>, rect: Rect, offset: i32, content: i32) {
    painter.panel(grown(rect, 1), theme::FACE);
    let bar = scroll_bar(rect);
    painter.canvas.fill(bar, theme::SHADE);
    let height = rect.height as i32;
    if content > height {
        let thumb = height * height / content;
        let y = rect.y + offset * height / content;
        let thumb = Rect::new(bar.x + 1, y, SCROLL_BAR - 2, thumb as u32);
        painter.canvas.fill(thumb, theme::EDGE);
    }
}

/// A track with ticks, a digit below each, and the thumb.
pub(super) fn slider(painter: &mut Painter<'_>, rect: Rect, value: i32, max: i32) {
    painter.panel(rect, theme::FACE);
    let (first, last) = (tick(rect, 0).x, tick(rect, max).x);
    let track = Rect::new(first - 1, rect.y + 6, (last - first + 2) as u32, 2);
    painter.canvas.fill(track, theme::EDGE);
    for mark in 0..=max {
        let x = first + mark * TICK;
        let digit = char::from_digit(mark as u32 % 10, 10)
            .unwrap_or('?')
            .to_string();
        let at = (x - 2, rect.y + 12);
        painter
            .canvas
            .fill(Rect::new(x, rect.y + 4, 1, 6), theme::EDGE);
        painter.text(Label(UiRole::Label, &digit, theme::INK), at, ADVANCE);
    }
    let thumb = Rect::new(first + value * TICK - 2, rect.y + 2, 5, 10);
    painter.canvas.fill(thumb, theme::ACCENT);
    painter.note(UiRole::Slider, String::new(), rect);
}

/// A label and a switch at the right.
pub(super) fn switch(painter: &mut Painter<'_>, rect: Rect, text: &str, on: bool) {
    painter.panel(rect, theme::FACE);
    painter.left(Label(UiRole::Switch, text, theme::INK), rect, 0);
    let track = Rect::new(
        right(rect) - 25,
        rect.y + (rect.height as i32 - 10) / 2,
        20,
        10,
    );
    painter
        .canvas
        .fill(track, if on { theme::ACCENT } else { theme::SHADE });
    painter.canvas.frame(track, 1, theme::INK);
    let knob = Rect::new(
        if on { track.x + 11 } else { track.x + 1 },
        track.y + 1,
        8,
        8,
    );
    painter.canvas.fill(knob, theme::FACE);
}

/// A page and the tabs above it.
pub(super) fn tabs(painter: &mut Painter<'_>, rect: Rect, titles: &[String], current: usize) {
    let bar = tab_rect(rect, 0).height;
    let page = Rect::new(
        rect.x,
        rect.y + bar as i32 - 1,
        rect.width,
        rect.height - bar + 1,
    );
    painter.panel(page, theme::FACE);
    for (index, title) in titles.iter().enumerate() {
        let tab = tab_rect(rect, index);
        let front = index == current;
        painter.panel(tab, if front { theme::FACE } else { theme::SHADE });
        painter.centered(Label(UiRole::Tab, title, theme::INK), tab);
        if front {
            let seam = Rect::new(tab.x + 1, bottom(tab) - 1, tab.width - 2, 1);
            painter.canvas.fill(seam, theme::FACE);
            painter
                .canvas
                .fill(Rect::new(tab.x, tab.y, tab.width, 2), theme::ACCENT);
        }
    }
}

/// A title bar with a close box, and an empty window.
pub(super) fn window(painter: &mut Painter<'_>, rect: Rect, text: &str) {
    painter.cover(rect);
    painter.panel(rect, theme::FACE);
    let close = close_box(rect);
    let title = Rect::new(rect.x, rect.y, rect.width, close.height);
    painter.panel(title, theme::TITLE);
    painter.left(Label(UiRole::Dialog, text, theme::INK), title, 0);
    painter.panel(close, theme::CLOSE);
    painter
        .canvas
        .bits((close.x + 4, close.y + 4), 8, &theme::CROSS, theme::FACE);
}
