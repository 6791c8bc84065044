//! From tokens to messages.

use super::{
    message::{Field, Message, Value},
    tokens::{Kind, Token, Tokens, mistake},
};
use crate::error::{Adb, AdbError};

/// Longest text, bytes.
const MAX_TEXT: usize = 4 << 20;
/// Deepest message.
const MAX_DEPTH: usize = 32;
/// Longest name of a field, bytes: it is repeated for every field inside when they are looked over.
const MAX_NAME: usize = 100;
/// Most fields.
const MAX_FIELDS: usize = 20_000;

/// The message that a text stands for.
pub(super) fn parse(text: &str) -> Adb<Message> {
    if text.len() > MAX_TEXT {
        let message = format!("a task file has at most {MAX_TEXT} bytes");
        return Err(AdbError::Config(message));
    }
    let mut parser = Parser {
        tokens: Tokens::new(text),
        ahead: None,
        line: 1,
        fields: 0,
    };
    parser.ahead = parser.tokens.next()?;
    parser.message(None, 0)
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    ahead: Option<Token>,
    /// The line of the last token.
    line: usize,
    fields: usize,
}

impl Parser<'_> {
    fn next(&mut self) -> Adb<Option<Kind>> {
        let following = self.tokens.next()?;
        let token = std::mem::replace(&mut self.ahead, following);
        Ok(token.map(|token| {
            self.line = token.line;
            token.kind
        }))
    }

    fn sees(&self, sign: char) -> bool {
        matches!(&self.ahead, Some(Token { kind: Kind::Sign(next), .. }) if *next == sign)
    }

    fn takes(&mut self, sign: char) -> Adb<bool> {
        let seen = self.sees(sign);
        if seen {
            self.next()?;
        }
        Ok(seen)
    }

    fn unexpected(&self, found: Option<Kind>) -> AdbError {
        let found = match found {
            None => "the text ends too early".to_owned(),
            Some(Kind::Sign(sign)) => format!("{sign:?} is not expected here"),
            Some(Kind::Word(word)) => format!("{word:.60?} is not expected here"),
            Some(Kind::Text(_)) => "a text is not expected here".to_owned(),
        };
        mistake(self.line, found)
    }

    /// Fields up to the sign `end`, or to the end of the text.
    fn message(&mut self, end: Option<char>, depth: usize) -> Adb<Message> {
        if depth > MAX_DEPTH {
            return Err(mistake(self.line, "messages are too deep"));
        }
        let mut message = Message::default();
        loop {
            match self.next()? {
                None if end.is_none() => return Ok(message),
                Some(Kind::Sign(sign)) if Some(sign) == end => return Ok(message),
                Some(Kind::Word(name)) => self.field(&name, &mut message, depth)?,
                other => return Err(self.unexpected(other)),
            }
            if !self.takes(',')? {
                self.takes(';')?;
            }
        }
    }

    fn field(&mut self, name: &str, message: &mut Message, depth: usize) -> Adb<()> {
        let starts_as_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts_as_name || name.len() > MAX_NAME || name.contains(['.', '+', '-']) {
            return Err(mistake(
                self.line,
                format!("{name:.60?} is no name of a field"),
            ));
        }
        let line = self.line;
        let colon = self.takes(':')?;
        if !self.takes('[')? {
            let value = self.value(colon, depth)?;
            return self.add(message, Field::new(name.to_owned(), value, line));
        }
        if self.takes(']')? {
            return Ok(());
        }
        loop {
            let value = self.value(colon, depth)?;
            self.add(message, Field::new(name.to_owned(), value, line))?;
            if !self.takes(',')? {
                break;
            }
        }
        match self.next()? {
            Some(Kind::Sign(']')) => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    fn add(&mut self, message: &mut Message, field: Field) -> Adb<()> {
        self.fields += 1;
        if self.fields > MAX_FIELDS {
            return Err(mistake(self.line, format!("more than {MAX_FIELDS} fields")));
        }
        message.fields.push(field);
        Ok(())
    }

    /// A value; without a colon only a message.
    fn value(&mut self, colon: bool, depth: usize) -> Adb<Value> {
        match self.next()? {
            Some(Kind::Sign('{')) => Ok(Value::Message(self.message(Some('}'), depth + 1)?)),
            Some(Kind::Sign('<')) => Ok(Value::Message(self.message(Some('>'), depth + 1)?)),
            Some(Kind::Word(word)) if colon => Ok(Value::Word(word)),
            Some(Kind::Text(mut bytes)) if colon => {
                // Texts side by side are one.
                while matches!(
                    &self.ahead,
                    Some(Token {
                        kind: Kind::Text(_),
                        ..
                    })
                ) {
                    if let Some(Kind::Text(more)) = self.next()? {
                        bytes.extend(more);
                    }
                }
                Ok(Value::Text(bytes))
            }
            other => Err(self.unexpected(other)),
        }
    }
}
