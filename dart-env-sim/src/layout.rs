//! Where widgets go, and which layouts are kept for evaluation.
//!
//! The layout of a screen is the set of the kinds and places of its widgets, whatever their
//! labels. Its hash decides which side it belongs to: training only meets layouts whose hash is
//! not a multiple of four, evaluation only the others. So no layout is ever on both sides, for
//! any seed.

use dart_core::{Rect, Size, Split};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::{
    geom::{grown, overlap},
    ui::{Id, Kind, Ui},
    words::Words,
};

/// One layout in so many is kept for evaluation.
const HELD_OUT_SHARE: u64 = 4;
/// Places tried for one widget before the whole layout is begun anew.
const TRIES: usize = 40;
/// Free pixels around each widget.
const GAP: i32 = 3;

/// A hash of the kinds and places of all widgets, independent of their order and of all texts.
pub(crate) fn hash(ui: &Ui) -> u64 {
    let mut places: Vec<_> = ui
        .widgets
        .iter()
        .map(|w| {
            (
                w.kind.tag(),
                w.rect.x,
                w.rect.y,
                w.rect.width,
                w.rect.height,
            )
        })
        .collect();
    places.sort_unstable();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for (tag, x, y, width, height) in places {
        for part in [
            u64::from(tag),
            x as u64,
            y as u64,
            u64::from(width),
            u64::from(height),
        ] {
            hash = mix(hash ^ part);
        }
    }
    hash
}

/// Whether a layout with this hash may be shown in `split`.
pub(crate) const fn allowed(hash: u64, split: Split) -> bool {
    hash.is_multiple_of(HELD_OUT_SHARE) != matches!(split, Split::Train)
}

/// The finalizer of SplitMix64.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Builds one screen: places come from one random stream, words and targets from another, so that
/// the layout says nothing about the solution.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    pub(crate) ui: Ui,
    pub(crate) words: Words<'a>,
    rng: &'a mut ChaCha8Rng,
    grid: i32,
    taken: Vec<Rect>,
}

impl<'a> Builder<'a> {
    /// Starts with an empty screen.
    pub(crate) const fn new(ui: Ui, grid: u32, rng: &'a mut ChaCha8Rng, words: Words<'a>) -> Self {
        Self {
            ui,
            words,
            rng,
            grid: grid as i32,
            taken: Vec::new(),
        }
    }

    /// Half a grid step: widgets 16 px high start there, so that their line of text fills exactly
    /// one row of 8-px cells.
    pub(crate) const fn half(&self) -> i32 {
        self.grid / 2
    }

    /// The whole screen, from half a grid step below the top.
    pub(crate) fn area(&self) -> Rect {
        let half = self.half();
        let Size { width, height } = self.ui.size;
        Rect::new(0, half, width, height - half as u32)
    }

    /// One of `choices`, by the random stream of places.
    pub(crate) fn vary(&mut self, choices: std::ops::RangeInclusive<u32>) -> u32 {
        self.rng.random_range(choices)
    }

    /// A free place of `width` x `height` in `area`, at whole grid steps from its corner.
    pub(crate) fn place(&mut self, area: Rect, (width, height): (u32, u32)) -> Option<Rect> {
        let steps = |room: u32, side: u32| Some(room.checked_sub(side)? / self.grid as u32);
        let (columns, rows) = (steps(area.width, width)?, steps(area.height, height)?);
        for _ in 0..TRIES {
            let x = area.x + self.rng.random_range(0..=columns) as i32 * self.grid;
            let y = area.y + self.rng.random_range(0..=rows) as i32 * self.grid;
            let rect = Rect::new(x, y, width, height);
            let apart = grown(rect, GAP);
            if !self.taken.iter().any(|other| overlap(apart, *other)) {
                self.taken.push(rect);
                return Some(rect);
            }
        }
        None
    }

    /// Adds a widget somewhere on the screen.
    pub(crate) fn add(&mut self, size: (u32, u32), kind: Kind) -> Option<Id> {
        let rect = self.place(self.area(), size)?;
        Some(self.ui.add(rect, kind))
    }

    /// Forgets what is taken: the next page of tabs is empty.
    pub(crate) fn new_page(&mut self) {
        self.taken.clear();
    }

    /// Adds the default button.
    pub(crate) fn add_submit(&mut self) -> Option<Id> {
        let text = "Submit".to_owned();
        self.add(
            (48, 16),
            Kind::Button {
                text,
                primary: true,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_ignores_texts_and_order() {
        let button = |text: &str| Kind::Button {
            text: text.into(),
            primary: false,
        };
        let (here, there) = (Rect::new(0, 4, 40, 16), Rect::new(8, 44, 40, 16));
        let screen = |first, second, a, b| {
            let mut ui = Ui::new(Size::new(128, 96), false);
            ui.add(first, button(a));
            ui.add(second, button(b));
            hash(&ui)
        };
        let expected = screen(here, there, "a", "b");
        assert_eq!(screen(there, here, "c", "d"), expected);
        assert_ne!(screen(here, Rect::new(8, 36, 40, 16), "a", "b"), expected);
    }

    #[test]
    fn every_layout_is_on_one_side() {
        for hash in 0..100 {
            let sides = Split::ALL.map(|split| allowed(hash, split));
            assert_eq!(sides, [hash % 4 != 0, hash % 4 == 0, hash % 4 == 0]);
        }
    }
}
