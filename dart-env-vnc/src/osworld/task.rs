//! [`OsworldTask`]: one task file of OSWorld (xlang-ai/OSWorld, arXiv 2404.07972, Apache-2.0), read.
//!
//! Strict where the meaning depends on it, lenient where the copies in circulation differ: unknown
//! keys beside the known ones are kept by name, and those of the evaluator count as unsupported.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use dart_core::{Result, TaskId};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use super::{error::Fault, getter::Source, step::SetupStep};

/// Largest task file; the largest known one has 20 KiB.
const MAX_FILE: u64 = 1 << 20;

/// Most task files in one folder and its subfolders.
const MAX_FILES: usize = 10_000;

/// Largest sum of them, bytes; OSWorld's 369 have 1 MiB.
const MAX_TOTAL: u64 = 64 << 20;

/// How the scores of several metrics become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Conjunction {
    /// The mean, and 0 if one of them is 0.
    #[default]
    And,
    /// The best.
    Or,
}

/// One metric with what it compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The metric's name.
    pub func: String,
    /// What there is.
    pub result: Option<Source>,
    /// What there should be.
    pub expected: Option<Source>,
    /// Settings of the metric.
    pub options: Map<String, Value>,
}

/// How a task is judged.
#[derive(Clone, Debug, PartialEq)]
pub enum Evaluator {
    /// The task cannot be done: only saying so is right.
    Infeasible,
    /// What the desktop holds is compared.
    Checks {
        /// Steps before the comparison.
        postconfig: Vec<SetupStep>,
        /// At least one.
        checks: Vec<Check>,
        /// How several scores become one.
        conjunction: Conjunction,
        /// Keys that this project does not know.
        unknown: Vec<String>,
    },
}

/// One task.
#[derive(Clone, Debug, PartialEq)]
pub struct OsworldTask {
    /// Its name.
    pub id: TaskId,
    /// What the agent is to do.
    pub instruction: String,
    /// The snapshot that it starts from.
    pub snapshot: String,
    /// The programs it is about.
    pub related_apps: Vec<String>,
    /// Steps that set it up.
    pub config: Vec<SetupStep>,
    /// How it is judged.
    pub evaluator: Evaluator,
    /// Whether upstream reaches its web sites through a proxy.
    pub proxy: bool,
    /// Whether upstream needs an address that stays the same.
    pub fixed_ip: bool,
    /// Other keys, which change nothing here.
    pub other_keys: Vec<String>,
}

#[derive(Deserialize)]
struct RawTask {
    id: TaskId,
    instruction: String,
    #[serde(default)]
    snapshot: String,
    #[serde(default)]
    related_apps: Vec<String>,
    #[serde(default)]
    config: Vec<SetupStep>,
    evaluator: RawEvaluator,
    #[serde(default)]
    proxy: bool,
    #[serde(default)]
    fixed_ip: bool,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct RawEvaluator {
    func: OneOrMany<String>,
    #[serde(default)]
    conj: Conjunction,
    #[serde(default)]
    result: Option<OneOrMany<Option<Source>>>,
    #[serde(default)]
    expected: Option<OneOrMany<Option<Source>>>,
    #[serde(default)]
    options: Option<OneOrMany<Option<Map<String, Value>>>>,
    #[serde(default)]
    postconfig: Vec<SetupStep>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// One, or a list. Written by hand: serde's untagged enums hide what is wrong inside.
struct OneOrMany<T>(Vec<T>, bool);

impl<'de, T: de::DeserializeOwned> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = |value| serde_json::from_value::<T>(value).map_err(de::Error::custom);
        match Value::deserialize(from)? {
            Value::Array(values) => {
                let values = values.into_iter().map(read).collect::<Result<_, _>>()?;
                Ok(Self(values, true))
            }
            one => Ok(Self(vec![read(one)?], false)),
        }
    }
}

/// One entry for each metric; an empty object is none.
fn entries<T>(
    key: &str,
    given: Option<OneOrMany<Option<T>>>,
    metrics: usize,
) -> Result<Vec<Option<T>>, String> {
    let Some(OneOrMany(mut values, list)) = given else {
        return Ok((0..metrics).map(|_| None).collect());
    };
    // One getter beside a list of metrics, or a list beside one metric, says nothing certain.
    if values.len() != metrics || (metrics > 1 && !list) {
        return Err(format!(
            "evaluator: {} of {key} for {metrics} of func",
            values.len()
        ));
    }
    values.truncate(metrics);
    Ok(values)
}

impl TryFrom<RawEvaluator> for Evaluator {
    type Error = String;

