//! Draws the screen and lists the texts on it, in one pass, so that the list cannot lie.

use std::ops::Range;

use dart_core::{Rect, UiElement, UiRole};

use super::{
    Command, Id, Kind, SCROLL_BAR, TICK, TextEdit, Ui,
    pointer::FIELD_PAD,
    theme,
    widget::{close_box, icon_label, scroll_bar, tab_rect, tick},
};
use crate::{
    canvas::{Canvas, Rgb},
    font::{self, ADVANCE, GLYPH_HEIGHT},
    geom::{bottom, grown, overlap, right},
};

/// From the left edge of a widget to its first character, px.
const PAD: i32 = 5;
/// Width of the box or disc of a checkbox or radio and the gap after it: two characters.
const MARK: i32 = 2 * ADVANCE;

struct Painter<'a> {
    canvas: &'a mut Canvas,
    list: Vec<UiElement>,
}

impl Painter<'_> {
    /// Writes `text`, cut to `width` pixels, and lists it.
    fn text(&mut self, role: UiRole, (x, y): (i32, i32), width: i32, text: &str, color: Rgb) {
        let shown: String = text.chars().take(font::fitting(width)).collect();
        self.canvas.text(x, y, shown.chars(), color);
        let bounds = font::text_bounds(x, y, shown.chars().count());
        self.note(role, shown, bounds);
    }

    fn note(&mut self, role: UiRole, text: String, bounds: Rect) {
        self.list.push(UiElement { role, text, bounds });
    }

    /// Text at the left of `rect`, in the middle of its height.
    fn left(&mut self, role: UiRole, rect: Rect, indent: i32, text: &str, color: Rgb) {
        let at = (rect.x + PAD + indent, middle(rect));
        let width = rect.width as i32 - 2 * PAD - indent;
        self.text(role, at, width, text, color);
    }

    /// Text in the middle of `rect`, at a whole number of characters from the left: a label's
    /// letters stand in the same columns whatever its length.
    fn centered(&mut self, role: UiRole, rect: Rect, text: &str, color: Rgb) {
        let room = font::fitting(rect.width as i32 - 2 * PAD);
        let indent = room.saturating_sub(text.chars().count()) / 2;
        self.left(role, rect, indent as i32 * ADVANCE, text, color);
    }

    /// Takes what `rect` hides off the list.
    fn cover(&mut self, rect: Rect) {
        self.list.retain(|element| !overlap(element.bounds, rect));
    }

    fn panel(&mut self, rect: Rect, face: Rgb) {
        self.canvas.fill(rect, face);
        self.canvas.frame(rect, 1, theme::EDGE);
    }
}

/// The top of a line of text in the middle of `rect`.
fn middle(rect: Rect) -> i32 {
    rect.y + (rect.height as i32 - GLYPH_HEIGHT) / 2
}

impl Ui {
    /// Draws everything; returns what can be read.
    pub(crate) fn paint(&self, canvas: &mut Canvas) -> Vec<UiElement> {
        canvas.clear(theme::DESK);
        let list = Vec::with_capacity(self.widgets.len() + 4);
        let mut painter = Painter { canvas, list };
        for id in (0..self.widgets.len()).filter(|id| self.visible(*id)) {
            self.paint_widget(&mut painter, id);
        }
        self.paint_popup(&mut painter);
        self.paint_app(&mut painter);
        self.paint_notice(&mut painter);
        painter.list
    }

    fn paint_widget(&self, painter: &mut Painter<'_>, id: Id) {
        let rect = self.rect(id);
        match self.kind(id) {
            Kind::Button { text, primary } => self.paint_button(painter, id, text, *primary),
            Kind::Checkbox { text, on } => paint_checkbox(painter, rect, text, *on),
            Kind::Field(edit) => self.paint_field(painter, id, edit),
            Kind::Icon { text, hue } => paint_icon(painter, rect, text, *hue),
            Kind::Item { text, selected, .. } => self.paint_item(painter, id, text, *selected),
            Kind::Menu { text, .. } => self.paint_menu(painter, id, text),
            Kind::Radio { text, on } => paint_radio(painter, rect, text, *on),
            Kind::Scroll {
                offset, content, ..
            } => paint_scroll(painter, rect, *offset, *content),
            Kind::Slider { value, max } => paint_slider(painter, rect, *value, *max),
            Kind::Switch { text, on } => paint_switch(painter, rect, text, *on),
            Kind::Tabs { titles, current } => paint_tabs(painter, rect, titles, *current),
            Kind::Window { text } => paint_window(painter, rect, text),
        }
        if self.focus_by_key && self.focus == Some(id) && !matches!(self.kind(id), Kind::Field(_)) {
            painter.canvas.frame(rect, 1, theme::ACCENT);
        }
    }

