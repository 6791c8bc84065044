//! A message: fields with their values, each of which has to be asked for.

use std::cell::Cell;

use super::tokens::mistake;
use crate::error::Adb;

/// A field. Repeated ones follow one another.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) value: Value,
    pub(super) line: usize,
    /// Whether somebody has asked for it.
    seen: Cell<bool>,
}

impl Field {
    pub(super) const fn new(name: String, value: Value, line: usize) -> Self {
        Self {
            name,
            value,
            line,
            seen: Cell::new(false),
        }
    }

    /// The message that it is.
    pub(super) fn message(&self) -> Adb<&Message> {
        match &self.value {
            Value::Message(message) => Ok(message),
            _ => Err(mistake(self.line, format!("{} needs {{ }}", self.name))),
        }
    }

    /// Its text.
    pub(super) fn text(&self) -> Adb<String> {
        let bad = |why| mistake(self.line, format!("{} {why}", self.name));
        match &self.value {
            Value::Text(bytes) => {
                let text = String::from_utf8(bytes.clone());
                text.map_err(|_| bad("holds bytes that are no UTF-8"))
            }
            _ => Err(bad("needs a text in quotes")),
        }
    }

    /// Its number.
    pub(super) fn number(&self) -> Adb<f64> {
        let word = self.word()?;
        let number = word.trim_end_matches(['f', 'F']).parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite());
        number.ok_or_else(|| mistake(self.line, format!("{} needs a number", self.name)))
    }

    /// Its number or named value as it is written.
    pub(super) fn word(&self) -> Adb<&str> {
        match &self.value {
            Value::Word(word) => Ok(word),
            _ => Err(mistake(
                self.line,
                format!("{} needs a plain value", self.name),
            )),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Word(String),
    Text(Vec<u8>),
    Message(Message),
}

/// Fields in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
}

impl Message {
    /// All values of a field.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Field> {
        let named = self.fields.iter().filter(move |field| field.name == name);
        named.inspect(|field| field.seen.set(true))
    }

    /// The value of a field; the last one counts.
    pub(super) fn get(&self, name: &str) -> Option<&Field> {
        let named = self.fields.iter().filter(|field| field.name == name);
        named.inspect(|field| field.seen.set(true)).last()
    }

    /// Passes fields over that mean nothing here, with all that is in them.
    pub(super) fn pass_over(&self, names: &[&str]) {
        for name in names {
            for field in self.all(name) {
                if let Value::Message(message) = &field.value {
                    message.pass_all();
                }
            }
        }
    }

    fn pass_all(&self) {
        let mut waiting = vec![self];
        while let Some(message) = waiting.pop() {
            for field in &message.fields {
                field.seen.set(true);
                if let Value::Message(inner) = &field.value {
                    waiting.push(inner);
                }
            }
        }
    }

    /// The text of a field; empty if it is missing, as the format has it.
    pub(super) fn text(&self, name: &str) -> Adb<String> {
        self.get(name).map_or(Ok(String::new()), Field::text)
    }

    /// The texts of a field.
    pub(super) fn texts(&self, name: &str) -> Adb<Vec<String>> {
        self.all(name).map(Field::text).collect()
    }

    /// The number of a field; 0 if it is missing.
    pub(super) fn number(&self, name: &str) -> Adb<f64> {
        self.get(name).map_or(Ok(0.0), Field::number)
    }

    /// The whole names of the fields that nobody has asked for, with their lines.
    pub(super) fn unseen(&self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        let mut waiting = vec![(String::new(), self)];
        while let Some((above, message)) = waiting.pop() {
            for field in &message.fields {
                let name = format!("{above}{}", field.name);
                match &field.value {
                    _ if !field.seen.get() => found.push((name, field.line)),
                    Value::Message(inner) => waiting.push((format!("{name}."), inner)),
                    _ => {}
                }
            }
        }
        found.sort_by_key(|(_, line)| *line);
        found
    }
}
