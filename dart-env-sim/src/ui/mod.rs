//! The toolkit: widgets, who has the keyboard, the clipboard, and what the user told the application.
//!
//! Everything is in logical pixels; the device enlarges the picture by a whole factor.

mod edit;
mod keyboard;
mod looks;
mod paint;
mod painter;
mod pointer;
mod scroll;
mod theme;
mod widget;

use dart_core::{Key, Rect, ScreenPx, Size};

pub(crate) use edit::TextEdit;
pub(crate) use widget::{
    BAR, Id, Kind, Popup, SCROLL_BAR, SLIDER_HEIGHT, TAB, TICK, Widget, close_box, icon_label,
    tab_rect, tick,
};

use crate::geom::encloses;

/// What the user told the application: the one thing that ends a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Pressed a button.
    Pressed(Id),
    /// Closed a window.
    Closed(Id),
    /// Chose an entry of a menu.
    Chose { owner: Id, entry: usize },
    /// Picked a row of a list.
    Picked(Id),
    /// Opened an app.
    Opened(Id),
    /// Moved a switch.
    Switched(Id),
}

/// A screen full of widgets.
#[derive(Clone, Debug)]
pub(crate) struct Ui {
    /// The screen, logical pixels.
    pub(crate) size: Size,
    /// Whether it is operated by touch.
    pub(crate) touch: bool,
    /// The widgets, each after its container; later ones are on top.
    pub(crate) widgets: Vec<Widget>,
    /// The open menu.
    pub(crate) popup: Option<Popup>,
    /// Who has the keyboard.
    pub(crate) focus: Option<Id>,
    /// What the user told the application, in order.
    pub(crate) commands: Vec<Command>,
    /// What was copied or cut last.
    pub(crate) clipboard: String,
    /// A short notice in the corner.
    pub(crate) notice: Option<&'static str>,
    /// Whether the focus came by the tab key, so that it has to be shown.
    focus_by_key: bool,
    pointer: ScreenPx,
    button_down: bool,
    grab: Option<Id>,
    held: Vec<Key>,
}

impl Ui {
    /// An empty screen.
    pub(crate) fn new(size: Size, touch: bool) -> Self {
        Self {
            size,
            touch,
            widgets: Vec::new(),
            popup: None,
            focus: None,
            commands: Vec::new(),
            clipboard: String::new(),
            notice: None,
            focus_by_key: false,
            pointer: ScreenPx::new(size.width as i32 / 2, size.height as i32 / 2),
            button_down: false,
            grab: None,
            held: Vec::new(),
        }
    }

    /// The screen as a rectangle.
    pub(crate) const fn screen(&self) -> Rect {
        Rect::new(0, 0, self.size.width, self.size.height)
    }

    /// Adds a widget on the bare screen.
    pub(crate) fn add(&mut self, rect: Rect, kind: Kind) -> Id {
        self.push(rect, None, kind)
    }

    /// Adds a widget to `page` of the container `parent`.
    pub(crate) fn add_to(&mut self, parent: Id, page: usize, rect: Rect, kind: Kind) -> Id {
        self.push(rect, Some((parent, page)), kind)
    }

    fn push(&mut self, rect: Rect, parent: Option<(Id, usize)>, kind: Kind) -> Id {
        self.widgets.push(Widget {
            rect,
            parent,
            kind,
            gone: false,
        });
        self.widgets.len() - 1
    }

    /// What widget `id` is.
    pub(crate) fn kind(&self, id: Id) -> &Kind {
        &self.widgets[id].kind
    }

    /// Where widget `id` is on the screen now, scrolling included.
    pub(crate) fn rect(&self, id: Id) -> Rect {
        let widget = &self.widgets[id];
        let mut rect = widget.rect;
        let mut parent = widget.parent;
        while let Some((above, _)) = parent {
            if let Kind::Scroll { offset, .. } = self.kind(above) {
                rect.y -= offset;
            }
            parent = self.widgets[above].parent;
        }
        rect
    }

    /// Whether widget `id` can be seen: nothing around it is closed, on another page or scrolled away.
    pub(crate) fn visible(&self, id: Id) -> bool {
        if self.widgets[id].gone {
            return false;
        }
        let Some((parent, page)) = self.widgets[id].parent else {
            return true;
        };
        let shown = match self.kind(parent) {
            Kind::Tabs { current, .. } => *current == page,
            Kind::Scroll { .. } => encloses(self.rect(parent), self.rect(id)),
            _ => true,
        };
        shown && self.visible(parent)
    }

    /// The topmost visible widget at `point`.
    pub(crate) fn hit(&self, point: ScreenPx) -> Option<Id> {
        (0..self.widgets.len())
            .rev()
            .find(|&id| self.rect(id).contains(point) && self.visible(id))
    }

    /// The text field that has the keyboard.
    fn focused_edit(&mut self) -> Option<&mut TextEdit> {
        match &mut self.widgets[self.focus?].kind {
            Kind::Field(edit) => Some(edit),
            _ => None,
        }
    }

    /// How many keys and buttons are held down.
    pub(crate) fn held(&self) -> usize {
        self.held.len() + usize::from(self.button_down)
    }

    /// Lets go of every key and button.
    pub(crate) fn release_all(&mut self) {
        self.button_down = false;
        self.grab = None;
        self.held.clear();
    }
}

#[cfg(test)]
mod tests;
