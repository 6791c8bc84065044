//! From a TOML file and `--set` to a checked value, with errors that a person can act on.

use std::path::Path;

use serde::{Serialize, de::DeserializeOwned};
use toml::{Table, Value};

use super::wording;
use crate::fault::Fault;

/// Names what a table describes, where it may describe several things.
const KIND: &str = "kind";

/// Reads `path`, applies the overrides, and gives the typed config. Overrides of a `kind` come first
/// and put the other kind's keys away; the others follow in order.
///
/// # Errors
/// A [`Fault`] that names the file and line, or the override, or the key, and what to do about it.
pub fn load<T: DeserializeOwned + Serialize>(
    path: &Path,
    overrides: &[String],
) -> Result<T, Fault> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Fault::new(format!(
            "cannot read the config {}: {error}",
            path.display()
        ))
        .remedy("name an existing file with --config; examples are in configs/")
    })?;
    resolve(parse(&text, path)?, path, overrides)
}

/// Reads a config from text, without overrides.
///
/// # Errors
/// As [`load`]; `path` is only named in messages.
pub fn from_text<T: DeserializeOwned + Serialize>(text: &str, path: &Path) -> Result<T, Fault> {
    resolve(parse(text, path)?, path, &[])
}

fn resolve<T: DeserializeOwned + Serialize>(
    mut table: Table,
    path: &Path,
    overrides: &[String],
) -> Result<T, Fault> {
    let settings = overrides.iter().map(|text| Setting::parse(text));
    let settings = settings.collect::<Result<Vec<_>, _>>()?;
    // What is there without them says of which kind a table is that names none.
    let base = read::<T>(&table, None).ok();
    let base = base.and_then(|base| Table::try_from(base).ok());
    let (kinds, others): (Vec<_>, Vec<_>) = settings
        .iter()
        .partition(|setting| setting.key.last().is_some_and(|last| last == KIND));
    for setting in kinds.into_iter().chain(others) {
        setting.apply(&mut table)?;
    }
    let not_finite = |value: &Value| value.as_float().is_some_and(|number| !number.is_finite());
    let keys = keys(&table);
    if let Some(key) = keys
        .iter()
        .find(|key| at(&table, key).is_some_and(not_finite))
    {
        let here = place(key, path, &settings);
        return Err(Fault::new(format!("{here}: a finite number is needed")).remedy("correct it"));
    }
    read(&table, base.as_ref()).map_err(|error| {
        let message = one_line(&error.to_string());
        // The one without which, or with what stands there otherwise, all could be read.
        let guilty = keys.iter().rev().find(|key| {
            let mut rest = table.clone();
            remove(&mut rest, key);
            let mends = |table: &Table| read::<T>(table, base.as_ref()).is_ok();
            let usual = base.as_ref().and_then(|base| at(base, key));
            mends(&rest)
                || usual.is_some_and(|usual| {
                    replace(&mut rest, key, usual.clone());
                    mends(&rest)
                })
        });
        let named = wording::place(&message).map(|place| place.split('.').map(str::to_owned));
        let guilty = guilty.cloned().or(named.map(Iterator::collect));
        let here = guilty.map_or(path.display().to_string(), |key| {
            place(&key, path, &settings)
        });
        let fault = Fault::new(format!("{here}: {}", wording::plain(&message)));
        match wording::nearest_key(&message) {
            Some(key) => fault.remedy(format!("did you mean `{key}`?")),
            None => fault.remedy("correct the value; --dry-run without it prints every key"),
        }
    })
}

/// Reads a table; where it does not say of which kind something is, `base` does.
fn read<T: DeserializeOwned>(table: &Table, base: Option<&Table>) -> Result<T, toml::de::Error> {
    let plain = T::deserialize(Value::Table(table.clone()));
    let Some(base) = base.filter(|_| plain.is_err()) else {
        return plain;
    };
    let mut filled = table.clone();
    fill_kinds(&mut filled, base);
    T::deserialize(Value::Table(filled))
}

