//! What the mouse and the finger do.

use dart_core::{Modifier, Modifiers, MouseButton, ScreenPx};

use super::{
    Command, Id, Kind, Popup, Ui,
    widget::{close_box, scroll_bar, tab_rect, tick_at},
};
use crate::font::ADVANCE;

/// From the left edge of a text field to its first character, px.
pub(super) const FIELD_PAD: i32 = 5;

impl Ui {
    /// Presses and releases a mouse button `count` times. Only the left one has an effect here,
    /// except that any press dismisses an open menu.
    pub(crate) fn click(&mut self, at: ScreenPx, button: MouseButton, count: u8, with: Modifiers) {
        self.pointer = at;
        if button != MouseButton::Left {
            self.popup = None;
            return;
        }
        for press in 1..=count {
            self.press(at, press, with.contains(Modifier::Shift));
            self.release(at);
        }
    }

    /// Presses the left button at the pointer and keeps it down.
    pub(crate) fn mouse_down(&mut self, button: MouseButton) {
        if button == MouseButton::Left {
            self.press(self.pointer, 1, self.holds(Modifier::Shift));
        } else {
            self.popup = None;
        }
    }

    /// Releases the left button at the pointer.
    pub(crate) fn mouse_up(&mut self, button: MouseButton) {
        if button == MouseButton::Left {
            self.release(self.pointer);
        }
    }

    /// Presses at `from` (the pointer if none), moves, releases at `to`.
    pub(crate) fn drag(&mut self, from: Option<ScreenPx>, to: ScreenPx) {
        self.press(from.unwrap_or(self.pointer), 1, self.holds(Modifier::Shift));
        self.move_to(to);
        self.release(to);
    }

    /// Moves the pointer; whatever was grabbed follows.
    pub(crate) fn move_to(&mut self, to: ScreenPx) {
        self.pointer = to;
        if let Some(id) = self.grab {
            match self.kind(id) {
                Kind::Slider { .. } => self.slide(id, to),
                Kind::Field(_) => self.place_caret(id, to, true),
                Kind::Scroll { .. } => self.drag_scroll_bar(id, to),
                _ => {}
            }
        }
    }

    /// Touches and holds: opens the menu of a row, selects the word in a field.
    pub(crate) fn long_press(&mut self, at: ScreenPx) {
        let outside = !self.popup_at(at);
        if self.popup.take_if(|_| outside).is_some() {
            return;
        }
        let Some(id) = self.hit(at) else { return };
        match self.kind(id) {
            Kind::Item { context, .. } if !context.is_empty() => {
                let entries = context.iter().map(|&entry| entry.to_owned()).collect();
                let popup = Popup::beside(id, self.rect(id), entries, self.screen());
                self.popup = Some(popup);
            }
            Kind::Field(_) => self.press(at, 2, false),
            _ => {}
        }
        self.button_down = false;
        self.grab = None;
    }

    /// Starts the app whose icon is on the screen; says so if there is none.
    pub(crate) fn open_app(&mut self, name: &str) {
        let named = |id: &Id| matches!(self.kind(*id), Kind::Icon { text, .. } if text == name);
        match (0..self.widgets.len()).find(|id| named(id) && self.visible(*id)) {
            Some(id) => self.commands.push(Command::Opened(id)),
            None => self.notice = Some("no app"),
        }
    }

    fn popup_at(&self, at: ScreenPx) -> bool {
        self.popup.as_ref().is_some_and(|p| p.rect.contains(at))
    }

    fn press(&mut self, at: ScreenPx, count: u8, extend: bool) {
        self.pointer = at;
        self.button_down = true;
        self.grab = None;
        if self.popup_at(at) {
            return;
        }
        let dismissed = self.popup.take();
        let hit = self.hit(at);
        if let Some(popup) = dismissed {
            // The press that dismisses a menu does nothing else, unless it opens another menu.
            if hit == Some(popup.owner)
                || !matches!(hit.map(|id| self.kind(id)), Some(Kind::Menu { .. }))
            {
                return;
            }
        }
        self.focus = hit.filter(|&id| self.kind(id).focusable());
        self.focus_by_key = false;
        self.grab = hit;
        if let Some(id) = hit {
            self.press_on(id, at, count, extend);
        }
    }

