//! Scrolling: by wheel, by scroll bar, by finger.

use dart_core::{Direction, ScreenPx};

use super::{Id, Kind, Ui, widget::scroll_bar};
use crate::geom::grown;

impl Ui {
    /// Scrolls the view under `at` (under the pointer if none).
    ///
    /// A notch moves a list on the desktop by one row and on the phone by a third of the view. One
    /// action never moves further than a page less one row, so that no row is skipped unseen.
    pub(crate) fn scroll(&mut self, at: Option<ScreenPx>, direction: Direction, notches: u8) {
        let middle = grown(self.screen(), 0).center();
        let at = at.unwrap_or(if self.touch { middle } else { self.pointer });
        let sign = match direction {
            Direction::Down => 1,
            Direction::Up => -1,
            Direction::Left | Direction::Right => return,
        };
        let Some(id) = self.view_at(at) else { return };
        let Kind::Scroll { row, .. } = *self.kind(id) else {
            return;
        };
        let rows = self.rect(id).height as i32 / row;
        let notch = if self.touch { (rows / 3).max(1) } else { 1 };
        let step = (notch * i32::from(notches)).min((rows - 1).max(1));
        self.scroll_by(id, sign * step * row);
    }

    /// Moves the content under a finger; a swipe of less than 5 px is a tap.
    pub(crate) fn swipe(&mut self, from: ScreenPx, to: ScreenPx) {
        if (from.x - to.x).abs() < 5 && (from.y - to.y).abs() < 5 {
            return self.click(
                from,
                dart_core::MouseButton::Left,
                1,
                dart_core::Modifiers::NONE,
            );
        }
        if self.popup.take().is_some() {
            return;
        }
        if let Some(id) = self.view_at(from) {
            self.scroll_by(id, from.y - to.y);
        }
    }

    pub(super) fn drag_scroll_bar(&mut self, id: Id, at: ScreenPx) {
        let bar = scroll_bar(self.rect(id));
        if let Kind::Scroll {
            offset, content, ..
        } = *self.kind(id)
        {
            let wanted = (at.y - bar.y) * content / bar.height.max(1) as i32;
            self.scroll_by(id, wanted - bar.height as i32 / 2 - offset);
        }
    }

    /// The innermost scroll view at `at`.
    fn view_at(&self, at: ScreenPx) -> Option<Id> {
        let is_view = |id: Id| matches!(self.kind(id), Kind::Scroll { .. });
        let mut id = self.hit(at)?;
        while !is_view(id) {
            id = self.widgets[id].parent?.0;
        }
        Some(id)
    }

    /// Moves the view `id` by `pixels`, to the nearest whole row, within the content.
    pub(super) fn scroll_by(&mut self, id: Id, pixels: i32) {
        let height = self.widgets[id].rect.height as i32;
        if let Kind::Scroll {
            offset,
            content,
            row,
        } = &mut self.widgets[id].kind
        {
            let wanted = (*offset + pixels + *row / 2).div_euclid(*row) * *row;
            *offset = wanted.clamp(0, (*content - height).max(0));
        }
    }
}
