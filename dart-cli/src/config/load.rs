//! From a TOML file and `--set` to a checked value, with errors that a person can act on.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::fault::Fault;

/// Reads `path`, applies the overrides in order, and gives the typed config.
///
/// # Errors
/// A [`Fault`] that names the file, line or key, and what to do about it.
pub fn load<T: DeserializeOwned>(path: &Path, overrides: &[String]) -> Result<T, Fault> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Fault::new(format!(
            "cannot read the config {}: {error}",
            path.display()
        ))
        .remedy("name an existing file with --config; examples are in configs/")
    })?;
    let mut table = parse(&text, path)?;
    for text in overrides {
        apply(&mut table, text)?;
    }
    typed(table, path)
}

/// Reads a config from text, without overrides.
///
/// # Errors
/// As [`load`]; `path` is only named in messages.
pub fn from_text<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, Fault> {
    typed(parse(text, path)?, path)
}

fn parse(text: &str, path: &Path) -> Result<Table, Fault> {
    text.parse::<Table>().map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let line = text[..offset.min(text.len())].matches('\n').count() + 1;
        Fault::new(format!(
            "{}:{line}: {}",
            path.display(),
            one_line(error.message())
        ))
        .remedy("correct the TOML there")
    })
}

fn typed<T: DeserializeOwned>(table: Table, path: &Path) -> Result<T, Fault> {
    T::deserialize(Value::Table(table)).map_err(|error| {
        let message = one_line(&error.to_string());
        let fault = Fault::new(format!("{}: {message}", path.display()));
        match nearest_key(&message) {
            Some(key) => fault.remedy(format!("did you mean `{key}`?")),
            None => fault.remedy("correct the value; --dry-run without it prints every key"),
        }
    })
}

/// Applies one `a.b.c=value`. The value is TOML where it parses as such, else a string.
fn apply(table: &mut Table, text: &str) -> Result<(), Fault> {
    let malformed = || {
        Fault::new(format!("--set {text}: not of the form KEY=VALUE"))
            .remedy("write, for example, --set trainer.learning_rate=1e-4")
    };
    let (key, value) = text.split_once('=').ok_or_else(malformed)?;
    let parts: Vec<&str> = key.trim().split('.').collect();
    let Some((last, parents)) = parts.split_last() else {
        return Err(malformed());
    };
    if parts.iter().any(|part| part.is_empty()) {
        return Err(malformed());
    }
    let mut place = table;
    for parent in parents {
        let entry = place
            .entry((*parent).to_owned())
            .or_insert_with(|| Value::Table(Table::new()));
        place = entry.as_table_mut().ok_or_else(|| {
            Fault::new(format!(
                "--set {text}: `{parent}` is a value, not a section"
            ))
            .remedy("shorten the key")
        })?;
    }
    place.insert((*last).to_owned(), value_of(value.trim()));
    Ok(())
}

fn value_of(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>().ok();
    let value = parsed.and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The known key closest to the unknown one in serde's message, if it is close.
fn nearest_key(message: &str) -> Option<&str> {
    let wrong_kind = ["unknown field `", "unknown variant `"];
    let start = wrong_kind
        .iter()
        .find_map(|kind| message.find(kind).map(|at| at + kind.len()))?;
    let mut quoted = message[start..].split('`').step_by(2);
    let unknown = quoted.next()?;
    quoted
        .filter(|known| !known.is_empty() && !known.contains(' '))
        .map(|known| (strsim::jaro_winkler(unknown, known), known))
        .filter(|(similarity, _)| *similarity > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        seed: u64,
        inner: Inner,
    }

    #[derive(Debug, serde::Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        learning_rate: f64,
        name: String,
    }

    fn read(text: &str, overrides: &[&str]) -> Result<Outer, Fault> {
        let mut table = parse(text, Path::new("x.toml"))?;
        for text in overrides {
            apply(&mut table, text)?;
        }
        typed(table, Path::new("x.toml"))
    }

    const GOOD: &str = "seed = 1\n[inner]\nlearning_rate = 0.1\nname = \"a\"\n";

    #[test]
    fn overrides_win() {
        let read = read(
            GOOD,
            &["seed=2", "inner.learning_rate = 1e-4", "inner.name=b c"],
        )
        .unwrap();
        let inner = Inner {
            learning_rate: 1e-4,
            name: "b c".into(),
        };
        assert_eq!(read, Outer { seed: 2, inner });
    }

    #[test]
    fn mistakes_are_named_with_a_remedy() {
        let cases: [(&str, &[&str], &str); 7] = [
            (
                GOOD,
                &["inner.learning_rat=1"],
                "did you mean `learning_rate`?",
            ),
            (GOOD, &["sed=1"], "did you mean `seed`?"),
            (GOOD, &["inner.learning_rate=fast"], "inner.learning_rate"),
            (GOOD, &["seed.deep=1"], "`seed` is a value"),
            (GOOD, &["novalue"], "KEY=VALUE"),
            (GOOD, &["=1"], "KEY=VALUE"),
            ("seed = \n", &[], "x.toml:1"),
        ];
        for (text, overrides, expected) in cases {
            let message = read(text, overrides).unwrap_err().to_string();
            assert!(message.contains(expected), "{overrides:?}: {message}");
            assert!(!message.contains('\n'), "one line: {message}");
        }
    }
}
