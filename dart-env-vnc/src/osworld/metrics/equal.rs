//! Metrics that ask whether two values are equal, and equality as Python has it.

use serde_json::Value;

use super::{BadRule, Case, Score, State, is_set, passes, rule};

/// A number, or a truth value as the number it equals.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
        _ => None,
    }
}

/// Python's `==`: 1, 1.0 and True are equal.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| equal(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            let same = |(key, l): (&String, &Value)| right.get(key).is_some_and(|r| equal(l, r));
            left.len() == right.len() && left.iter().all(same)
        }
        (Value::Number(left), Value::Number(right)) if !left.is_f64() && !right.is_f64() => {
            left == right
        }
        _ => match (number(left), number(right)) {
            (Some(left), Some(right)) => left == right,
            _ => left == right,
        },
    }
}

/// Python's `in`: a part of a text, an element of a list, a key of an object.
pub(super) fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::String(whole), Value::String(part)) => whole.contains(part.as_str()),
        (Value::Array(list), part) => list.iter().any(|element| equal(element, part)),
        (Value::Object(object), Value::String(key)) => object.contains_key(key),
        _ => false,
    }
}

/// Python's order of two numbers or two texts.
pub(super) fn order(left: &Value, right: &Value) -> Option<std::cmp::Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => number(left)?.partial_cmp(&number(right)?),
    }
}

/// A result as a value: of a file, its text; of what is not there, `None` as in the original.
pub(super) fn plain(state: &State) -> Option<Value> {
    match state {
        State::Value(value) => Some(value.clone()),
        State::Missing => Some(Value::Null),
        other => other.text().map(Value::String),
    }
}

pub(super) fn exact_match(case: &Case<'_>) -> Score {
    let expected = rule(case, "expected")?;
    passes(plain(case.result).is_some_and(|result| equal(&result, expected)))
}

pub(super) fn match_in_list(case: &Case<'_>) -> Score {
    let expected = rule(case, "expected")?;
    passes(plain(case.result).is_some_and(|result| contains(expected, &result)))
}

pub(super) fn is_in_list(case: &Case<'_>) -> Score {
    let expected = rule(case, "expected")?;
    passes(plain(case.result).is_some_and(|result| contains(&result, expected)))
}

/// Python's `str` of a value that is not a container.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        other => other.to_string(),
    }
}

pub(super) fn literal_match(case: &Case<'_>) -> Score {
    let ignore = is_set(case, "ignore_case");
    let fold = |text: String| if ignore { text.to_lowercase() } else { text };
    let expected = plain(case.expected).ok_or_else(|| BadRule("nothing is expected".into()))?;
    let kind = case.options.get("type").and_then(Value::as_str);
    let result = plain(case.result).filter(|result| !result.is_null());
    match kind.unwrap_or("str") {
        "str" => {
            passes(result.is_some_and(|result| fold(shown(&result)) == fold(shown(&expected))))
        }
        "list" => {
            let (Some(Value::Array(result)), Value::Array(expected)) = (result, expected) else {
                return Ok(0.0);
            };
            let folded = |list: Vec<Value>| list.iter().map(|v| fold(shown(v))).collect::<Vec<_>>();
            passes(folded(result) == folded(expected))
        }
        other => Err(BadRule(format!("the type {other} is not known"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, judge, value};
    use super::*;
    use serde_json::json;

    #[test]
    fn equality_is_pythons() {
        assert!(equal(&json!([1, {"a": true}]), &json!([1.0, {"a": 1}])));
        assert!(!equal(&json!("1"), &json!(1)));
        assert!(!equal(&json!({"a": 1}), &json!({"a": 1, "b": 2})));
        assert!(!equal(&json!(null), &json!(false)));
        assert!(!equal(&json!(i64::MAX), &json!(i64::MAX - 1)));
    }

    #[test]
    fn exact_and_membership() {
        let rules = value(json!({"expected": "1\n"}));
        assert_eq!(
            judge("exact_match", &value(json!("1\n")), &rules, json!({})),
            1.0
        );
        assert_eq!(
            judge("exact_match", &value(json!("1")), &rules, json!({})),
            0.0
        );
        assert_eq!(judge("exact_match", &file("1\n"), &rules, json!({})), 1.0);
        let nothing = value(json!({"expected": null}));
        let missing = State::Missing;
        assert_eq!(judge("exact_match", &missing, &nothing, json!({})), 1.0);
        assert_eq!(judge("exact_match", &file(""), &nothing, json!({})), 0.0);
        let rules = value(json!({"expected": ["light", "system"]}));
        assert_eq!(
            judge("match_in_list", &value(json!("light")), &rules, json!({})),
            1.0
        );
        assert_eq!(
            judge("match_in_list", &value(json!("ligh")), &rules, json!({})),
            0.0
        );
        let rules = value(json!({"expected": "a"}));
        assert_eq!(
            judge("is_in_list", &value(json!(["b", "a"])), &rules, json!({})),
            1.0
        );
        assert_eq!(
            judge("is_in_list", &value(json!(["b"])), &rules, json!({})),
            0.0
        );
    }

    #[test]
    fn literals() {
        let judge = |r, e, o| judge("literal_match", &value(r), &value(e), o);
        assert_eq!(
            judge(json!("Ab"), json!("aB"), json!({"ignore_case": true})),
            1.0
        );
        assert_eq!(judge(json!("Ab"), json!("aB"), json!({})), 0.0);
        assert_eq!(judge(json!(true), json!("True"), json!({})), 1.0);
        let list = json!({"type": "list", "ignore_case": true});
        assert_eq!(judge(json!(["A", 1]), json!(["a", "1"]), list.clone()), 1.0);
        assert_eq!(judge(json!(["A"]), json!(["a", "1"]), list.clone()), 0.0);
        assert_eq!(judge(json!("A"), json!(["a"]), list), 0.0);
    }
}