    fn try_from(raw: RawEvaluator) -> Result<Self, String> {
        let OneOrMany(names, _) = raw.func;
        if names.iter().any(|name| name == "infeasible") {
            return match names.len() {
                1 => Ok(Self::Infeasible),
                _ => Err("evaluator: infeasible stands beside other metrics".into()),
            };
        }
        if names.is_empty() || names.iter().any(String::is_empty) {
            return Err("evaluator: func is empty".into());
        }
        let results = entries("result", raw.result, names.len())?;
        let expected = entries("expected", raw.expected, names.len())?;
        let options = entries("options", raw.options, names.len())?;
        let checks = names.into_iter().zip(results).zip(expected).zip(options);
        let checks = checks.map(|(((func, result), expected), options)| Check {
            func,
            result,
            expected,
            options: options.unwrap_or_default(),
        });
        let unknown = raw.other.into_keys().filter(|key| !key.starts_with('_'));
        Ok(Self::Checks {
            postconfig: raw.postconfig,
            checks: checks.collect(),
            conjunction: raw.conj,
            unknown: unknown.collect(),
        })
    }
}

impl OsworldTask {
    /// Reads the task in `text`; `file` names it in errors.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the file and what is wrong with it.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let value = serde_json::from_str(text).map_err(|error| format_fault(file, &error))?;
        Self::from_value(file, value)
    }

    /// Reads the task in `value`; `file` names it in errors.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn from_value(file: &str, value: Value) -> Result<Self> {
        let raw: RawTask =
            serde_json::from_value(value).map_err(|error| format_fault(file, &error))?;
        // It is the name of a folder of reference files, too.
        if raw.id.as_str().starts_with('.') {
            return Err(format_fault(file, &"the id begins with a dot").into());
        }
        if raw.instruction.trim().is_empty() {
            return Err(format_fault(file, &"the instruction is empty").into());
        }
        let evaluator = Evaluator::try_from(raw.evaluator);
        let evaluator = evaluator.map_err(|what| format_fault(file, &what))?;
        Ok(Self {
            id: raw.id,
            instruction: raw.instruction,
            snapshot: raw.snapshot,
            related_apps: raw.related_apps,
            config: raw.config,
            evaluator,
            proxy: raw.proxy,
            fixed_ip: raw.fixed_ip,
            other_keys: raw.other.into_keys().collect(),
        })
    }
}

fn format_fault(file: &str, what: &dyn std::fmt::Display) -> Fault {
    Fault::Format {
        file: file.to_owned(),
        what: super::error::bounded(&what.to_string()),
    }
}

/// A task with the file it comes from.
#[derive(Clone, Debug)]
pub struct TaskFile {
    /// The file.
    pub path: PathBuf,
    /// The name of its folder, by which OSWorld sorts its tasks.
    pub domain: String,
    /// What stands in it.
    pub value: Value,
    /// The same, read.
    pub task: OsworldTask,
}

impl TaskFile {
    /// Reads one file.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the file.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let cannot = |cause| Fault::Read {
            what: name.clone(),
            cause,
        };
        let mut text = String::new();
        let file = File::open(path).map_err(cannot)?;
        let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
        if read.map_err(cannot)? as u64 > MAX_FILE {
            return Err(format_fault(&name, &"it is larger than 1 MiB").into());
        }
        let value: Value =
            serde_json::from_str(&text).map_err(|error| format_fault(&name, &error))?;
        let folder = path.parent().and_then(Path::file_name);
        Ok(Self {
            task: OsworldTask::from_value(&name, value.clone())?,
            domain: folder.map_or_else(|| "osworld".into(), |name| name.display().to_string()),
            path: path.to_owned(),
            value,
        })
    }

    /// Reads every `.json` file in `folder` and its subfolders, in the order of their paths.
    /// Symbolic links are not followed.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the first file that cannot be read, or two
    /// that have the same id.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>> {
        let mut paths = Vec::new();
        collect(folder, 0, &mut paths)?;
        paths.sort();
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
        if paths.iter().map(size).sum::<u64>() > MAX_TOTAL {
            let (folder, most) = (folder.display(), MAX_TOTAL >> 20);
            let message = format!("{folder} holds more than {most} MiB of task files");
            return Err(Fault::Setting(message).into());
        }
        let files: Vec<Self> = paths
            .iter()
            .map(|path| Self::read(path))
            .collect::<Result<_>>()?;
        distinct(&files)?;
        Ok(files)
    }
}

/// Results of two tasks with one id would be taken for results of one.
fn distinct(files: &[TaskFile]) -> Result<(), Fault> {
    let mut seen = BTreeMap::new();
    for file in files {
        if let Some(other) = seen.insert(file.task.id.as_str(), &file.path) {
            let (name, other) = (file.path.display().to_string(), other.display());
            let what = format!("its id {} is that of {other}", file.task.id);
            return Err(format_fault(&name, &what));
        }
    }
    Ok(())
}

