//! Laying the settings that were given over the ones that a preset or a default implies.

use serde_json::Value;

/// The key that says which variant of a setting a table is: what belongs to one variant means
/// nothing to another.
const KIND: &str = "kind";

/// Lays `given` over `under`, in place: tables key by key to any depth, everything else as a whole.
/// A table of another `kind` replaces what is there.
pub fn lay_over(under: &mut Value, given: Value) {
    match (under, given) {
        (Value::Object(under), Value::Object(given))
            if given.get(KIND).is_none() || given.get(KIND) == under.get(KIND) =>
        {
            for (key, value) in given {
                lay_over(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, given) => *under = given,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn laid(mut under: Value, given: Value) -> Value {
        lay_over(&mut under, given);
        under
    }

    #[test]
    fn tables_are_laid_key_by_key() {
        let under = json!({"a": 1, "table": {"b": 2, "deep": {"c": [3, 4]}}});
        let given = json!({"table": {"deep": {"c": [5]}, "new": true}});
        let expected = json!({"a": 1, "table": {"b": 2, "deep": {"c": [5]}, "new": true}});
        assert_eq!(laid(under, given), expected);
    }

    #[test]
    fn another_kind_starts_anew() {
        let under = json!({"kind": "clipped", "low": 0.2, "high": 0.28});
        let same = laid(under.clone(), json!({"kind": "clipped", "low": 0.1}));
        assert_eq!(same, json!({"kind": "clipped", "low": 0.1, "high": 0.28}));
        let unsaid = laid(under.clone(), json!({"low": 0.1}));
        assert_eq!(unsaid, same);
        let other = laid(under, json!({"kind": "gspo"}));
        assert_eq!(other, json!({"kind": "gspo"}));
    }

    #[test]
    fn what_is_no_table_is_replaced() {
        assert_eq!(
            laid(json!({"a": {"b": 1}}), json!({"a": 2})),
            json!({"a": 2})
        );
        assert_eq!(laid(json!(null), json!({"a": 2})), json!({"a": 2}));
    }
}
