//! The words of SQL statements.

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// A name, a keyword or a number.
    Plain(String),
    /// Something in single quotes.
    Text(String),
    Sign(&'static str),
}

impl Word {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Text(text) => text,
            Self::Sign(sign) => sign,
        }
    }

    /// Whether it is this keyword or sign.
    pub(crate) fn is(&self, wanted: &str) -> bool {
        !matches!(self, Self::Text(_)) && self.text().eq_ignore_ascii_case(wanted)
    }
}

/// Longest first, so that none hides another.
const SIGNS: [&str; 13] = [
    "==", "!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", ",", ";", "*",
];

/// What is left to read.
#[derive(Debug)]
pub(crate) struct Words {
    /// The last comes first.
    rest: Vec<Word>,
}

impl Words {
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let mut words = Vec::new();
        let mut rest = text.trim_start();
        while let Some(c) = rest.chars().next() {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let (word, after) = if let Some(sign) = sign {
                (Word::Sign(sign), &rest[sign.len()..])
            } else if c == '\'' {
                let (text, after) = quoted(&rest[1..], '\'')?;
                (Word::Text(text), after)
            } else if c == '"' {
                let (name, after) = quoted(&rest[1..], '"')?;
                (Word::Plain(name), after)
            } else {
                let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
                let end = rest.find(|c| !plain(c)).unwrap_or(rest.len());
                if end == 0 {
                    return Err(format!("unrecognized token: \"{c}\""));
                }
                (Word::Plain(rest[..end].to_owned()), &rest[end..])
            };
            words.push(word);
            rest = after.trim_start();
        }
        words.reverse();
        Ok(Self { rest: words })
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Whether this keyword or sign is next.
    pub(crate) fn sees(&self, wanted: &str) -> bool {
        self.rest.last().is_some_and(|word| word.is(wanted))
    }

    /// Passes this keyword or sign if it is next.
    pub(crate) fn takes(&mut self, wanted: &str) -> bool {
        let seen = self.sees(wanted);
        if seen {
            self.rest.pop();
        }
        seen
    }

    pub(crate) fn expect(&mut self, wanted: &str) -> Result<(), String> {
        if self.takes(wanted) {
            return Ok(());
        }
        Err(self.unexpected())
    }

    pub(crate) fn next(&mut self) -> Result<Word, String> {
        self.rest.pop().ok_or_else(|| "incomplete input".to_owned())
    }

    /// The name of a table or column.
    pub(crate) fn name(&mut self) -> Result<String, String> {
        match self.next()? {
            Word::Plain(name) => Ok(name),
            other => Err(near(other.text())),
        }
    }

    /// A number or a text.
    pub(crate) fn value(&mut self) -> Result<String, String> {
        match self.next()? {
            Word::Text(text) => Ok(text),
            Word::Plain(number) if number.parse::<f64>().is_ok() => Ok(number),
            other => Err(near(other.text())),
        }
    }

    /// The end of a statement.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        if self.is_empty() || self.takes(";") {
            return Ok(());
        }
        Err(self.unexpected())
    }

    /// What to say of the next word.
    pub(crate) fn unexpected(&self) -> String {
        let word = self.rest.last();
        word.map_or_else(|| "incomplete input".to_owned(), |word| near(word.text()))
    }
}

fn near(word: &str) -> String {
    format!("near \"{word}\": syntax error")
}

/// What stands before the closing quote, which is doubled where it is meant itself.
fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut inside = String::new();
    let mut rest = text;
    loop {
        let Some((before, after)) = rest.split_once(quote) else {
            return Err(format!("unrecognized token: \"{quote}{text}\""));
        };
        inside.push_str(before);
        match after.strip_prefix(quote) {
            Some(more) => {
                inside.push(quote);
                rest = more;
            }
            None => return Ok((inside, after)),
        }
    }
}