    fn paint_button(&self, painter: &mut Painter<'_>, id: Id, text: &str, primary: bool) {
        let down = self.grab == Some(id) || self.commands.contains(&Command::Pressed(id));
        let (face, ink) = match (down, primary) {
            (true, _) => (theme::PRESSED, theme::FACE),
            (false, true) => (theme::ACCENT, theme::FACE),
            (false, false) => (theme::FACE, theme::INK),
        };
        painter.panel(self.rect(id), face);
        painter.centered(UiRole::Button, self.rect(id), text, ink);
    }

    fn paint_field(&self, painter: &mut Painter<'_>, id: Id, edit: &TextEdit) {
        let (rect, focused) = (self.rect(id), self.focus == Some(id));
        painter.panel(rect, theme::FACE);
        if focused {
            painter.canvas.frame(rect, 2, theme::INK);
        }
        let shown = self.shown_range(id);
        let (left, top) = (rect.x + FIELD_PAD, middle(rect));
        let text: String = edit.chars()[shown.clone()].iter().collect();
        let bounds = font::text_bounds(left, top, shown.len());
        painter.canvas.text(left, top, text.chars(), theme::INK);
        if text.is_empty() {
            painter.note(UiRole::TextField, text, rect);
        } else {
            painter.note(UiRole::TextField, text, bounds);
        }
        if focused {
            paint_selection(painter, (left, top), edit, shown);
        }
    }

    /// The first character that the field `id` shows: the end of a long text, or whatever part
    /// holds the caret.
    pub(super) fn first_shown(&self, id: Id) -> usize {
        let Kind::Field(edit) = self.kind(id) else {
            return 0;
        };
        let room = font::fitting(self.rect(id).width as i32 - 2 * FIELD_PAD).max(1);
        edit.caret().saturating_sub(room)
    }

    fn shown_range(&self, id: Id) -> Range<usize> {
        let Kind::Field(edit) = self.kind(id) else {
            return 0..0;
        };
        let room = font::fitting(self.rect(id).width as i32 - 2 * FIELD_PAD);
        let first = self.first_shown(id);
        first..(first + room).min(edit.chars().len())
    }

    fn paint_item(&self, painter: &mut Painter<'_>, id: Id, text: &str, selected: bool) {
        let rect = self.rect(id);
        let held = self.popup.as_ref().is_some_and(|p| p.owner == id);
        let (face, ink) = if selected || held {
            (theme::ACCENT, theme::FACE)
        } else {
            (theme::FACE, theme::INK)
        };
        if self.touch {
            painter.panel(rect, face);
        } else {
            painter.canvas.fill(grown(rect, -1), face);
        }
        painter.left(UiRole::ListItem, rect, 0, text, ink);
    }

    fn paint_menu(&self, painter: &mut Painter<'_>, id: Id, text: &str) {
        let rect = self.rect(id);
        let open = self.popup.as_ref().is_some_and(|p| p.owner == id);
        let (face, ink) = if open {
            (theme::ACCENT, theme::FACE)
        } else {
            (theme::FACE, theme::INK)
        };
        painter.panel(rect, face);
        painter.left(UiRole::Button, rect, 0, text, ink);
        let arrow = (right(rect) - 11, middle(rect) + 2);
        painter.canvas.bits(arrow.0, arrow.1, 7, &theme::ARROW, ink);
    }

    fn paint_popup(&self, painter: &mut Painter<'_>) {
        let Some(popup) = &self.popup else { return };
        painter.cover(popup.rect);
        painter.canvas.fill(popup.rect, theme::FACE);
        painter.canvas.frame(popup.rect, 1, theme::INK);
        for (index, entry) in popup.entries.iter().enumerate() {
            let rect = popup.entry_rect(index);
            painter.left(UiRole::MenuItem, rect, 0, entry, theme::INK);
        }
    }

    /// The app that was opened, over the whole screen.
    fn paint_app(&self, painter: &mut Painter<'_>) {
        let opened = self
            .commands
            .iter()
            .rev()
            .find_map(|command| match command {
                Command::Opened(id) => Some(self.kind(*id)),
                _ => None,
            });
        if let Some(Kind::Icon { text, hue }) = opened {
            let screen = self.screen();
            painter.cover(screen);
            painter.canvas.fill(screen, theme::FACE);
            let title = Rect::new(0, 0, screen.width, 24);
            painter
                .canvas
                .fill(title, theme::HUES[hue % theme::HUES.len()]);
            painter.left(UiRole::Label, title, 0, text, theme::INK);
        }
    }

