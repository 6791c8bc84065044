//! Command lines to words, as a POSIX shell would split them and without its expansions
//! (POSIX.1-2017, Shell Command Language §2.2). No variable, no glob, no substitution.

/// Splits `line` into words.
///
/// # Errors
/// If a quotation is not closed.
pub(super) fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => single(&mut chars, word.get_or_insert_default())?,
            '"' => double(&mut chars, word.get_or_insert_default())?,
            '\\' => {
                let escaped = chars.next().ok_or("a line ends with a backslash")?;
                word.get_or_insert_default().push(escaped);
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn single(chars: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), &'static str> {
    for c in chars {
        if c == '\'' {
            return Ok(());
        }
        word.push(c);
    }
    Err("a quotation is not closed")
}

fn double(chars: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), &'static str> {
    while let Some(c) = chars.next() {
        match c {
            '"' => return Ok(()),
            '\\' => match chars.next().ok_or("a quotation is not closed")? {
                escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            c => word.push(c),
        }
    }
    Err("a quotation is not closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn splits_like_a_shell() {
        let words = split(r#"a  'b c'd "e\"f\n" \ g '' x=$(y)"#).unwrap();
        assert_eq!(words, ["a", "b cd", "e\"f\\n", " g", "", "x=$(y)"]);
        assert!(split("").unwrap().is_empty());
        for bad in ["'a", "\"a", "\"a\\", "a\\"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn quoted_words_come_back(words in proptest::collection::vec("[^']{0,12}", 0..5)) {
            let line = words.iter().map(|w| format!("'{w}'")).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(split(&line).unwrap(), words);
        }
    }
}