    fn press_on(&mut self, id: Id, at: ScreenPx, count: u8, extend: bool) {
        match self.kind(id) {
            Kind::Field(_) => {
                self.place_caret(id, at, extend && count == 1);
                if let Kind::Field(edit) = &mut self.widgets[id].kind {
                    match count {
                        1 => {}
                        2 => edit.select_word(edit.caret()),
                        _ => edit.select_all(),
                    }
                }
            }
            Kind::Slider { .. } => self.slide(id, at),
            Kind::Scroll { .. } if scroll_bar(self.rect(id)).contains(at) => {
                self.drag_scroll_bar(id, at);
            }
            Kind::Scroll { .. } => self.grab = None,
            Kind::Menu { entries, .. } => {
                let popup = Popup::beside(id, self.rect(id), entries.clone(), self.screen());
                self.popup = Some(popup);
            }
            _ => {}
        }
    }

    fn release(&mut self, at: ScreenPx) {
        self.pointer = at;
        if !std::mem::take(&mut self.button_down) {
            return;
        }
        if self.popup_at(at) {
            if let Some(popup) = self.popup.take() {
                self.choose(&popup, at);
            }
            return;
        }
        let grabbed = self.grab.take();
        if grabbed.is_some() && grabbed == self.hit(at) {
            self.activate_at(grabbed.unwrap_or_default(), at);
        }
    }

    fn choose(&mut self, popup: &Popup, at: ScreenPx) {
        let Some(entry) = popup.entry_at(at) else {
            return;
        };
        let owner = popup.owner;
        if matches!(self.kind(owner), Kind::Item { .. }) && popup.entries[entry] == "Delete" {
            self.widgets[owner].gone = true;
        }
        self.commands.push(Command::Chose { owner, entry });
    }

    fn activate_at(&mut self, id: Id, at: ScreenPx) {
        let rect = self.rect(id);
        match &mut self.widgets[id].kind {
            Kind::Tabs { titles, current } => {
                let over = (0..titles.len()).find(|&tab| tab_rect(rect, tab).contains(at));
                *current = over.unwrap_or(*current);
            }
            Kind::Window { .. } if close_box(rect).contains(at) => {
                self.widgets[id].gone = true;
                self.commands.push(Command::Closed(id));
            }
            _ => self.activate(id),
        }
    }

    /// What a click on the widget, or the space key, does.
    pub(super) fn activate(&mut self, id: Id) {
        match &mut self.widgets[id].kind {
            Kind::Button { .. } => self.commands.push(Command::Pressed(id)),
            Kind::Checkbox { on, .. } => *on = !*on,
            Kind::Icon { .. } => self.commands.push(Command::Opened(id)),
            Kind::Item {
                pickable, selected, ..
            } if *pickable => {
                *selected = true;
                self.commands.push(Command::Picked(id));
            }
            Kind::Radio { .. } => self.choose_radio(id),
            Kind::Switch { on, .. } => {
                *on = !*on;
                self.commands.push(Command::Switched(id));
            }
            _ => {}
        }
    }

    fn choose_radio(&mut self, chosen: Id) {
        let group = self.widgets[chosen].parent;
        for (id, widget) in self.widgets.iter_mut().enumerate() {
            match &mut widget.kind {
                Kind::Radio { on, .. } if widget.parent == group => *on = id == chosen,
                _ => {}
            }
        }
    }

    fn slide(&mut self, id: Id, at: ScreenPx) {
        let rect = self.rect(id);
        if let Kind::Slider { value, max } = &mut self.widgets[id].kind {
            *value = tick_at(rect, at.x).clamp(0, *max);
        }
    }

    fn place_caret(&mut self, id: Id, at: ScreenPx, extend: bool) {
        let left = self.rect(id).x + FIELD_PAD;
        let first = self.first_shown(id);
        if let Kind::Field(edit) = &mut self.widgets[id].kind {
            let column = (at.x - left + ADVANCE / 2).div_euclid(ADVANCE).max(0);
            edit.place(first + column as usize, extend);
        }
    }
}