    fn paint_notice(&self, painter: &mut Painter<'_>) {
        let Some(notice) = self.notice else { return };
        let width = notice.len() as i32 * ADVANCE + 3;
        let (x, y) = (right(self.screen()) - width, bottom(self.screen()) - 10);
        let rect = Rect::new(x, y, width as u32, 10);
        painter.cover(rect);
        painter.canvas.fill(rect, theme::INK);
        painter.text(UiRole::Label, (x + 2, y + 1), width, notice, theme::FACE);
    }
}

fn paint_selection(
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
        painter.canvas.text(column(from), top, chars, theme::FACE);
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

fn paint_checkbox(painter: &mut Painter<'_>, rect: Rect, text: &str, on: bool) {
    let mark = Rect::new(rect.x + 3, rect.y + 3, 10, 10);
    painter
        .canvas
        .fill(mark, if on { theme::ACCENT } else { theme::FACE });
    painter.canvas.frame(mark, 1, theme::INK);
    if on {
        painter
            .canvas
            .bits(mark.x + 1, mark.y + 2, 8, &theme::TICK, theme::FACE);
    }
    painter.left(UiRole::Checkbox, rect, MARK, text, theme::INK);
}

fn paint_radio(painter: &mut Painter<'_>, rect: Rect, text: &str, on: bool) {
    let (x, y) = (rect.x + 3, rect.y + 3);
    painter.canvas.bits(x, y, 10, &theme::DISC, theme::INK);
    if on {
        painter.canvas.bits(x, y, 10, &theme::DISC, theme::ACCENT);
        painter
            .canvas
            .bits(x + 3, y + 3, 4, &theme::DOT, theme::FACE);
    } else {
        painter
            .canvas
            .bits(x + 1, y + 1, 8, &theme::HOLE, theme::FACE);
    }
    painter.left(UiRole::Radio, rect, MARK, text, theme::INK);
}

fn paint_icon(painter: &mut Painter<'_>, rect: Rect, text: &str, hue: usize) {
    let square = Rect::new(rect.x + 8, rect.y + 2, 16, 16);
    let color = theme::HUES[hue % theme::HUES.len()];
    painter.canvas.fill(square, color);
    painter.canvas.frame(square, 1, theme::EDGE);
    let room = 5usize.saturating_sub(text.chars().count()) / 2;
    let label = icon_label(rect);
    let at = (label.x + room as i32 * ADVANCE, label.y);
    painter.text(UiRole::Icon, at, label.width as i32, text, theme::INK);
}

fn paint_scroll(painter: &mut Painter<'_>, rect: Rect, offset: i32, content: i32) {
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

fn paint_slider(painter: &mut Painter<'_>, rect: Rect, value: i32, max: i32) {
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
        painter.text(UiRole::Label, at, ADVANCE, &digit, theme::INK);
    }
    let thumb = Rect::new(first + value * TICK - 2, rect.y + 2, 5, 10);
    painter.canvas.fill(thumb, theme::ACCENT);
    painter.note(UiRole::Slider, String::new(), rect);
}

fn paint_switch(painter: &mut Painter<'_>, rect: Rect, text: &str, on: bool) {
    painter.panel(rect, theme::FACE);
    painter.left(UiRole::Switch, rect, 0, text, theme::INK);
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

fn paint_tabs(painter: &mut Painter<'_>, rect: Rect, titles: &[String], current: usize) {
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
        painter.centered(UiRole::Tab, tab, title, theme::INK);
        if front {
            let seam = Rect::new(tab.x + 1, bottom(tab) - 1, tab.width - 2, 1);
            painter.canvas.fill(seam, theme::FACE);
            painter
                .canvas
                .fill(Rect::new(tab.x, tab.y, tab.width, 2), theme::ACCENT);
        }
    }
}

fn paint_window(painter: &mut Painter<'_>, rect: Rect, text: &str) {
    painter.cover(rect);
    painter.panel(rect, theme::FACE);
    let close = close_box(rect);
    let title = Rect::new(rect.x, rect.y, rect.width, close.height);
    painter.panel(title, theme::TITLE);
    painter.left(UiRole::Dialog, title, 0, text, theme::INK);
    painter.panel(close, theme::CLOSE);
    painter
        .canvas
        .bits(close.x + 4, close.y + 4, 8, &theme::CROSS, theme::FACE);
}
