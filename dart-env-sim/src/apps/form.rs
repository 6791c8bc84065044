//! A page in the making: rows from top to bottom, and what touching them does.

use dart_core::{Rect, Size};

use super::{catalog::Page, platform::Table};
use crate::ui::{Command, Id, Kind, SCROLL_BAR, SLIDER_HEIGHT, TextEdit, Ui};

/// Height of a row, px.
const ROW: u32 = 16;
/// Widest page, px: lines that go on for ever are hard to read.
const WIDEST: u32 = 160;
/// Most rows of a list; what comes after them is not shown.
const MAX_ROWS: usize = 200;

/// What the user's command does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    AddAlarm,
    AddContact,
    AddTask,
    Call(String),
    /// Calls the number in the first field.
    CallTyped,
    DeleteFile(String),
    DeleteRow(Table, usize),
    Go(Page),
    Record,
    Rename(String),
    SaveNote,
    Send,
    StartTimer,
    /// A switch writes a setting.
    Switch(&'static str, &'static str),
    TakePicture,
}

/// What a widget shows and changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    Setting(&'static str, &'static str),
    /// A column of a row.
    Cell(Table, usize, usize),
}

/// A finished page.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) ui: Ui,
    pub(super) deeds: Vec<(Command, Deed)>,
    pub(super) bindings: Vec<(Id, Binding)>,
    /// The text fields in order.
    pub(super) fields: Vec<Id>,
    y: i32,
}

/// A row of a list.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) text: String,
    /// What a tap does.
    pub(super) tap: Option<Deed>,
    /// What its deletion does.
    pub(super) delete: Option<Deed>,
    /// Whether it is ticked, and what that means.
    pub(super) tick: Option<(bool, Binding)>,
}

impl Entry {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            tap: None,
            delete: None,
            tick: None,
        }
    }
}

impl Form {
    pub(super) fn new(size: Size) -> Self {
        Self {
            ui: Ui::new(size, true),
            deeds: Vec::new(),
            bindings: Vec::new(),
            fields: Vec::new(),
            y: 0,
        }
    }

    fn width(&self) -> u32 {
        self.ui.size.width.min(WIDEST)
    }

    fn row(&mut self, height: u32, kind: Kind) -> Id {
        let rect = Rect::new(0, self.y, self.width(), height);
        self.y += height as i32;
        self.ui.add(rect, kind)
    }

    /// A text to read.
    pub(super) fn label(&mut self, text: impl Into<String>) {
        let item = item(text.into(), false, &[]);
        self.row(ROW, item);
    }

    pub(super) fn button(&mut self, text: &str, deed: Deed) {
        let text = text.to_owned();
        let primary = true;
        let id = self.row(ROW, Kind::Button { text, primary });
        self.deeds.push((Command::Pressed(id), deed));
    }

    pub(super) fn link(&mut self, text: &str, deed: Deed) {
        let id = self.row(ROW, item(text.to_owned(), true, &[]));
        self.deeds.push((Command::Picked(id), deed));
    }

    /// A field, with what is to be written into it.
    pub(super) fn field(&mut self, label: &str) {
        self.label(label);
        let id = self.row(ROW, Kind::Field(TextEdit::default()));
        self.fields.push(id);
    }

    pub(super) fn switch(
        &mut self,
        text: &str,
        on: bool,
        (space, key): (&'static str, &'static str),
    ) {
        let text = text.to_owned();
        let id = self.row(ROW, Kind::Switch { text, on });
        self.deeds
            .push((Command::Switched(id), Deed::Switch(space, key)));
    }

    pub(super) fn slider(&mut self, value: i32, max: i32, binding: Binding) {
        let id = self.row(SLIDER_HEIGHT, Kind::Slider { value, max });
        self.bindings.push((id, binding));
    }

    /// A list in the rest of the page, which can be scrolled.
    pub(super) fn list(&mut self, entries: Vec<Entry>) {
        let room = self.ui.size.height.saturating_sub(self.y as u32) / ROW * ROW;
        let (top, width) = (self.y, self.width());
        let content = (entries.len().min(MAX_ROWS) as u32 * ROW) as i32;
        let scroll = Kind::Scroll {
            offset: 0,
            content,
            row: ROW as i32,
        };
        let view = self.row(room, scroll);
        for (number, entry) in (0..).zip(entries.into_iter().take(MAX_ROWS)) {
            let y = top + number * ROW as i32;
            let rect = Rect::new(0, y, width - SCROLL_BAR, ROW);
            let Entry {
                text,
                tap,
                delete,
                tick,
            } = entry;
            if let Some((on, binding)) = tick {
                let id = self.ui.add_to(view, 0, rect, Kind::Checkbox { text, on });
                self.bindings.push((id, binding));
                continue;
            }
            let context: &[&str] = if delete.is_some() { &["Delete"] } else { &[] };
            let item = item(text, tap.is_some(), context);
            let id = self.ui.add_to(view, 0, rect, item);
            self.deeds
                .extend(tap.map(|deed| (Command::Picked(id), deed)));
            let chose = Command::Chose {
                owner: id,
                entry: 0,
            };
            self.deeds.extend(delete.map(|deed| (chose, deed)));
        }
    }
}

const fn item(text: String, pickable: bool, context: &'static [&'static str]) -> Kind {
    Kind::Item {
        text,
        pickable,
        context,
        selected: false,
    }
}
