//! What the keyboard does.

use dart_core::{Key, Modifier, NamedKey};

use super::{Command, Id, Kind, Ui, edit::Motion};

impl Ui {
    /// Types text into whatever has the focus; `\n` is the enter key, `\t` the tab key.
    pub(crate) fn type_text(&mut self, text: &str) {
        for c in text.chars() {
            self.strike(match c {
                '\n' => Key::Named(NamedKey::Enter),
                '\t' => Key::Named(NamedKey::Tab),
                c => Key::Char(c),
            });
        }
    }

    /// Presses keys in order and releases them in reverse order.
    pub(crate) fn hotkey(&mut self, keys: &[Key]) {
        for key in keys {
            self.key_down(*key);
        }
        for key in keys.iter().rev() {
            self.key_up(*key);
        }
    }

    /// Presses a key and keeps it down.
    pub(crate) fn key_down(&mut self, key: Key) {
        if !self.held.contains(&key) {
            self.held.push(key);
        }
        self.strike(key);
    }

    /// Releases a key.
    pub(crate) fn key_up(&mut self, key: Key) {
        self.held.retain(|held| *held != key);
    }

    /// Closes an open menu, or takes the keyboard away from a field: a phone's back and home keys.
    pub(crate) fn dismiss(&mut self) {
        if self.popup.take().is_none() {
            self.focus = None;
        }
    }

    pub(super) fn holds(&self, modifier: Modifier) -> bool {
        self.held.contains(&modifier.key())
    }

    fn strike(&mut self, key: Key) {
        if key == Key::Named(NamedKey::Escape) && self.popup.take().is_some() {
            return;
        }
        if self.holds(Modifier::Alt) || self.holds(Modifier::Super) {
            return;
        }
        if key == Key::Named(NamedKey::Tab) {
            return self.focus_next(self.holds(Modifier::Shift));
        }
        let Some(id) = self.focus.filter(|&id| self.visible(id)) else {
            return;
        };
        match self.kind(id) {
            Kind::Field(_) => self.strike_in_field(id, key),
            Kind::Slider { .. } => self.strike_on_slider(id, key),
            _ => {
                if matches!(key, Key::Char(' ') | Key::Named(NamedKey::Enter)) {
                    self.activate(id);
                }
            }
        }
    }

    fn strike_in_field(&mut self, id: Id, key: Key) {
        if self.holds(Modifier::Ctrl) {
            return self.shortcut(key);
        }
        if key == Key::Named(NamedKey::Enter) {
            return self.press_default();
        }
        let extend = self.holds(Modifier::Shift);
        let Kind::Field(edit) = &mut self.widgets[id].kind else {
            return;
        };
        match key {
            Key::Char(c) if extend => edit.insert(&c.to_uppercase().to_string()),
            Key::Char(c) => edit.insert(c.encode_utf8(&mut [0; 4])),
            Key::Named(NamedKey::Backspace) => edit.backspace(),
            Key::Named(NamedKey::Delete) => edit.delete(),
            Key::Named(NamedKey::Left) => edit.go(Motion::Left, extend),
            Key::Named(NamedKey::Right) => edit.go(Motion::Right, extend),
            Key::Named(NamedKey::Home) => edit.go(Motion::Home, extend),
            Key::Named(NamedKey::End) => edit.go(Motion::End, extend),
            Key::Named(_) => {}
        }
    }

    fn shortcut(&mut self, key: Key) {
        let clipboard = self.clipboard.clone();
        let Some(edit) = self.focused_edit() else {
            return;
        };
        let Key::Char(c) = key else { return };
        let selected = edit.selected();
        match c.to_ascii_lowercase() {
            'a' => edit.select_all(),
            'c' | 'x' if !selected.is_empty() => {
                if c.eq_ignore_ascii_case(&'x') {
                    edit.backspace();
                }
                self.clipboard = selected;
                self.notice = Some("copied");
            }
            'v' if !clipboard.is_empty() => edit.insert(&clipboard),
            _ => {}
        }
    }

    fn strike_on_slider(&mut self, id: Id, key: Key) {
        let Kind::Slider { value, max } = &mut self.widgets[id].kind else {
            return;
        };
        let wanted = match key {
            Key::Named(NamedKey::Left | NamedKey::Down) => *value - 1,
            Key::Named(NamedKey::Right | NamedKey::Up) => *value + 1,
            Key::Named(NamedKey::Home) => 0,
            Key::Named(NamedKey::End) => *max,
            _ => *value,
        };
        *value = wanted.clamp(0, *max);
    }

    fn press_default(&mut self) {
        let is_default = |id: &Id| matches!(self.kind(*id), Kind::Button { primary: true, .. });
        let button = (0..self.widgets.len()).find(|id| is_default(id) && self.visible(*id));
        self.commands.extend(button.map(Command::Pressed));
    }

    fn focus_next(&mut self, back: bool) {
        let count = self.widgets.len();
        let stops: Vec<Id> = (0..count)
            .filter(|&id| self.kind(id).focusable() && self.visible(id))
            .collect();
        let Some(last) = stops.len().checked_sub(1) else {
            return;
        };
        let now = stops.iter().position(|id| Some(*id) == self.focus);
        let next = match (now, back) {
            (None, false) => 0,
            (None, true) => last,
            (Some(at), false) => (at + 1) % stops.len(),
            (Some(at), true) => (at + last) % stops.len(),
        };
        self.focus = Some(stops[next]);
        self.focus_by_key = true;
        if let Some(edit) = self.focused_edit() {
            edit.select_all();
        }
    }
}
