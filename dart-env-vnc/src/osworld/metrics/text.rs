//! Metrics on text.

use serde_json::Value;

use super::{BadRule, Case, Score, State, equal, is_set, passes, pattern, rule, texts};

pub(super) fn check_include_exclude(case: &Case<'_>) -> Score {
    let include = texts(case, "include")?;
    let exclude = texts(case, "exclude")?;
    let Some(result) = equal::plain(case.result).filter(|result| !result.is_null()) else {
        return Ok(0.0);
    };
    let has = |text: &&str| equal::contains(&result, &Value::String((*text).to_owned()));
    passes(include.iter().all(has) && !exclude.iter().any(has))
}

pub(super) fn file_contains(case: &Case<'_>) -> Score {
    rule(case, "expected")?;
    let expected = texts(case, "expected")?;
    let text = case.result.text();
    passes(text.is_some_and(|text| expected.iter().all(|part| text.contains(part))))
}

/// Each pattern of `expect` is found in some line, none of `unexpect` in any.
pub(super) fn check_list(case: &Case<'_>) -> Score {
    let compile = |key| {
        let texts = texts(case, key)?;
        let patterns = texts.into_iter().map(|text| pattern(text, &[]));
        patterns.collect::<Result<Vec<_>, _>>()
    };
    let (expect, unexpect) = (compile("expect")?, compile("unexpect")?);
    let Some(text) = case.result.text() else {
        return Ok(0.0);
    };
    // Python keeps a line's end, and its `$` is before that too.
    let found = |pattern: &regex::Regex| {
        let mut lines = text.split_inclusive('\n');
        lines.any(|line| {
            let bare = line.strip_suffix('\n').unwrap_or(line);
            pattern.is_match(bare) || pattern.is_match(line)
        })
    };
    passes(expect.iter().all(found) && !unexpect.iter().any(found))
}

/// What `compare_text_file` looks at.
fn normal(text: &str, blanks: bool, fold: bool) -> String {
    let text = if blanks {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    } else {
        text.to_owned()
    };
    if fold { text.to_lowercase() } else { text }
}

pub(super) fn compare_text_file(case: &Case<'_>) -> Score {
    let (blanks, fold) = (is_set(case, "ignore_blanks"), is_set(case, "ignore_case"));
    let (State::File(_), Some(expected)) = (case.expected, case.expected.text()) else {
        return Ok(0.0);
    };
    let result = case.result.text();
    passes(result.is_some_and(|r| normal(&r, blanks, fold) == normal(&expected, blanks, fold)))
}

/// What a line of a settings file has to begin and end with.
fn wanted<'a>(case: &Case<'a>) -> Result<(Vec<&'a str>, &'a str), BadRule> {
    let bad = || BadRule("key is a text or two texts, value is a text".into());
    let key = match rule(case, "key")? {
        Value::String(key) => vec![&**key],
        Value::Array(keys) if keys.len() == 2 => {
            let texts = keys.iter().map(Value::as_str);
            texts.collect::<Option<_>>().ok_or_else(bad)?
        }
        _ => return Err(bad()),
    };
    let value = rule(case, "value")?.as_str().ok_or_else(bad)?;
    Ok((key, value))
}

/// A setting of GIMP: `(key value)` or `(key subkey value)`, one line each.
pub(super) fn check_config_status(case: &Case<'_>) -> Score {
    let (key, value) = wanted(case)?;
    let Some(text) = case.result.text() else {
        return Ok(0.0);
    };
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'));
    passes(lines.any(|line| {
        let line = line.trim_start_matches('(').trim_end_matches(')');
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > key.len() - 1 && words[..key.len()] == key[..] && words.last() == Some(&value)
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, judge, value};
    use serde_json::json;

    #[test]
    fn include_and_exclude() {
        let rules = value(json!({"include": ["a", "b"], "exclude": ["c"]}));
        for (text, score) in [("xaby", 1.0), ("xay", 0.0), ("abc", 0.0)] {
            let got = judge(
                "check_include_exclude",
                &value(json!(text)),
                &rules,
                json!({}),
            );
            assert_eq!(got, score, "{text}");
        }
        let nothing = value(json!({"include": [], "exclude": ["Error:"]}));
        assert_eq!(
            judge(
                "check_include_exclude",
                &value(json!("")),
                &nothing,
                json!({})
            ),
            1.0
        );
    }

    #[test]
    fn contents() {
        let rules = value(json!({"expected": ["Ping", "Upload"]}));
        assert_eq!(
            judge(
                "file_contains",
                &file("Ping 1\nUpload 2"),
                &rules,
                json!({})
            ),
            1.0
        );
        assert_eq!(
            judge("file_contains", &file("Ping 1"), &rules, json!({})),
            0.0
        );
    }

    #[test]
    fn lists_of_patterns() {
        let rules = value(json!({"expect": ["^a\\d+$", "b"], "unexpect": ["zz"]}));
        for (text, score) in [("a12\nxbx\n", 1.0), ("a1x\nb", 0.0), ("a1\nb\nzz", 0.0)] {
            assert_eq!(
                judge("check_list", &file(text), &rules, json!({})),
                score,
                "{text}"
            );
        }
        let empty = value(json!({"unexpect": [".+"]}));
        assert_eq!(judge("check_list", &file(""), &empty, json!({})), 1.0);
        assert_eq!(judge("check_list", &file("\nx"), &empty, json!({})), 0.0);
        let ends = value(json!({"expect": ["a\\s$", "^a$"]}));
        assert_eq!(judge("check_list", &file("a\n"), &ends, json!({})), 1.0);
        assert_eq!(judge("check_list", &file("a"), &ends, json!({})), 0.0);
    }

    #[test]
    fn whole_texts() {
        let judge = |a: &str, b: &str, o| judge("compare_text_file", &file(a), &file(b), o);
        assert_eq!(judge("a\r\nb\n", "a\nb\n", json!({})), 1.0);
        assert_eq!(judge("a\nb", "a\nb\n", json!({})), 0.0);
        assert_eq!(
            judge(
                " A\t\nb",
                "a b\n",
                json!({"ignore_blanks": true, "ignore_case": true})
            ),
            1.0
        );
        assert_eq!(judge("a b", "ab", json!({"ignore_blanks": true})), 0.0);
    }

    #[test]
    fn settings_of_gimp() {
        let text = "# (theme \"Light\")\n\n(theme \"Dark\")\n(undo-levels 100)\n(a b \"c\")\n";
        let judge = |rules| judge("check_config_status", &file(text), &value(rules), json!({}));
        assert_eq!(judge(json!({"key": "undo-levels", "value": "100"})), 1.0);
        assert_eq!(judge(json!({"key": "theme", "value": "\"Light\""})), 0.0);
        assert_eq!(judge(json!({"key": ["a", "b"], "value": "\"c\""})), 1.0);
        assert_eq!(judge(json!({"key": ["a", "c"], "value": "\"c\""})), 0.0);
        assert_eq!(judge(json!({"key": "none", "value": "1"})), 0.0);
    }
}
