//! The words on labels: 3 to 5 lower-case letters, for training and held out.

use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use dart_core::Split;

/// Words that training may show.
pub(crate) const TRAINING: &[&str] = &[
    "apple", "back", "bank", "beach", "bed", "bird", "blue", "boat", "book", "box", "bread",
    "brush", "cake", "car", "cat", "chair", "city", "clock", "cloud", "coat", "copy", "cup",
    "dance", "desk", "dog", "door", "draw", "edit", "egg", "farm", "file", "fish", "fly", "fork",
    "frog", "game", "glass", "gold", "grape", "hat", "help", "horse", "ice", "jam", "jump", "key",
    "king", "lake", "lamp", "leaf", "list", "mail", "map", "milk", "moon", "music", "next",
    "night", "open", "paper", "pen", "phone", "piano", "plum", "queen", "quit", "radio", "rain",
    "red", "ring", "river", "road", "save", "ship", "shoe", "snow", "sun", "table", "tea", "tree",
    "van", "view", "water", "wax", "yard", "zebra", "zoom",
];

/// Words that training never shows, neither by name nor by chance.
pub(crate) const HELD_OUT: &[&str] = &[
    "arm", "basil", "bike", "candy", "cow", "drum", "eagle", "fox", "goat", "heart", "hill", "ink",
    "juice", "kite", "lemon", "mouse", "nut", "olive", "panda", "pipe", "quilt", "rope", "sail",
    "stone", "tiger", "train", "vase", "wheel", "wolf", "yacht", "zoo",
];

/// Draws distinct labels for one screen.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    rng: &'a mut ChaCha8Rng,
    split: Split,
    random_share: f64,
    used: Vec<String>,
}

impl<'a> Words<'a> {
    /// Labels of `split`; in training, `random_share` of them are random letters.
    pub(crate) const fn new(rng: &'a mut ChaCha8Rng, split: Split, random_share: f64) -> Self {
        Self {
            rng,
            split,
            random_share,
            used: Vec::new(),
        }
    }

    /// A label that is not on the screen yet.
    pub(crate) fn next(&mut self) -> String {
        loop {
            let word = self.draw();
            if !self.used.contains(&word) {
                self.used.push(word.clone());
                return word;
            }
        }
    }

    /// `count` labels.
    pub(crate) fn take(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next()).collect()
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.rng.random_range(0..bound)
    }

    fn draw(&mut self) -> String {
        if self.split == Split::Train && self.rng.random_bool(self.random_share) {
            return self.letters();
        }
        let list = match self.split {
            Split::Words => HELD_OUT,
            Split::Layouts | Split::Train => TRAINING,
        };
        list.choose(self.rng).copied().unwrap_or("word").to_owned()
    }

    fn letters(&mut self) -> String {
        loop {
            let length = self.rng.random_range(3..=5);
            let letters: String = (0..length)
                .map(|_| char::from(self.rng.random_range(b'a'..=b'z')))
                .collect();
            if !HELD_OUT.contains(&letters.as_str()) {
                return letters;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::BTreeSet;

    #[test]
    fn the_lists_are_disjoint_and_well_formed() {
        let training: BTreeSet<_> = TRAINING.iter().collect();
        let held_out: BTreeSet<_> = HELD_OUT.iter().collect();
        assert_eq!(
            (training.len(), held_out.len()),
            (TRAINING.len(), HELD_OUT.len())
        );
        assert!(training.len() >= 60 && held_out.len() >= 20);
        assert!(training.is_disjoint(&held_out));
        for word in training.union(&held_out) {
            assert!((3..=5).contains(&word.len()), "{word}");
            assert!(word.chars().all(|c| c.is_ascii_lowercase()), "{word}");
        }
    }

    #[test]
    fn each_split_draws_its_own_words() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for split in Split::ALL {
            let drawn = Words::new(&mut rng, split, 0.7).take(24);
            let distinct: BTreeSet<_> = drawn.iter().collect();
            assert_eq!(distinct.len(), 24);
            for word in &drawn {
                let held_out = HELD_OUT.contains(&word.as_str());
                assert_eq!(held_out, split == Split::Words, "{split:?} {word}");
            }
        }
    }

    #[test]
    fn the_share_of_random_letters_is_kept() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let mut random = 0;
        for _ in 0..1000 {
            let word = Words::new(&mut rng, Split::Train, 0.7).next();
            random += usize::from(!TRAINING.contains(&word.as_str()));
        }
        assert!((650..750).contains(&random), "{random}");
        let only_words = Words::new(&mut rng, Split::Train, 0.0).take(50);
        assert!(only_words.iter().all(|w| TRAINING.contains(&w.as_str())));
    }
}
