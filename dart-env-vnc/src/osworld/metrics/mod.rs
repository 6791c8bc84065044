//! OSWorld's metrics that compare text and JSON, natively.
//!
//! Meaning: xlang-ai/OSWorld, `desktop_env/evaluators/metrics/{general,vscode,gimp}.py`. Deviations:
//! what the agent left behind and cannot be read (no file, no JSON) scores 0, where the original
//! raises; a file is compared by its content where the original would compare its path; patterns
//! are those of the crate `regex` (no look-around, linear time).

mod equal;
mod json;
mod ratio;
mod text;

use serde_json::{Map, Value};

use super::{error::Fault, state::State};

/// One judgement: what there is, what there should be, settings.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) result: &'a State,
    pub(super) expected: &'a State,
    pub(super) options: &'a Map<String, Value>,
}

/// A rule that makes no sense; the task file is at fault, not the agent.
#[derive(Debug)]
struct BadRule(String);

type Score = Result<f64, BadRule>;
type Metric = fn(&Case<'_>) -> Score;

/// Every native metric, with the options that it knows; `...` for those that it ignores.
const METRICS: &[(&str, Metric, &[&str])] = &[
    ("check_config_status", text::check_config_status, &[]),
    (
        "check_direct_json_object",
        json::check_direct_json_object,
        &[],
    ),
    ("check_include_exclude", text::check_include_exclude, &[]),
    ("check_json", json::check_json, &["is_yaml"]),
    (
        "check_json_keybindings",
        json::check_json_keybindings,
        &["..."],
    ),
    ("check_json_settings", json::check_json_settings, &["..."]),
    ("check_list", text::check_list, &[]),
    (
        "compare_text_file",
        text::compare_text_file,
        &["ignore_blanks", "ignore_case", "..."],
    ),
    ("diff_text_file", ratio::diff_text_file, &[]),
    ("exact_match", equal::exact_match, &[]),
    ("file_contains", text::file_contains, &[]),
    ("is_in_list", equal::is_in_list, &[]),
    (
        "literal_match",
        equal::literal_match,
        &["ignore_case", "type", "..."],
    ),
    ("match_in_list", equal::match_in_list, &[]),
];

fn metric(name: &str) -> Option<Metric> {
    let found = METRICS.iter().find(|(known, _, _)| *known == name);
    found.map(|(_, metric, _)| *metric)
}

/// Whether `name` is judged here with these options.
pub(super) fn judges(name: &str, options: &Map<String, Value>) -> bool {
    metric(name).is_some() && unknown_option(name, options).is_none()
}

/// The score of one native metric, 0 to 1.
///
/// # Errors
/// [`Fault::Setting`] if the task's rules make no sense, [`Fault::Unsupported`] if there is no such metric.
pub(super) fn score(name: &str, case: &Case<'_>) -> Result<f64, Fault> {
    let metric = metric(name).ok_or_else(|| Fault::Unsupported(format!("metric {name}")))?;
    metric(case).map_err(|BadRule(why)| Fault::Setting(format!("metric {name}: {why}")))
}

/// What is wrong with the rules of a native metric, found without any result.
pub(super) fn complaint(name: &str, rules: &Value, options: &Map<String, Value>) -> Option<String> {
    let expected = State::Value(rules.clone());
    // A result that every metric reads to its end.
    let empty = [
        State::Value(Value::String(String::new())),
        State::Value(Value::Object(Map::new())),
    ];
    empty.iter().find_map(|result| {
        let case = Case {
            result,
            expected: &expected,
            options,
        };
        let BadRule(why) = metric(name)?(&case).err()?;
        Some(format!("metric {name}: {}", super::error::bounded(&why)))
    })
}

/// An option that would change what a native metric says and that is not known here.
pub(super) fn unknown_option(name: &str, options: &Map<String, Value>) -> Option<String> {
    let (_, _, known) = METRICS.iter().find(|(metric, _, _)| *metric == name)?;
    let is_known = |option: &str| known.contains(&option) || known.contains(&"...");
    let unknown = options.keys().find(|option| !is_known(option));
    let yaml = || options.get("is_yaml").filter(|value| truthy(value));
    let option = match unknown {
        Some(option) => option,
        None => yaml().map(|_| "is_yaml")?,
    };
    Some(format!(
        "metric {name} with {}",
        super::error::bounded(option)
    ))
}

/// Whether Python takes a value for true.
fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(object) => !object.is_empty(),
    }
}

/// Whether an option is set.
fn is_set(case: &Case<'_>, option: &str) -> bool {
    case.options.get(option).is_some_and(truthy)
}

/// The rules of a case.
fn rules<'a>(case: &Case<'a>) -> Result<&'a Map<String, Value>, BadRule> {
    match case.expected {
        State::Value(Value::Object(rules)) => Ok(rules),
        _ => Err(BadRule("what is expected is not an object of rules".into())),
    }
}

/// Most texts of one rule: each may be a pattern that is compiled and tried on every line.
const MAX_TEXTS: usize = 256;

