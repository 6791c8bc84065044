//! The tokens of the text form.

use crate::error::{Adb, AdbError};

/// A token, and the line where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name, a number or a named value.
    Word(String),
    /// What a text in quotes stands for.
    Text(Vec<u8>),
    /// `: { } < > [ ] , ;`
    Sign(char),
}

pub(super) fn mistake(line: usize, why: impl std::fmt::Display) -> AdbError {
    AdbError::Config(format!("line {line}: {why}"))
}

/// Reads the tokens of a text, one at a time.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Tokens<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            line: 1,
        }
    }

    fn skip(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        self.line += passed.bytes().filter(|byte| *byte == b'\n').count();
        self.rest = rest;
    }

    /// Passes white space and comments.
    fn skip_nothing_said(&mut self) {
        loop {
            let space = self.rest.len() - self.rest.trim_start().len();
            self.skip(space);
            if !self.rest.starts_with('#') {
                return;
            }
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.skip(end);
        }
    }

    /// The next token; `None` at the end.
    pub(super) fn next(&mut self) -> Adb<Option<Token>> {
        self.skip_nothing_said();
        let line = self.line;
        let Some(c) = self.rest.chars().next() else {
            return Ok(None);
        };
        let kind = match c {
            ':' | '{' | '}' | '<' | '>' | '[' | ']' | ',' | ';' => {
                self.skip(1);
                Kind::Sign(c)
            }
            '"' | '\'' => {
                self.skip(1);
                Kind::Text(self.quoted(c)?)
            }
            _ => {
                let in_word = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
                let end = self.rest.find(|c| !in_word(c)).unwrap_or(self.rest.len());
                if end == 0 {
                    return Err(mistake(line, format!("{c:?} is not expected here")));
                }
                let word = self.rest[..end].to_owned();
                self.skip(end);
                Kind::Word(word)
            }
        };
        Ok(Some(Token { kind, line }))
    }

    fn quoted(&mut self, quote: char) -> Adb<Vec<u8>> {
        let line = self.line;
        let mut bytes = Vec::new();
        loop {
            let c = self.rest.chars().next().filter(|c| *c != '\n');
            let c = c.ok_or_else(|| mistake(line, "a text has no closing quote"))?;
            self.skip(c.len_utf8());
            match c {
                '\\' => self.escaped(&mut bytes)?,
                c if c == quote => return Ok(bytes),
                c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
    }

    /// What stands after a backslash.
    fn escaped(&mut self, bytes: &mut Vec<u8>) -> Adb<()> {
        let bad = |line| mistake(line, "an unknown character after a backslash");
        let c = self.rest.chars().next().ok_or_else(|| bad(self.line))?;
        let simple = match c {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 11,
            '\\' | '\'' | '"' | '?' => c as u8,
            '0'..='7' => return self.number(8, 3, bytes),
            'x' | 'X' => {
                self.skip(1);
                return self.number(16, 2, bytes);
            }
            'u' | 'U' => {
                self.skip(1);
                let digits = if c == 'u' { 4 } else { 8 };
                let code = self
                    .digits(16, digits)
                    .filter(|(_, count)| *count == digits);
                let letter = code.and_then(|(code, _)| char::from_u32(code));
                let letter = letter.ok_or_else(|| bad(self.line))?;
                bytes.extend(letter.encode_utf8(&mut [0; 4]).bytes());
                return Ok(());
            }
            _ => return Err(bad(self.line)),
        };
        self.skip(1);
        bytes.push(simple);
        Ok(())
    }

    /// A byte as a number of at most `most` digits.
    fn number(&mut self, base: u32, most: usize, bytes: &mut Vec<u8>) -> Adb<()> {
        let code = self
            .digits(base, most)
            .and_then(|(code, _)| u8::try_from(code).ok());
        let code = code.ok_or_else(|| mistake(self.line, "no byte has such a number"))?;
        bytes.push(code);
        Ok(())
    }

    /// A number of 1 to `most` digits, and how many there are.
    fn digits(&mut self, base: u32, most: usize) -> Option<(u32, usize)> {
        let is_digit = |c: &char| c.is_digit(base);
        let count = self.rest.chars().take(most).take_while(is_digit).count();
        let code = u32::from_str_radix(&self.rest[..count], base).ok()?;
        self.skip(count);
        Some((code, count))
    }
}
