//! Metrics on JSON.

use serde_json::{Map, Value};

use super::{
    BadRule, Case, Score, State,
    equal::{contains, equal, order},
    passes, pattern, rule, rules,
};

/// Most rules of one metric.
const MAX_RULES: usize = 256;

/// What lies at the end of a path, in the cases that Python's `value[key]` has.
enum Found<'a> {
    Value(&'a Value),
    /// `KeyError` or `TypeError`: there is no such key, or nothing that has keys.
    Absent,
    /// `IndexError`, which ends the original's comparison.
    OutOfRange,
}

/// One step down: a key of an object or an index of a list, negative from its end.
fn descend<'a>(value: &'a Value, key: &Value) -> Found<'a> {
    match (value, key) {
        (Value::Object(object), Value::String(key)) => {
            object.get(key).map_or(Found::Absent, Found::Value)
        }
        (Value::Array(list), Value::Number(index)) => {
            let at = index.as_i64().and_then(|index| {
                let from_start = usize::try_from(index).ok();
                let from_end = usize::try_from(index.unsigned_abs()).ok();
                from_start.or_else(|| list.len().checked_sub(from_end?))
            });
            let found = at.and_then(|at| list.get(at));
            found.map_or(Found::OutOfRange, Found::Value)
        }
        _ => Found::Absent,
    }
}

fn follow<'a>(mut value: &'a Value, path: &[Value]) -> Found<'a> {
    for key in path {
        match descend(value, key) {
            Found::Value(next) => value = next,
            lost => return lost,
        }
    }
    Found::Value(value)
}

/// Whether `value` is as a rule says; `None` where Python would raise because the two cannot be
/// compared. The rule is read to its end whatever the value.
fn matches(value: &Value, rule: &Map<String, Value>) -> Result<Option<bool>, BadRule> {
    let missing = |name: &str| BadRule(format!("a rule has no {name}"));
    let method = rule.get("method").and_then(Value::as_str);
    let method = method.ok_or_else(|| missing("method"))?;
    let reference = rule.get("ref").ok_or_else(|| missing("ref"))?;
    if method == "re" || method.starts_with("re.") {
        let flags: Vec<&str> = method.split('.').skip(1).collect();
        let text = reference.as_str().ok_or_else(|| missing("pattern"))?;
        let pattern = pattern(text, &flags)?;
        return Ok(value.as_str().map(|text| pattern.is_match(text)));
    }
    if let Some(distance) = method.strip_prefix("approx:") {
        let distance = distance.parse::<f64>().map_err(|_| missing("distance"))?;
        let reference = reference.as_f64().ok_or_else(|| missing("number"))?;
        return Ok(Some(near(value, reference, distance)));
    }
    let ordered = |accept: fn(std::cmp::Ordering) -> bool| order(value, reference).map(accept);
    Ok(match method {
        "eq" => Some(equal(value, reference)),
        "ne" => Some(!equal(value, reference)),
        "lt" => ordered(std::cmp::Ordering::is_lt),
        "le" => ordered(std::cmp::Ordering::is_le),
        "gt" => ordered(std::cmp::Ordering::is_gt),
        "ge" => ordered(std::cmp::Ordering::is_ge),
        other => return Err(BadRule(format!("the method {other} is not known"))),
    })
}

fn near(value: &Value, reference: f64, distance: f64) -> bool {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
        other => other.as_f64(),
    };
    number.is_some_and(|number: f64| (number - reference).abs() <= distance)
}

/// Whether one rule holds of `result`. Of what should not be (`wanted` is false), a value that is
/// not there counts as null, and what cannot be compared does not hold either way.
fn holds(result: &Value, rule: &Map<String, Value>, wanted: bool) -> Result<bool, BadRule> {
    let path = rule.get("key").and_then(Value::as_array);
    let path = path.filter(|path| path.iter().all(|key| key.is_string() || key.is_i64()));
    let path = path.ok_or_else(|| BadRule("a rule has no key, a list of names".into()))?;
    let found = follow(result, path);
    let value = match found {
        Found::Value(value) => value,
        Found::Absent | Found::OutOfRange => &Value::Null,
    };
    let matched = matches(value, rule)?;
    let readable = match found {
        Found::Value(_) => true,
        Found::Absent => !wanted,
        Found::OutOfRange => false,
    };
    Ok(readable && matched == Some(wanted))
}

