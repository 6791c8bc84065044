//! The widgets: what each one is, holds, and where its parts lie.

use dart_core::{Rect, ScreenPx};

use super::edit::TextEdit;
use crate::geom::{bottom, right};

/// Names a widget: its place in [`Ui::widgets`](super::Ui::widgets).
pub(crate) type Id = usize;

/// Height of a title bar, a tab, a menu entry: px.
pub(crate) const BAR: u32 = 16;
/// Side of the close box of a window, px.
pub(crate) const CLOSE: u32 = 16;
/// Width of a scroll bar, px.
pub(crate) const SCROLL_BAR: u32 = 8;
/// Distance between the ticks of a slider, px: one 8-px cell each.
pub(crate) const TICK: i32 = 8;
/// Height of a slider, its digits included, px.
pub(crate) const SLIDER_HEIGHT: u32 = 24;
/// Width of one tab, px.
pub(crate) const TAB: u32 = 40;

/// A widget, its place and its state.
#[derive(Clone, Debug)]
pub(crate) struct Widget {
    /// Where it is, in unscrolled coordinates.
    pub(crate) rect: Rect,
    /// The container (and the page of it) that it lives in.
    pub(crate) parent: Option<(Id, usize)>,
    /// What it is.
    pub(crate) kind: Kind,
    /// Gone for good: closed, deleted.
    pub(crate) gone: bool,
}

/// What a widget is, with its state.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Pressing it is a command.
    Button {
        text: String,
        /// The default button: drawn in colour, pressed by the enter key.
        primary: bool,
    },
    /// A box to tick.
    Checkbox { text: String, on: bool },
    /// One line of editable text.
    Field(TextEdit),
    /// A phone app; tapping it is a command.
    Icon { text: String, hue: usize },
    /// A row of a list.
    Item {
        text: String,
        /// Choosing it is a command.
        pickable: bool,
        /// Entries of the menu that a long press opens.
        context: &'static [&'static str],
        selected: bool,
    },
    /// A button that opens a menu; choosing an entry is a command.
    Menu { text: String, entries: Vec<String> },
    /// One of several; all radios of a parent are one group.
    Radio { text: String, on: bool },
    /// Shows part of its children, whole rows at a time.
    Scroll {
        offset: i32,
        /// Height of everything in it, px.
        content: i32,
        /// Height of one row, px.
        row: i32,
    },
    /// A value from 0 to `max`.
    Slider { value: i32, max: i32 },
    /// On or off at once; switching it is a command.
    Switch { text: String, on: bool },
    /// Pages, one of which is shown.
    Tabs { titles: Vec<String>, current: usize },
    /// A window with a title bar and a close box; closing it is a command.
    Window { text: String },
}

impl Kind {
    /// A number for each kind, for the hash of a layout.
    pub(crate) const fn tag(&self) -> u8 {
        match self {
            Self::Button { .. } => 1,
            Self::Checkbox { .. } => 2,
            Self::Field(_) => 3,
            Self::Icon { .. } => 4,
            Self::Item { .. } => 5,
            Self::Menu { .. } => 6,
            Self::Radio { .. } => 7,
            Self::Scroll { .. } => 8,
            Self::Slider { .. } => 9,
            Self::Switch { .. } => 10,
            Self::Tabs { .. } => 11,
            Self::Window { .. } => 12,
        }
    }

    /// Whether it can have the keyboard.
    pub(crate) const fn focusable(&self) -> bool {
        matches!(
            self,
            Self::Button { .. }
                | Self::Checkbox { .. }
                | Self::Field(_)
                | Self::Radio { .. }
                | Self::Slider { .. }
        )
    }
}

/// The close box of a window at `rect`.
pub(crate) const fn close_box(rect: Rect) -> Rect {
    Rect::new(right(rect) - CLOSE as i32, rect.y, CLOSE, BAR)
}

/// The tab with number `index` of tabs at `rect`.
pub(crate) const fn tab_rect(rect: Rect, index: usize) -> Rect {
    Rect::new(rect.x + index as i32 * TAB as i32, rect.y, TAB, BAR)
}

/// The label of an app icon at `rect`: room for five characters.
pub(crate) const fn icon_label(rect: Rect) -> Rect {
    Rect::new(rect.x + 1, rect.y + 20, 30, 8)
}

/// Where the tick of `value` is, on the row of digits of a slider at `rect`.
pub(crate) const fn tick(rect: Rect, value: i32) -> ScreenPx {
    ScreenPx::new(rect.x + TICK + value * TICK, rect.y + 16)
}

/// The value of the tick nearest to column `x`, before clamping to the range.
pub(crate) const fn tick_at(rect: Rect, x: i32) -> i32 {
    (x - rect.x - TICK + TICK / 2).div_euclid(TICK)
}

/// The scroll bar of a view at `rect`.
pub(crate) const fn scroll_bar(rect: Rect) -> Rect {
    let width = SCROLL_BAR as i32;
    Rect::new(right(rect) - width, rect.y, SCROLL_BAR, rect.height)
}

/// An open menu: entries below each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Popup {
    /// The widget that it belongs to.
    pub(crate) owner: Id,
    /// Where it is.
    pub(crate) rect: Rect,
    /// What can be chosen.
    pub(crate) entries: Vec<String>,
}

impl Popup {
    /// Width of a popup, px.
    pub(crate) const WIDTH: u32 = 48;

    /// Opens next to `anchor` on a screen of `width` x `height`: below if there is room, else above.
    pub(crate) fn beside(owner: Id, anchor: Rect, entries: Vec<String>, screen: Rect) -> Self {
        let height = entries.len() as u32 * BAR;
        let below = bottom(anchor);
        let y = if below + height as i32 <= bottom(screen) {
            below
        } else {
            (anchor.y - height as i32).max(0)
        };
        let x = anchor.x.min(right(screen) - Self::WIDTH as i32).max(0);
        Self {
            owner,
            rect: Rect::new(x, y, Self::WIDTH, height),
            entries,
        }
    }

    /// Where entry `index` is.
    pub(crate) fn entry_rect(&self, index: usize) -> Rect {
        let y = self.rect.y + index as i32 * BAR as i32;
        Rect::new(self.rect.x, y, self.rect.width, BAR)
    }

    /// The entry at `point`.
    pub(crate) fn entry_at(&self, point: ScreenPx) -> Option<usize> {
        self.rect
            .contains(point)
            .then(|| ((point.y - self.rect.y) / BAR as i32) as usize)
    }
}
