//! The parameters of one instance of a task.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::format::{AndroidTask, Expect, Parameter};
use crate::{
    error::{Adb, AdbError},
    quote::quote,
};

/// Longest random word.
const MAX_LETTERS: usize = 64;
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
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let value = draw(parameter, &mut rng);
            let value = value.filter(|_| !name.is_empty() && name.chars().all(plain));
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

    fn replace(&self, text: &str, write: impl Fn(&str) -> String) -> Adb<String> {
        let mut all = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            all.push_str(before);
            let name = after.split_once('}');
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let name = name.filter(|(name, _)| !name.is_empty() && name.chars().all(plain));
            if let Some((name, after)) = name {
                all.push_str(&write(self.get(name)?));
                rest = after;
            } else {
                // A brace of something else, such as JSON.
                all.push('{');
                rest = after;
            }
        }
        all.push_str(rest);
        Ok(all)
    }

    /// Whether `text` is as expected.
    pub(crate) fn holds(&self, expected: &Expect, text: &str) -> Adb<bool> {
        let text = text.trim();
        Ok(match expected {
            Expect::Contains(part) => text.contains(self.fill(part)?.trim()),
            Expect::Equals(whole) => text == self.fill(whole)?.trim(),
            Expect::EqualsIgnoringCase(whole) => {
                text.to_lowercase() == self.fill(whole)?.trim().to_lowercase()
            }
            Expect::Lacks(part) => !text.contains(self.fill(part)?.trim()),
        })
    }
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