/// Whether the rules under `name` hold of `result`: all of them, or none of them.
fn hold(case: &Case<'_>, result: &Value, name: &str, wanted: bool) -> Result<bool, BadRule> {
    let bad = || BadRule(format!("{name} is not a list of rules"));
    let list = match rules(case)?.get(name) {
        None => return Ok(true),
        Some(Value::Array(list)) => list,
        Some(Value::Object(empty)) if empty.is_empty() => return Ok(true),
        Some(_) => return Err(bad()),
    };
    if list.len() > MAX_RULES {
        return Err(BadRule(format!("{name} has more than {MAX_RULES} rules")));
    }
    let mut all = true;
    for rule in list {
        all &= holds(result, rule.as_object().ok_or_else(bad)?, wanted)?;
    }
    Ok(all)
}

pub(super) fn check_json(case: &Case<'_>) -> Score {
    let result = case.result.json();
    let shown = result.clone().unwrap_or_default();
    let expect = hold(case, &shown, "expect", true)?;
    let unexpect = hold(case, &shown, "unexpect", false)?;
    passes(result.is_some() && expect && unexpect)
}

/// What a command printed as an object: JSON, or as Python prints one.
fn object(state: &State) -> Option<Map<String, Value>> {
    let value = match state {
        State::Value(Value::Object(object)) => return Some(object.clone()),
        other => {
            let text = other.text()?;
            let text = text.trim();
            serde_json::from_str(text)
                .or_else(|_| serde_json::from_str(&text.replace('\'', "\"")))
                .ok()?
        }
    };
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

pub(super) fn check_direct_json_object(case: &Case<'_>) -> Score {
    let expected = rule(case, "expected")?.as_object();
    let expected = expected.ok_or_else(|| BadRule("expected is not an object".into()))?;
    let within = rules(case)?
        .get("expect_in_result")
        .and_then(Value::as_bool);
    let Some(result) = object(case.result) else {
        return Ok(0.0);
    };
    // Written into rules by getters that could not find out what is expected.
    if expected
        .values()
        .any(|value| value == "__EVALUATION_FAILED__")
    {
        return Ok(0.0);
    }
    let holds = |(key, wanted): (&String, &Value)| {
        let found = result.get(key);
        if within == Some(true) {
            found.is_some_and(|found| part_of(found, wanted))
        } else {
            equal(found.unwrap_or(&Value::Null), wanted)
        }
    };
    passes(expected.iter().all(holds))
}

/// Whether `wanted` is in `found`; of a list, one is enough.
fn part_of(found: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Array(any) => any.iter().any(|one| match found {
            Value::Array(_) => contains(found, one),
            Value::String(_) => equal(found, one),
            _ => false,
        }),
        Value::String(_) => contains(found, wanted),
        _ => false,
    }
}

pub(super) fn check_json_settings(case: &Case<'_>) -> Score {
    let expected = rule(case, "expected")?.as_object();
    let expected = expected.ok_or_else(|| BadRule("expected is not an object".into()))?;
    let Some(Value::Object(result)) = case.result.json() else {
        return Ok(0.0);
    };
    let same = |(key, value)| result.get(key).is_some_and(|found| equal(found, value));
    passes(expected.iter().all(same))
}

