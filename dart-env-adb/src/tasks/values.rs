//! The parameters of one instance of a task.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use regex::{Regex, RegexBuilder};

use super::format::{AndroidTask, Expect, Parameter};
use crate::{
    error::{Adb, AdbError},
    quote::quote,
};

/// Longest random word.
const MAX_LETTERS: usize = 64;
/// Longest pattern, bytes, and the most memory for one, bytes.
const MAX_PATTERN: usize = 4096;
const MAX_PATTERN_MEMORY: usize = 4 << 20;
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Values by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values(BTreeMap<String, String>);

impl Values {
    /// The values of the instance `seed`: the same for the same task and seed.
    pub(crate) fn draw(task: &AndroidTask, seed: u64) -> Adb<Self> {
        let mut values = BTreeMap::new();
        for (number, (name, parameter)) in (1..).zip(&task.parameters) {
            // A stream each, so that another parameter does not change this one.
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(number);
            let value = draw(parameter, &mut rng).filter(|_| is_name(name));
            let value = value.ok_or_else(|| {
                AdbError::Config(format!("task {}: parameter {name} is impossible", task.id))
            })?;
            values.insert(name.clone(), value);
        }
        Ok(Self(values))
    }

    pub(crate) fn get(&self, name: &str) -> Adb<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.ok_or_else(|| AdbError::Config(format!("there is no parameter {name:?}")))
    }

    /// `text` with the values in place of their names.
    pub(crate) fn fill(&self, text: &str) -> Adb<String> {
        self.replace(text, str::to_owned)
    }

    /// A command line with the values as quoted words.
    pub(crate) fn fill_command(&self, line: &str) -> Adb<String> {
        self.replace(line, quote)
    }

    /// SQL with the values as texts.
    pub(crate) fn fill_sql(&self, statement: &str) -> Adb<String> {
        self.replace(statement, |value| {
            format!("'{}'", value.replace('\'', "''"))
        })
    }

    fn replace(&self, text: &str, write: impl Fn(&str) -> String) -> Adb<String> {
        let mut all = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            all.push_str(before);
            let name = after.split_once('}').filter(|(name, _)| is_name(name));
            if let Some((name, after)) = name {
                all.push_str(&write(self.get(name)?));
                rest = after;
            } else {
                // One brace for two, and a brace of something else, such as JSON.
                all.push('{');
                rest = after.strip_prefix('{').unwrap_or(after);
            }
        }
        all.push_str(rest);
        Ok(all)
    }

    /// What is expected of this instance.
    pub(crate) fn expected(&self, expect: &Expect) -> Adb<Expected> {
        let fill = |text: &str| self.fill(text).map(|text| text.trim().to_owned());
        Ok(match expect {
            Expect::Contains(part) => Expected::Contains(fill(part)?),
            Expect::Equals(whole) => Expected::Equals(fill(whole)?),
            Expect::EqualsIgnoringCase(whole) => {
                Expected::EqualsIgnoringCase(fill(whole)?.to_lowercase())
            }
            Expect::Lacks(part) => Expected::Lacks(fill(part)?),
            Expect::Matches(pattern) => {
                Expected::Matches(compile(&self.replace(pattern, regex::escape)?)?)
            }
        })
    }
}

/// [`Expect`] with values in place of their names.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    Contains(String),
    Equals(String),
    EqualsIgnoringCase(String),
    Lacks(String),
    Matches(Regex),
}

impl Expected {
    /// Whether `text` is as expected. White space at both ends does not count.
    pub(crate) fn holds(&self, text: &str) -> bool {
        let text = text.trim();
        match self {
            Self::Contains(part) => text.contains(part),
            Self::Equals(whole) => text == whole,
            Self::EqualsIgnoringCase(whole) => text.to_lowercase() == *whole,
            Self::Lacks(part) => !text.contains(part),
            Self::Matches(pattern) => pattern.is_match(text),
        }
    }
}

/// A pattern of bounded size.
pub(crate) fn compile(pattern: &str) -> Adb<Regex> {
    let bad = |why: String| AdbError::Config(format!("the pattern {pattern:.200?}: {why}"));
    if pattern.len() > MAX_PATTERN {
        return Err(bad(format!("is longer than {MAX_PATTERN} bytes")));
    }
    let built = RegexBuilder::new(pattern)
        .size_limit(MAX_PATTERN_MEMORY)
        .dfa_size_limit(MAX_PATTERN_MEMORY)
        .build();
    built.map_err(|error| bad(error.to_string()))
}

/// Whether this can be the name of a parameter: letters, digits and `_`, no digit first.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(plain)
}

fn draw(parameter: &Parameter, rng: &mut ChaCha8Rng) -> Option<String> {
    match parameter {
        Parameter::Choice(all) => all.choose(rng).cloned(),
        Parameter::Integer(least, most) if least <= most => {
            Some(rng.random_range(*least..=*most).to_string())
        }
        Parameter::Letters(count) if (1..=MAX_LETTERS).contains(count) => {
            let letter = |_| LETTERS.choose(rng).map(|byte| char::from(*byte));
            (0..*count).map(letter).collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(value: &str) -> Values {
        Values([("a".to_owned(), value.to_owned())].into())
    }

    #[test]
    fn values_stand_for_themselves_wherever_they_are_put() {
        let v = values("it's.");
        assert_eq!(
            v.fill("{a} {{a} {0} {\"a\"}").unwrap(),
            "it's. {a} {0} {\"a\"}"
        );
        assert_eq!(v.fill_command("echo {a}").unwrap(), r"echo 'it'\''s.'");
        assert_eq!(v.fill_sql("x = {a}").unwrap(), "x = 'it''s.'");
        assert!(v.fill("{b}").is_err());
        let pattern = v
            .expected(&Expect::Matches("^{a}[0-9]{2}$".into()))
            .unwrap();
        assert!(
            pattern.holds(" it's.42 ") && !pattern.holds("it's!42") && !pattern.holds("it's.4")
        );
    }

    #[test]
    fn impossible_patterns_are_refused() {
        for bad in ["(", "a{99999}{99999}", &"x".repeat(MAX_PATTERN + 1)] {
            let error = values("x")
                .expected(&Expect::Matches(bad.into()))
                .unwrap_err();
            assert!(error.to_string().contains("pattern"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_doubled_brace_is_a_brace(text in "[{}a0 ]{0,20}") {
            let escaped = text.replace('{', "{{");
            prop_assert_eq!(values("x").fill(&escaped).unwrap(), text);
        }
    }
}
