//! Draws the screen and lists the texts on it, in one pass, so that the list cannot lie.

use std::ops::Range;

use dart_core::{Rect, UiElement, UiRole};

use super::{
    Command, Id, Kind, TextEdit, Ui, looks,
    painter::{Label, Painter, middle},
    pointer::FIELD_PAD,
    theme,
};
use crate::{
    canvas::Canvas,
    font::{self, ADVANCE},
    geom::{bottom, grown, right},
};

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
            Kind::Checkbox { text, on } => looks::checkbox(painter, rect, text, *on),
            Kind::Field(edit) => self.paint_field(painter, id, edit),
            Kind::Icon { text, hue } => looks::icon(painter, rect, text, *hue),
            Kind::Item { text, selected, .. } => self.paint_item(painter, id, text, *selected),
            Kind::Menu { text, .. } => self.paint_menu(painter, id, text),
            Kind::Radio { text, on } => looks::radio(painter, rect, text, *on),
            Kind::Scroll {
                offset, content, ..
            } => looks::scroll(painter, rect, *offset, *content),
            Kind::Slider { value, max } => looks::slider(painter, rect, *value, *max),
            Kind::Switch { text, on } => looks::switch(painter, rect, text, *on),
            Kind::Tabs { titles, current } => looks::tabs(painter, rect, titles, *current),
            Kind::Window { text } => looks::window(painter, rect, text),
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
        painter.centered(Label(UiRole::Button, text, ink), self.rect(id));
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
        painter.canvas.text((left, top), text.chars(), theme::INK);
        if text.is_empty() {
            painter.note(UiRole::TextField, text, rect);
        } else {
            painter.note(UiRole::TextField, text, bounds);
        }
        if focused {
            looks::selection(painter, (left, top), edit, shown);
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
        painter.left(Label(UiRole::ListItem, text, ink), rect, 0);
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
        painter.left(Label(UiRole::Button, text, ink), rect, 0);
        let arrow = (right(rect) - 11, middle(rect) + 2);
        painter.canvas.bits(arrow, 7, &theme::ARROW, ink);
    }

    fn paint_popup(&self, painter: &mut Painter<'_>) {
        let Some(popup) = &self.popup else { return };
        painter.cover(popup.rect);
        painter.canvas.fill(popup.rect, theme::FACE);
        painter.canvas.frame(popup.rect, 1, theme::INK);
        for (index, entry) in popup.entries.iter().enumerate() {
            let rect = popup.entry_rect(index);
            painter.left(Label(UiRole::MenuItem, entry, theme::INK), rect, 0);
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
            painter.left(Label(UiRole::Label, text, theme::INK), title, 0);
        }
    }

    fn paint_notice(&self, painter: &mut Painter<'_>) {
        let Some(notice) = self.notice else { return };
        let width = notice.len() as i32 * ADVANCE + 3;
        let (x, y) = (right(self.screen()) - width, bottom(self.screen()) - 10);
        let rect = Rect::new(x, y, width as u32, 10);
        painter.cover(rect);
        painter.canvas.fill(rect, theme::INK);
        painter.text(
            Label(UiRole::Label, notice, theme::FACE),
            (x + 2, y + 1),
            width,
        );
    }
}