/// A list of key bindings; the first line may be a comment.
pub(super) fn check_json_keybindings(case: &Case<'_>) -> Score {
    let expected = rule(case, "expected")?;
    let whole = case.result.json();
    let rest = || {
        let text = case.result.text()?;
        serde_json::from_str(text.split_once('\n')?.1).ok()
    };
    let list = whole.filter(Value::is_array).or_else(rest);
    passes(list.is_some_and(|list| list.is_array() && contains(&list, expected)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, judge, value};
    use serde_json::{Value, json};

    #[test]
    fn rules_on_paths() {
        let result = file(r#"{"a": {"b": [1, "xYz"]}, "n": "2.5"}"#);
        let judge = |rules: Value| judge("check_json", &result, &value(rules), json!({}));
        let one = |key: Value, method: &str, reference: Value| {
            judge(json!({"expect": [{"key": key, "method": method, "ref": reference}]}))
        };
        assert_eq!(one(json!(["a", "b", 0]), "eq", json!(1.0)), 1.0);
        assert_eq!(one(json!(["a", "b", 1]), "re", json!("y")), 0.0);
        assert_eq!(one(json!(["a", "b", 1]), "re.I", json!("y")), 1.0);
        assert_eq!(one(json!(["a", "c"]), "ne", json!(1)), 0.0);
        assert_eq!(one(json!(["n"]), "approx:0.5", json!(3)), 1.0);
        assert_eq!(one(json!(["a", "b", 0]), "le", json!(1)), 1.0);
        assert_eq!(one(json!(["a", "b", 0]), "lt", json!(1)), 0.0);
        let unexpect = |key: &str| {
            judge(json!({"unexpect": [{"key": ["a", key, 0], "method": "eq", "ref": 1}]}))
        };
        assert_eq!((unexpect("b"), unexpect("c")), (0.0, 1.0));
    }

    /// What Python does where a path ends early or two values cannot be compared (values computed
    /// with desktop_env 1.0.2).
    #[test]
    fn rules_on_what_is_not_there() {
        let result = file(r#"{"a": [1, 2], "s": "x", "n": null}"#);
        let one = |list: &str, key: Value, method: &str, reference: Value| {
            let rules = json!({list: [{"key": key, "method": method, "ref": reference}]});
            judge("check_json", &result, &value(rules), json!({}))
        };
        assert_eq!(one("expect", json!(["a", -1]), "eq", json!(2)), 1.0);
        assert_eq!(one("expect", json!(["a", -3]), "eq", json!(2)), 0.0);
        // A key that is not there is not even null for what is expected ...
        assert_eq!(one("expect", json!(["z"]), "eq", json!(null)), 0.0);
        // ... and null for what is not.
        assert_eq!(one("unexpect", json!(["z"]), "eq", json!(null)), 0.0);
        assert_eq!(one("unexpect", json!(["z"]), "ne", json!(1)), 0.0);
        assert_eq!(one("unexpect", json!(["z"]), "eq", json!(1)), 1.0);
        assert_eq!(one("unexpect", json!(["a", 5]), "eq", json!(1)), 0.0);
        // Values that cannot be compared satisfy nothing.
        for list in ["expect", "unexpect"] {
            assert_eq!(one(list, json!(["a", 0]), "re", json!("1")), 0.0);
            assert_eq!(one(list, json!(["n"]), "re", json!("x")), 0.0);
            assert_eq!(one(list, json!(["s"]), "lt", json!(1)), 0.0);
        }
        assert_eq!(one("unexpect", json!(["s"]), "approx:1", json!(1)), 1.0);
    }

    #[test]
    fn no_json_scores_nothing() {
        let rules = value(json!({"unexpect": [{"key": ["a"], "method": "eq", "ref": 1}]}));
        assert_eq!(judge("check_json", &file("{"), &rules, json!({})), 0.0);
    }

    #[test]
    fn objects_as_python_prints_them() {
        let printed = value(json!(" {'a': 'x', 'b': 1, 'c': ['p', 'q']}\n"));
        let judge = |rules| {
            judge(
                "check_direct_json_object",
                &printed,
                &value(rules),
                json!({}),
            )
        };
        assert_eq!(judge(json!({"expected": {"a": "x", "b": 1}})), 1.0);
        assert_eq!(judge(json!({"expected": {"a": "y"}})), 0.0);
        assert_eq!(judge(json!({"expected": {"d": null}})), 1.0);
        let within = |expected| judge(json!({"expected": expected, "expect_in_result": true}));
        assert_eq!(within(json!({"a": "x", "c": ["z", "q"]})), 1.0);
        assert_eq!(within(json!({"c": ["z"]})), 0.0);
        assert_eq!(within(json!({"b": 1})), 0.0);
        assert_eq!(within(json!({"b": [1]})), 0.0);
        let failed = json!({"expected": {"d": null, "a": "__EVALUATION_FAILED__"}});
        assert_eq!(judge(failed), 0.0);
    }

    #[test]
    fn settings_and_key_bindings() {
        let rules = value(json!({"expected": {"a": 50}}));
        assert_eq!(
            judge(
                "check_json_settings",
                &file("{\"a\":50,\"b\":1}"),
                &rules,
                json!({})
            ),
            1.0
        );
        assert_eq!(
            judge(
                "check_json_settings",
                &file("{\"a\":51}"),
                &rules,
                json!({})
            ),
            0.0
        );
        let rules = value(json!({"expected": {"key": "ctrl+j"}}));
        let judge = |text| judge("check_json_keybindings", &file(text), &rules, json!({}));
        assert_eq!(judge("// comment\n[{\"key\": \"ctrl+j\"}]"), 1.0);
        assert_eq!(judge("[{\"key\": \"ctrl+j\", \"x\": 1}]"), 0.0);
    }
}