/// Adds the task files below `folder`.
fn collect(folder: &Path, depth: u32, paths: &mut Vec<PathBuf>) -> Result<(), Fault> {
    let cannot = |cause| Fault::Read {
        what: folder.display().to_string(),
        cause,
    };
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let kind = entry.file_type().map_err(cannot)?;
        let path = entry.path();
        if kind.is_dir() && depth < 4 {
            collect(&path, depth + 1, paths)?;
        } else if kind.is_file() && path.extension().is_some_and(|ext| ext == "json") {
            paths.push(path);
        }
        if paths.len() > MAX_FILES {
            return Err(Fault::Setting(format!(
                "{} holds more than {MAX_FILES} task files",
                folder.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(evaluator: &Value) -> Result<OsworldTask> {
        let task = json!({"id": "a", "instruction": "b", "evaluator": evaluator, "new_key": 1});
        OsworldTask::from_value("a.json", task)
    }

    fn rule() -> Value {
        json!({"type": "rule", "rules": {"expected": "x"}})
    }

    #[test]
    fn one_metric_or_several() {
        let task = with(&json!({"func": "exact_match", "result": rule(), "expected": rule()}));
        let task = task.unwrap();
        assert_eq!(task.other_keys, ["new_key"]);
        let Evaluator::Checks { checks, .. } = task.evaluator else {
            panic!("checks");
        };
        assert_eq!(checks.len(), 1);
        let several = json!({
            "func": ["a", "b"], "conj": "or", "result": [rule(), null],
            "expected": [null, rule()], "options": [{}, {"x": 1}], "note": 1, "_note": 2
        });
        let Evaluator::Checks {
            checks,
            conjunction,
            unknown,
            ..
        } = with(&several).unwrap().evaluator
        else {
            panic!("checks");
        };
        assert_eq!(conjunction, Conjunction::Or);
        assert!(checks[0].expected.is_none() && checks[1].result.is_none());
        assert_eq!(checks[1].options["x"], 1);
        assert_eq!(unknown, ["note"]);
    }

    #[test]
    fn what_cannot_be_judged_is_refused_with_the_files_name() {
        for bad in [
            json!({"func": []}),
            json!({"func": ""}),
            json!({"func": ["a", "b"], "result": rule()}),
            json!({"func": ["a", "b"], "result": [rule()]}),
            json!({"func": "a", "result": []}),
            json!({"func": "a", "conj": "xor"}),
            json!({"func": ["infeasible", "a"]}),
            json!({"func": "a", "result": {"path": "x"}}),
            json!({"func": "a", "postconfig": [{"type": "sleep"}]}),
            json!({}),
        ] {
            let error = with(&bad).unwrap_err();
            assert_eq!(error.kind(), dart_core::ErrorKind::Config, "{bad}");
            assert!(error.to_string().contains("a.json"), "{error}");
        }
        let infeasible = with(&json!({"func": "infeasible"})).unwrap();
        assert_eq!(infeasible.evaluator, Evaluator::Infeasible);
    }

    fn infeasible(id: &str) -> Value {
        json!({"id": id, "instruction": "b", "evaluator": {"func": "infeasible"}})
    }

    #[test]
    fn a_name_that_is_a_path_is_refused() {
        for id in ["../a", "a/b", "..", ".", ".hidden", "", "a\0"] {
            assert!(
                OsworldTask::from_value("a.json", infeasible(id)).is_err(),
                "{id}"
            );
        }
    }

    #[test]
    fn a_text_that_is_nested_or_broken_is_refused_with_the_files_name() {
        let deep = |open: &str, close: &str| {
            let rules = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
            format!(r#"{{"id":"a","instruction":"b","evaluator":{rules}}}"#)
        };
        for text in [
            deep("[", "]"),
            deep(r#"{"func":"#, "}"),
            "[".repeat(1 << 20),
            String::new(),
            "null".into(),
            "{\"id\": 1e999}".into(),
            format!("{}\u{0}", infeasible("a")),
        ] {
            let error = OsworldTask::parse("a.json", &text).unwrap_err();
            assert_eq!(error.kind(), dart_core::ErrorKind::Config);
            let said = error.to_string();
            assert!(said.contains("a.json") && said.len() < 500, "{said}");
        }
    }

    #[test]
    fn a_folder_is_read_within_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text);
        write("a.json", &infeasible("one").to_string()).unwrap();
        // Neither other files, nor links, nor pipes.
        write("b.txt", "not a task").unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("c.json")).unwrap();
        assert_eq!(TaskFile::read_all(folder.path()).unwrap().len(), 1);
        write("d.json", &infeasible("one").to_string()).unwrap();
        let said = TaskFile::read_all(folder.path()).unwrap_err().to_string();
        assert!(said.contains("d.json") && said.contains("a.json"), "{said}");
        write("d.json", &" ".repeat((1 << 20) + 1)).unwrap();
        let said = TaskFile::read_all(folder.path()).unwrap_err().to_string();
        assert!(said.contains("larger than 1 MiB"), "{said}");
        for n in 0..65 {
            // Without content: what a file says of its size is enough.
            let file = File::create(folder.path().join(format!("e{n}.json")));
            file.unwrap().set_len(1 << 20).unwrap();
        }
        let said = TaskFile::read_all(folder.path()).unwrap_err().to_string();
        assert!(said.contains("more than 64 MiB"), "{said}");
    }
}