/// One rule that has to be there.
fn rule<'a>(case: &Case<'a>, key: &str) -> Result<&'a Value, BadRule> {
    let rule = rules(case)?.get(key);
    rule.ok_or_else(|| BadRule(format!("the rule {key} is missing")))
}

/// A rule that is a list of texts; absent is empty.
fn texts<'a>(case: &Case<'a>, key: &str) -> Result<Vec<&'a str>, BadRule> {
    let bad = || BadRule(format!("the rule {key} is not a list of texts"));
    match rules(case)?.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() > MAX_TEXTS => {
            let why = format!("the rule {key} has more than {MAX_TEXTS} texts");
            Err(BadRule(why))
        }
        Some(Value::Array(list)) => list
            .iter()
            .map(|text| text.as_str().ok_or_else(bad))
            .collect(),
        Some(_) => Err(bad()),
    }
}

/// A pattern, bounded in size.
fn pattern(text: &str, flags: &[&str]) -> Result<regex::Regex, BadRule> {
    let mut builder = regex::RegexBuilder::new(text);
    builder.size_limit(1 << 20);
    for flag in flags {
        match *flag {
            "I" | "IGNORECASE" => builder.case_insensitive(true),
            "M" | "MULTILINE" => builder.multi_line(true),
            "S" | "DOTALL" => builder.dot_matches_new_line(true),
            other => {
                return Err(BadRule(format!(
                    "the flag {other} of a pattern is not known"
                )));
            }
        };
    }
    let shown = || text.chars().take(80).collect::<String>();
    builder
        .build()
        .map_err(|_| BadRule(format!("the pattern {:?} is not understood", shown())))
}

#[allow(clippy::unnecessary_wraps, reason = "what most metrics end with")]
fn passes(truth: bool) -> Score {
    Ok(if truth { 1.0 } else { 0.0 })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::osworld::state::File;
    use serde_json::json;

    /// Scores `metric` with what there is, what there should be and settings.
    pub(super) fn judge(metric: &str, result: &State, expected: &State, options: Value) -> f64 {
        let Value::Object(options) = options else {
            panic!("options are an object");
        };
        let case = Case {
            result,
            expected,
            options: &options,
        };
        score(metric, &case).unwrap()
    }

    pub(super) fn value(value: Value) -> State {
        State::Value(value)
    }

    pub(super) fn file(content: &str) -> State {
        State::File(File {
            name: "f".into(),
            content: content.as_bytes().to_vec(),
        })
    }

    #[test]
    fn nothing_scores_nothing_whatever_the_metric() {
        let rules = value(json!({
            "expected": {"a": 1}, "include": ["x"], "expect": [], "key": "a", "value": "b"
        }));
        for (name, _, _) in METRICS {
            let expected = match *name {
                "compare_text_file" | "diff_text_file" => file("x"),
                "match_in_list" | "file_contains" => value(json!({"expected": ["x"]})),
                "literal_match" => value(json!("x")),
                _ => rules.clone(),
            };
            let got = judge(name, &State::Missing, &expected, json!({}));
            assert_eq!(got, 0.0, "{name}");
        }
    }

    #[test]
    fn rules_without_sense_are_the_tasks_fault() {
        let complaint = |name, rules| complaint(name, &rules, &Map::new());
        for (name, rules) in [
            ("exact_match", json!({})),
            ("exact_match", json!([])),
            ("check_include_exclude", json!({"include": "x"})),
            ("check_list", json!({"expect": ["(?=x)"]})),
            (
                "check_json",
                json!({"expect": [{"key": ["a"], "method": "magic", "ref": 1}]}),
            ),
            (
                "check_json",
                json!({"expect": [{"key": ["a"], "method": "re", "ref": "("}]}),
            ),
            ("check_json_settings", json!({"expected": 3})),
            ("check_config_status", json!({"key": 3, "value": "x"})),
            ("file_contains", json!({})),
        ] {
            assert!(complaint(name, rules.clone()).is_some(), "{name} {rules}");
        }
        assert_eq!(complaint("exact_match", json!({"expected": "x"})), None);
        let many: Vec<String> = (0..300).map(|n| format!("p{n}")).collect();
        let rules: Vec<Value> = many
            .iter()
            .map(|key| json!({"key": [key], "method": "eq", "ref": 1}))
            .collect();
        assert!(complaint("check_list", json!({"expect": many})).is_some());
        assert!(complaint("check_json", json!({"expect": rules})).is_some());
    }

    #[test]
    fn options_that_are_not_known_are_named() {
        let unknown = |name, options: Value| unknown_option(name, options.as_object().unwrap());
        let why = unknown("check_json", json!({"is_yaml": true})).unwrap();
        assert_eq!(why, "metric check_json with is_yaml");
        assert_eq!(unknown("check_json", json!({"is_yaml": false})), None);
        assert!(unknown("exact_match", json!({"x": 1})).is_some());
        assert_eq!(unknown("compare_text_file", json!({"x": 1})), None);
        assert_eq!(unknown("compare_table", json!({"x": 1})), None);
    }
}