fn fill_kinds(table: &mut Table, base: &Table) {
    for (key, value) in table {
        if let (Some(value), Some(base)) = (
            value.as_table_mut(),
            base.get(key).and_then(Value::as_table),
        ) {
            if let Some(kind) = base.get(KIND).filter(|_| !value.contains_key(KIND)) {
                value.insert(KIND.to_owned(), kind.clone());
            }
            fill_kinds(value, base);
        }
    }
}

/// Every key of the table, those inside after those that hold them: the deepest last.
fn keys(table: &Table) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut level: Vec<(Vec<String>, &Table)> = vec![(Vec::new(), table)];
    while !level.is_empty() {
        let mut next = Vec::new();
        for (path, table) in level {
            for (key, value) in table {
                let path = [&path[..], std::slice::from_ref(key)].concat();
                next.extend(value.as_table().map(|inner| (path.clone(), inner)));
                all.push(path);
            }
        }
        level = next;
    }
    all
}

fn at<'a>(table: &'a Table, key: &[String]) -> Option<&'a Value> {
    let (last, parents) = key.split_last()?;
    let mut place = table;
    for parent in parents {
        place = place.get(parent)?.as_table()?;
    }
    place.get(last)
}

fn holder<'a>(table: &'a mut Table, parents: &[String]) -> Option<&'a mut Table> {
    let mut place = table;
    for parent in parents {
        place = place.get_mut(parent)?.as_table_mut()?;
    }
    Some(place)
}

fn remove(table: &mut Table, key: &[String]) {
    if let Some((last, parents)) = key.split_last()
        && let Some(holder) = holder(table, parents)
    {
        holder.remove(last);
    }
}

fn replace(table: &mut Table, key: &[String], value: Value) {
    if let Some((last, parents)) = key.split_last()
        && let Some(holder) = holder(table, parents)
    {
        holder.insert(last.clone(), value);
    }
}

