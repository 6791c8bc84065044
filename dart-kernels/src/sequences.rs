//! [`Sequences`]: which tokens belong together.

use std::ops::Range;

use crate::{Error, Result};

/// Sequences of tokens that lie one after another: tokens `offsets[i]..offsets[i + 1]` belong to
/// sequence i. Sequences may be empty.
///
/// Invariant: offsets begin with 0 and never fall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequences {
    offsets: Vec<usize>,
}

impl Sequences {
    /// `count` sequences of one token each: for losses whose tokens stand alone.
    pub fn single_tokens(count: usize) -> Self {
        Self {
            offsets: (0..=count).collect(),
        }
    }

    /// Sequences of these lengths in tokens, one after another.
    ///
    /// # Panics
    /// If the lengths add up to more than `usize::MAX`: a bug of the caller.
    pub fn from_lengths(lengths: &[usize]) -> Self {
        let mut offsets = Vec::with_capacity(lengths.len() + 1);
        let mut end = 0usize;
        offsets.push(end);
        for length in lengths {
            end = end.checked_add(*length).expect("lengths fit the memory");
            offsets.push(end);
        }
        Self { offsets }
    }

    /// Sequences that begin and end at these tokens.
    ///
    /// # Errors
    /// [`Error::Sequences`] if the offsets do not begin with 0 or fall somewhere.
    pub fn from_offsets(offsets: Vec<usize>) -> Result<Self> {
        if offsets.first() != Some(&0) || !offsets.is_sorted() {
            return Err(Error::Sequences(
                "offsets must begin with 0 and never fall".into(),
            ));
        }
        Ok(Self { offsets })
    }

    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there is no sequence.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of tokens of all sequences.
    pub fn tokens(&self) -> usize {
        self.offsets[self.len()]
    }

    /// Where sequences begin, and where the last one ends.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// The tokens of each sequence.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = Range<usize>> + '_ {
        self.offsets.windows(2).map(|pair| pair[0]..pair[1])
    }

    /// Checks that there are `tokens` tokens.
    ///
    /// # Errors
    /// [`Error::Sequences`].
    pub fn check(&self, tokens: usize) -> Result<()> {
        if self.tokens() == tokens {
            return Ok(());
        }
        Err(Error::Sequences(format!(
            "sequences of {} tokens do not fit {tokens} tokens",
            self.tokens()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_checked() {
        for bad in [vec![], vec![1], vec![0, 3, 2]] {
            assert!(matches!(
                Sequences::from_offsets(bad),
                Err(Error::Sequences(_))
            ));
        }
        let sequences = Sequences::from_offsets(vec![0, 2, 2, 5]).unwrap();
        assert_eq!(sequences, Sequences::from_lengths(&[2, 0, 3]));
        let ranges: Vec<_> = sequences.ranges().collect();
        assert_eq!(ranges, [0..2, 2..2, 2..5]);
        assert_eq!((sequences.len(), sequences.tokens()), (3, 5));
        assert!(sequences.check(5).is_ok() && sequences.check(4).is_err());
    }

    #[test]
    fn there_may_be_no_sequence() {
        let none = Sequences::single_tokens(0);
        assert_eq!(none, Sequences::from_lengths(&[]));
        assert!(none.is_empty() && none.tokens() == 0 && none.ranges().len() == 0);
        assert!(Sequences::from_offsets(vec![0]).unwrap().is_empty());
    }
}
