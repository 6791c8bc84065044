//! The text inside a text field: caret, selection, and what keys do to it.

/// Longest content; what is typed beyond it is ignored, as toolkits do with a maximum length.
pub(crate) const MAX_CHARS: usize = 256;

/// Where the caret goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    /// One character back.
    Left,
    /// One character on.
    Right,
    /// Before everything.
    Home,
    /// After everything.
    End,
}

/// An editable line of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextEdit {
    chars: Vec<char>,
    caret: usize,
    anchor: usize,
}

impl TextEdit {
    /// Holds `text`, with the caret at the end.
    pub(crate) fn holding(text: &str) -> Self {
        let mut edit = Self::default();
        edit.insert(text);
        edit
    }

    /// The whole text.
    pub(crate) fn text(&self) -> String {
        self.chars.iter().collect()
    }

    /// The characters.
    pub(crate) fn chars(&self) -> &[char] {
        &self.chars
    }

    /// Characters before the caret.
    pub(crate) const fn caret(&self) -> usize {
        self.caret
    }

    /// The selected range; empty if nothing is selected.
    pub(crate) fn selection(&self) -> std::ops::Range<usize> {
        self.caret.min(self.anchor)..self.caret.max(self.anchor)
    }

    /// The selected text.
    pub(crate) fn selected(&self) -> String {
        self.chars[self.selection()].iter().collect()
    }

    /// Whether all of a non-empty text is selected.
    pub(crate) fn all_selected(&self) -> bool {
        !self.chars.is_empty() && self.selection() == (0..self.chars.len())
    }

    /// Puts `text` in place of the selection. Control characters are dropped.
    pub(crate) fn insert(&mut self, text: &str) {
        self.remove(self.selection());
        let room = MAX_CHARS - self.chars.len();
        let new: Vec<char> = text
            .chars()
            .filter(|c| !c.is_control())
            .take(room)
            .collect();
        let end = self.caret + new.len();
        self.chars.splice(self.caret..self.caret, new);
        self.place(end, false);
    }

    /// Backspace: the selection, or the character before the caret.
    pub(crate) fn backspace(&mut self) {
        let caret = self.caret;
        self.remove_or(caret.saturating_sub(1)..caret);
    }

    /// Delete: the selection, or the character after the caret.
    pub(crate) fn delete(&mut self) {
        let caret = self.caret;
        self.remove_or(caret..(caret + 1).min(self.chars.len()));
    }

    /// Moves the caret; with `extend` the selection grows, without it it is dropped.
    pub(crate) fn go(&mut self, motion: Motion, extend: bool) {
        let selection = self.selection();
        let collapse = !extend && !selection.is_empty();
        let to = match motion {
            Motion::Left if collapse => selection.start,
            Motion::Right if collapse => selection.end,
            Motion::Left => self.caret.saturating_sub(1),
            Motion::Right => self.caret + 1,
            Motion::Home => 0,
            Motion::End => self.chars.len(),
        };
        self.place(to, extend);
    }

    /// Puts the caret after `to` characters.
    pub(crate) fn place(&mut self, to: usize, extend: bool) {
        self.caret = to.min(self.chars.len());
        if !extend {
            self.anchor = self.caret;
        }
    }

    /// Selects everything.
    pub(crate) fn select_all(&mut self) {
        self.anchor = 0;
        self.caret = self.chars.len();
    }

    /// Selects the word around position `at`, or the gap between words.
    pub(crate) fn select_word(&mut self, at: usize) {
        let Some(last) = self.chars.len().checked_sub(1) else {
            return;
        };
        let at = at.min(last);
        let gap = self.chars[at] == ' ';
        let same = |c: &&char| (**c == ' ') == gap;
        self.anchor = at - self.chars[..at].iter().rev().take_while(same).count();
        self.caret = at + self.chars[at..].iter().take_while(same).count();
    }

    fn remove_or(&mut self, otherwise: std::ops::Range<usize>) {
        let selection = self.selection();
        self.remove(if selection.is_empty() {
            otherwise
        } else {
            selection
        });
    }

    fn remove(&mut self, range: std::ops::Range<usize>) {
        let start = range.start;
        self.chars.drain(range);
        self.place(start, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn typing_replaces_the_selection() {
        let mut edit = TextEdit::holding("two words");
        edit.select_word(1);
        assert_eq!(edit.selected(), "two");
        edit.insert("2\n");
        assert_eq!((edit.text().as_str(), edit.caret()), ("2 words", 1));
        edit.select_word(1);
        assert_eq!(edit.selected(), " ");
        edit.select_all();
        assert!(edit.all_selected());
        edit.backspace();
        assert_eq!(edit, TextEdit::default());
        edit.select_all();
        assert!(!edit.all_selected());
        edit.select_word(0);
    }

    #[test]
    fn keys_move_and_delete() {
        let mut edit = TextEdit::holding("abcd");
        edit.go(Motion::Left, false);
        edit.backspace();
        assert_eq!(edit.text(), "abd");
        edit.go(Motion::Home, false);
        edit.delete();
        edit.go(Motion::Right, true);
        assert_eq!(
            (edit.text().as_str(), edit.selected().as_str()),
            ("bd", "b")
        );
        edit.go(Motion::Left, false);
        assert_eq!((edit.caret(), edit.selection().len()), (0, 0));
        edit.backspace();
        edit.go(Motion::End, true);
        edit.delete();
        assert_eq!(edit.text(), "");
        edit.delete();
    }

    proptest! {
        #[test]
        fn caret_stays_inside(ops in proptest::collection::vec((0u8..9, 0usize..300), 0..60)) {
            let mut edit = TextEdit::default();
            for (op, n) in ops {
                match op {
                    0 => edit.insert(&"x y".repeat(n)),
                    1 => edit.backspace(),
                    2 => edit.delete(),
                    3 => edit.go(Motion::Left, n % 2 == 0),
                    4 => edit.go(Motion::Right, n % 2 == 0),
                    5 => edit.place(n, n % 2 == 0),
                    6 => edit.select_word(n),
                    7 => edit.select_all(),
                    _ => edit.go(Motion::Home, n % 2 == 0),
                }
                prop_assert!(edit.caret() <= edit.chars().len());
                prop_assert!(edit.selection().end <= edit.chars().len());
                prop_assert!(edit.chars().len() <= MAX_CHARS);
            }
        }
    }
}
