//! `diff_text_file`: how similar two texts are, line by line, as Python's `difflib` counts it
//! (<https://docs.python.org/3/library/difflib.html#difflib.SequenceMatcher.ratio>).

use std::collections::HashMap;

use super::{Case, Score};

/// Most pairs of equal lines that are looked at. Python has no limit, and takes hours for texts made
/// to that end; here the blocks found so far count, so that the ratio comes out too low at worst.
const MAX_PAIRS: u64 = 30_000_000;

/// Where Python's `splitlines` splits.
const ENDS: [char; 9] = [
    '\n', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}',
];

fn lines(text: &str) -> Vec<&str> {
    if text.is_empty() {
        return Vec::new();
    }
    text.strip_suffix(ENDS)
        .unwrap_or(text)
        .split(ENDS)
        .collect()
}

/// Where each line of `b` is. Of 200 lines or more, those that make up more than a hundredth count
/// as noise: they begin no match.
fn places<'a>(b: &[&'a str]) -> HashMap<&'a str, Vec<usize>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in b.iter().enumerate() {
        places.entry(line).or_default().push(at);
    }
    if b.len() >= 200 {
        places.retain(|_, at| at.len() <= b.len() / 100 + 1);
    }
    places
}

/// A stretch of both texts.
#[derive(Clone, Copy)]
struct Stretch {
    a: (usize, usize),
    b: (usize, usize),
}

struct Matcher<'a> {
    a: Vec<&'a str>,
    b: Vec<&'a str>,
    places: HashMap<&'a str, Vec<usize>>,
}

impl Matcher<'_> {
    /// The longest common block in `within`, the first of several: start in each, and length.
    /// Takes what it looks at from `left`.
    fn longest(&self, within: Stretch, left: &mut u64) -> (usize, usize, usize) {
        let (mut i, mut j, mut size) = (within.a.0, within.b.0, 0);
        // The blocks that end at the line before: their last line in b, and length.
        let mut ending: Vec<(usize, usize)> = Vec::new();
        for at in within.a.0..within.a.1 {
            *left = left.saturating_sub(1);
            let places = self.places.get(self.a[at]).map_or(&[][..], Vec::as_slice);
            let begin = places.partition_point(|to| *to < within.b.0);
            let end = places.partition_point(|to| *to < within.b.1);
            let mut before = ending.iter().peekable();
            let mut next = Vec::with_capacity(end - begin);
            for &to in &places[begin..end] {
                while before.next_if(|(last, _)| last + 1 < to).is_some() {}
                let joined = before.next_if(|(last, _)| last + 1 == to);
                let length = joined.map_or(0, |(_, length)| *length) + 1;
                next.push((to, length));
                if length > size {
                    (i, j, size) = (at + 1 - length, to + 1 - length, length);
                }
            }
            *left = left.saturating_sub(next.len() as u64);
            ending = next;
            if *left == 0 {
                break;
            }
        }
        self.extend(within, (i, j, size))
    }

    /// Takes equal neighbours in that are noise.
    fn extend(
        &self,
        within: Stretch,
        (mut i, mut j, mut size): (usize, usize, usize),
    ) -> (usize, usize, usize) {
        while i > within.a.0 && j > within.b.0 && self.a[i - 1] == self.b[j - 1] {
            (i, j, size) = (i - 1, j - 1, size + 1);
        }
        while i + size < within.a.1 && j + size < within.b.1 && self.a[i + size] == self.b[j + size]
        {
            size += 1;
        }
        (i, j, size)
    }

    /// Lines in common blocks.
    fn common(&self) -> usize {
        let (mut total, mut pairs) = (0, MAX_PAIRS);
        let mut left = vec![Stretch {
            a: (0, self.a.len()),
            b: (0, self.b.len()),
        }];
        while let Some(within) = left.pop() {
            if pairs == 0 {
                tracing::warn!("texts that take too long to compare: their ratio may be too low");
                break;
            }
            let (i, j, size) = self.longest(within, &mut pairs);
            if size == 0 {
                continue;
            }
            total += size;
            let before = Stretch {
                a: (within.a.0, i),
                b: (within.b.0, j),
            };
            let after = Stretch {
                a: (i + size, within.a.1),
                b: (j + size, within.b.1),
            };
            let holds = |part: &Stretch| part.a.0 < part.a.1 && part.b.0 < part.b.1;
            left.extend([before, after].into_iter().filter(holds));
        }
        total
    }
}

/// Twice the lines in common, of all lines.
fn ratio(a: &str, b: &str) -> f64 {
    let (a, b) = (lines(a), lines(b));
    let all = a.len() + b.len();
    if all == 0 {
        return 1.0;
    }
    if a == b {
        return 1.0;
    }
    let places = places(&b);
    2.0 * Matcher { a, b, places }.common() as f64 / all as f64
}

#[allow(clippy::unnecessary_wraps, reason = "metrics have one type")]
pub(super) fn diff_text_file(case: &Case<'_>) -> Score {
    let texts = case.result.text().zip(case.expected.text());
    Ok(texts.map_or(0.0, |(result, expected)| ratio(&result, &expected)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values computed with Python 3.11's difflib.
    #[test]
    fn the_ratio_is_pythons() {
        let join = |items: &[&str]| items.join("\n");
        assert_eq!(ratio("", ""), 1.0);
        assert_eq!(ratio("a\nb\nc\nd", "b\nc\nd\ne"), 0.75);
        let a = join(&["a", "b", "x", "c", "d", "y", "e"]);
        let b = join(&["a", "x", "b", "c", "y", "d", "e"]);
        assert_eq!(ratio(&a, &b), 10.0 / 14.0);
        assert_eq!(ratio("a\n", "a"), 1.0);
        assert_eq!(ratio("a", "b"), 0.0);
    }

    /// 300 lines of which two alternate: both are noise and begin no match. Python's values.
    #[test]
    fn noise_begins_no_match() {
        let noisy: String = (0..300)
            .map(|n| if n % 2 == 0 { "x\n" } else { "y\n" })
            .collect();
        assert_eq!(ratio(&noisy, &noisy), 1.0);
        assert_eq!(ratio(&format!("one\n{noisy}"), &noisy), 0.0);
        let shifted = ratio(&format!("one\n{noisy}"), &format!("w\none\n{noisy}"));
        assert_eq!(shifted, 602.0 / 603.0);
        assert_eq!(lines("\n"), [""]);
        assert_eq!(lines("a\n\n"), ["a", ""]);
    }

    /// Every second line is common and each common block has one line: a search for each of them
    /// over all that is left.
    #[test]
    fn texts_made_to_take_long_end_soon() {
        let text = |other: &str| {
            let lines = (0..40_000).map(|n| format!("line {n}\n{other} {n}\n"));
            lines.collect::<String>()
        };
        let start = std::time::Instant::now();
        let found = ratio(&text("a"), &text("b"));
        assert!((0.0..=0.5).contains(&found), "{found}");
        assert!(start.elapsed() < std::time::Duration::from_mins(1));
    }

    proptest! {
        #[test]
        fn a_ratio_is_a_ratio(a in "[ab\n]{0,40}", b in "[ab\n]{0,40}") {
            let forth = ratio(&a, &b);
            prop_assert!((0.0..=1.0).contains(&forth));
            prop_assert_eq!(ratio(&a, &a), 1.0);
        }
    }
}