/// Where a key was given: by the last override that sets it or what holds it, or in the file.
fn place(key: &[String], path: &Path, settings: &[Setting]) -> String {
    let sets = |setting: &&Setting| key.starts_with(&setting.key) || setting.key.starts_with(key);
    match settings.iter().rev().find(sets) {
        Some(setting) => format!("--set {}", setting.text),
        None => format!("{}: {}", path.display(), key.join(".")),
    }
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

/// One `a.b.c=value`. The value is TOML where it parses as such, else a string.
#[derive(Debug)]
struct Setting {
    text: String,
    key: Vec<String>,
    value: Value,
}

impl Setting {
    fn parse(text: &str) -> Result<Self, Fault> {
        let malformed = || {
            Fault::new(format!("--set {text}: not of the form KEY=VALUE"))
                .remedy("write, for example, --set trainer.learning_rate=1e-4")
        };
        let (key, value) = text.split_once('=').ok_or_else(malformed)?;
        let key: Vec<String> = key.trim().split('.').map(str::to_owned).collect();
        if key.iter().any(String::is_empty) {
            return Err(malformed());
        }
        Ok(Self {
            text: text.to_owned(),
            key,
            value: value_of(value.trim()),
        })
    }

    fn apply(&self, table: &mut Table) -> Result<(), Fault> {
        let Some((last, parents)) = self.key.split_last() else {
            return Ok(());
        };
        let mut place = table;
        for parent in parents {
            let entry = place
                .entry(parent.clone())
                .or_insert_with(|| Value::Table(Table::new()));
            place = entry.as_table_mut().ok_or_else(|| {
                Fault::new(format!(
                    "--set {}: `{parent}` is a value, not a section",
                    self.text
                ))
                .remedy("shorten the key")
            })?;
        }
        if last == KIND && place.get(KIND).is_some_and(|kind| *kind != self.value) {
            place.clear();
        }
        place.insert(last.clone(), self.value.clone());
        Ok(())
    }
}

fn value_of(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>().ok();
    let value = parsed.and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize, serde::Serialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        seed: u64,
        inner: Inner,
        #[serde(default)]
        keep: Keep,
    }

    #[derive(Debug, serde::Deserialize, serde::Serialize, PartialEq)]
    #[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
    enum Keep {
        All {},
        Newest { count: u64, share: f64 },
    }

    impl Default for Keep {
        fn default() -> Self {
            Self::Newest {
                count: 3,
                share: 0.5,
            }
        }
    }

    #[derive(Debug, serde::Deserialize, serde::Serialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        learning_rate: f64,
        name: String,
    }

    fn read(text: &str, overrides: &[&str]) -> Result<Outer, Fault> {
        let path = Path::new("x.toml");
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        resolve(parse(text, path)?, path, &overrides)
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
        assert_eq!((read.seed, read.inner), (2, inner));
    }

    #[test]
    fn one_key_of_a_kind_can_be_set_alone() {
        let file = format!("{GOOD}[keep]\nkind = \"newest\"\ncount = 7\nshare = 0.1\n");
        let newest = |count, share| Keep::Newest { count, share };
        let cases: [(&str, &[&str], Keep); 6] = [
            (&file, &["keep.count=9"], newest(9, 0.1)),
            (&file, &["keep.kind=all"], Keep::All {}),
            (
                &file,
                &["keep.share=0.2", "keep.kind=newest"],
                newest(7, 0.2),
            ),
            (GOOD, &["keep.kind=all"], Keep::All {}),
            (
                GOOD,
                &["keep={kind=\"newest\",count=1,share=1.0}"],
                newest(1, 1.0),
            ),
            (GOOD, &["keep.count=1", "keep.share=0.2"], newest(1, 0.2)),
        ];
        for (text, overrides, expected) in cases {
            assert_eq!(
                read(text, overrides).unwrap().keep,
                expected,
                "{overrides:?}"
            );
        }
    }

    const BAD: &str = "seed = 1\n[inner]\nlearning_rate = \"a\"\nname = \"a\"\n";

    /// A file, what is set over it, parts of the message.
    type Mistake<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

    const MISTAKES: &[Mistake<'static>] = &[
        (
            GOOD,
            &["inner.learning_rat=1"],
            &["did you mean `learning_rate`?", "--set inner."],
        ),
        (
            GOOD,
            &["sed=1"],
            &["did you mean `seed`?", "there is no key `sed`"],
        ),
        (
            GOOD,
            &["inner.learning_rate=fast"],
            &["--set inner.learning_rate=fast: a number is needed, not the text `fast`"],
        ),
        (
            BAD,
            &[],
            &["x.toml: inner.learning_rate: a number is needed, not the text `a`"],
        ),
        (
            GOOD,
            &["inner.learning_rate=nan"],
            &["--set inner.learning_rate=nan", "finite"],
        ),
        (
            GOOD,
            &["keep={kind=\"newest\",count=1,share=inf}"],
            &["--set keep=", "finite"],
        ),
        (
            GOOD,
            &["seed=-1"],
            &["--set seed=-1: a whole number of 0 or more is needed"],
        ),
        (
            GOOD,
            &["keep.kind=al"],
            &["--set keep.kind=al: `al` is none of", "did you mean `all`?"],
        ),
        (
            GOOD,
            &["keep.kind=all", "keep.count=1"],
            &["--set keep.count=1", "no key `count`"],
        ),
        (
            GOOD,
            &["keep.kind=newest", "keep.count=1.5"],
            &["--set keep.count=1.5"],
        ),
        (GOOD, &["seed.deep=1"], &["`seed` is a value"]),
        (GOOD, &["novalue"], &["KEY=VALUE"]),
        (GOOD, &["=1"], &["KEY=VALUE"]),
        ("seed = \n", &[], &["x.toml:1"]),
    ];

    #[test]
    fn mistakes_are_named_with_a_remedy() {
        for (text, overrides, expected) in MISTAKES {
            let message = read(text, overrides).unwrap_err().to_string();
            for part in *expected {
                assert!(message.contains(part), "{overrides:?}: {message}");
            }
            assert!(!message.contains('\n'), "one line: {message}");
            if message.contains("correct the TOML") {
                continue;
            }
            for jargon in ["invalid type", "expected", "f64", "u64", "enum"] {
                assert!(!message.contains(jargon), "{overrides:?}: {message}");
            }
        }
    }
}
