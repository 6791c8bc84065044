//! The part of the shell's language that the phone understands.
//!
//! Words in quotes or not, backslashes, `;`, `&&`, `||`, `>FILE`, `>>FILE`, `2>&1`, `1>&2`. A `$NAME`
//! that is not quoted vanishes, as that of an unset variable does, so that missing quotes show.

/// When a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    /// After success.
    And,
    /// After failure.
    Or,
}

/// Where output goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Target {
    #[default]
    Plain,
    /// A file, which is emptied before.
    File(String),
    /// The end of a file.
    Append(String),
    ToStderr,
    /// Standard error goes to standard output.
    Joined,
}

/// A command with its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Simple {
    pub(crate) when: When,
    pub(crate) words: Vec<String>,
    pub(crate) target: Target,
}

/// The commands of a line; what is wrong with it, if so.
pub(crate) fn parse(line: &str) -> Result<Vec<Simple>, String> {
    let mut commands = Vec::new();
    let mut present = Simple {
        when: When::Always,
        words: Vec::new(),
        target: Target::Plain,
    };
    let mut tokens = tokens(line)?.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let next = match token {
            Token::Word(word) => {
                present.words.push(word);
                continue;
            }
            Token::Operator(">" | ">>") => {
                let Some(Token::Word(path)) = tokens.next() else {
                    return Err("syntax error: unexpected end of line".into());
                };
                present.target = if token == Token::Operator(">") {
                    Target::File(path)
                } else {
                    Target::Append(path)
                };
                continue;
            }
            Token::Operator("2>&1") => {
                present.target = Target::Joined;
                continue;
            }
            Token::Operator("1>&2") => {
                present.target = Target::ToStderr;
                continue;
            }
            Token::Operator("&&") => When::And,
            Token::Operator("||") => When::Or,
            Token::Operator(_) => When::Always,
        };
        let words = Vec::new();
        let target = Target::Plain;
        let following = Simple {
            when: next,
            words,
            target,
        };
        commands.push(std::mem::replace(&mut present, following));
    }
    commands.push(present);
    commands.retain(|command| !command.words.is_empty());
    Ok(commands)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Operator(&'static str),
}

/// Longest first, so that none hides another.
const OPERATORS: [&str; 8] = ["2>&1", "1>&2", "&&", "||", ">>", ">", ";", "\n"];

fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let operator = OPERATORS
            .iter()
            .find(|operator| rest.starts_with(**operator));
        if let Some(operator) = operator {
            tokens.extend(word.take().map(Token::Word));
            tokens.push(Token::Operator(operator));
            rest = &rest[operator.len()..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            ' ' | '\t' => tokens.extend(word.take().map(Token::Word)),
            '|' | '&' | '<' | '(' | ')' | '`' => {
                return Err(format!("syntax error: unexpected '{c}'"));
            }
            _ => {
                let text = word.get_or_insert_default();
                rest = match c {
                    '\'' => single_quoted(rest, text)?,
                    '"' => double_quoted(rest, text)?,
                    '\\' => escaped(rest, text),
                    '$' => variable(rest, text),
                    plain => {
                        text.push(plain);
                        rest
                    }
                };
            }
        }
    }
    tokens.extend(word.map(Token::Word));
    Ok(tokens)
}

fn single_quoted<'a>(rest: &'a str, text: &mut String) -> Result<&'a str, String> {
    let (inside, rest) = rest.split_once('\'').ok_or("no closing quote")?;
    text.push_str(inside);
    Ok(rest)
}

fn double_quoted<'a>(mut rest: &'a str, text: &mut String) -> Result<&'a str, String> {
    loop {
        let c = rest.chars().next().ok_or("no closing quote")?;
        rest = &rest[c.len_utf8()..];
        match c {
            '"' => return Ok(rest),
            '$' => rest = variable(rest, text),
            '\\' if rest.starts_with(['"', '\\', '$', '`']) => rest = escaped(rest, text),
            '`' => return Err("syntax error: unexpected '`'".into()),
            plain => text.push(plain),
        }
    }
}

fn escaped<'a>(rest: &'a str, text: &mut String) -> &'a str {
    let Some(c) = rest.chars().next() else {
        return rest;
    };
    text.push(c);
    &rest[c.len_utf8()..]
}

/// An unset variable is nothing; a dollar sign without a name is one.
fn variable<'a>(rest: &'a str, text: &mut String) -> &'a str {
    let name = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let name = name.unwrap_or(rest.len());
    if name == 0 {
        text.push('$');
    }
    &rest[name..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::quote;

    fn words(line: &str) -> Vec<Vec<String>> {
        let commands = parse(line).unwrap();
        commands.into_iter().map(|command| command.words).collect()
    }

    #[test]
    fn the_language_is_that_of_a_shell() {
        assert_eq!(
            words(r#"a 'b c' "d $x e" \'f"#),
            [["a", "b c", "d  e", "'f"]]
        );
        assert_eq!(words("a; b && c || d"), [["a"], ["b"], ["c"], ["d"]]);
        assert_eq!(words("echo $USER$5 5$"), [["echo", "", "5$"]]);
        let commands = parse("a && b >/x 2>&1; c >> y").unwrap();
        assert_eq!(commands[1].when, When::And);
        assert_eq!(commands[1].target, Target::Joined);
        assert_eq!(commands[2].target, Target::Append("y".into()));
        for bad in ["a 'b", "a | b", "a `b`", "a >", "(a)"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_quoted_word_is_one_word(word in "\\PC*|[ '\"$`\\\\;&|%s\n]{0,12}") {
            let line = quote::join(&["echo", &word]);
            prop_assert_eq!(words(&line), vec![vec!["echo".to_owned(), word]]);
        }

        #[test]
        fn no_line_makes_it_panic(line in ".{0,40}|['\"$`\\\\;&|> a]{0,30}") {
            let _ = parse(&line);
        }
    }
}
