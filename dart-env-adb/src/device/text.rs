//! Text as commands. No character is dropped: one that cannot be typed refuses the whole text before
//! anything is typed.
//!
//! `input text` takes ASCII alone, has `%s` for a space and no way to write a literal `%s`, which is
//! therefore cut between its letters. Enter and tab are keys. Everything else goes through an app: the
//! keyboard ADBKeyboard (text in base 64 by a broadcast) or Clipper and the paste key.

use base64::{Engine, prelude::BASE64_STANDARD};

use super::gestures::{ENTER, PASTE, TAB, key};
use crate::{
    error::{Adb, AdbError},
    quote::quote,
};

/// Most bytes of text in one command; a command line has a few thousand.
const MAX_PIECE: usize = 1000;

/// The app through which text beyond ASCII goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helper {
    Clipboard,
    Keyboard,
}

/// Packages of the two apps.
pub(crate) const KEYBOARD_PACKAGE: &str = "com.android.adbkeyboard";
pub(crate) const KEYBOARD: &str = "com.android.adbkeyboard/.AdbIME";
pub(crate) const CLIPBOARD_PACKAGE: &str = "ca.zgrs.clipper";

/// A command, and what it has to print to have worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) line: String,
    pub(crate) expected: Option<&'static str>,
}

impl Command {
    pub(crate) const fn plain(line: String) -> Self {
        let expected = None;
        Self { line, expected }
    }
}

/// The commands that type `text`.
pub(crate) fn plan(text: &str, helper: Option<Helper>) -> Adb<Vec<Command>> {
    check(text, helper)?;
    let mut commands = Vec::new();
    if helper == Some(Helper::Keyboard) && !text.is_ascii() {
        // A broadcast that no keyboard hears is lost, and completes all the same.
        commands.push(Command {
            line: "settings get secure default_input_method".into(),
            expected: Some(KEYBOARD),
        });
    }
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            commands.push(Command::plain(key(ENTER)));
        }
        for (index, part) in line.split('\t').enumerate() {
            if index > 0 {
                commands.push(Command::plain(key(TAB)));
            }
            part_of(part, helper, &mut commands);
        }
    }
    Ok(commands)
}

/// Whether every character can be typed.
fn check(text: &str, helper: Option<Helper>) -> Adb<()> {
    let typeable = |c: char| match c {
        '\n' | '\t' | ' '..='~' => true,
        c if c.is_control() => false,
        _ => helper.is_some(),
    };
    match text.chars().find(|c| !typeable(*c)) {
        None => Ok(()),
        Some(c) if c.is_control() => {
            let message = format!("U+{:04X} is no character that can be typed", u32::from(c));
            Err(AdbError::InvalidAction(message))
        }
        Some(c) => {
            let message = format!(
                "{c:?} (U+{:04X}) cannot be typed: neither ADBKeyboard nor Clipper is installed",
                u32::from(c)
            );
            Err(AdbError::InvalidAction(message))
        }
    }
}

/// The commands for text without enter and tab.
fn part_of(part: &str, helper: Option<Helper>, commands: &mut Vec<Command>) {
    match helper.filter(|_| !part.is_ascii()) {
        None => commands.extend(ascii(part)),
        Some(Helper::Keyboard) => commands.extend(pieces(part).map(|piece| {
            let encoded = BASE64_STANDARD.encode(piece);
            let line = format!("am broadcast -a ADB_INPUT_B64 --es msg {encoded}");
            Command {
                line,
                expected: Some("Broadcast completed"),
            }
        })),
        Some(Helper::Clipboard) => {
            for piece in pieces(part) {
                let line = format!("am broadcast -a clipper.set -e text {}", quote(piece));
                // The app's own code for success.
                let expected = Some("result=-1");
                commands.push(Command { line, expected });
                commands.push(Command::plain(key(PASTE)));
            }
        }
    }
}

fn ascii(part: &str) -> impl Iterator<Item = Command> {
    let cut = |piece| {
        // A literal `%s` is cut behind the `%`.
        let mut ends: Vec<_> = str::match_indices(piece, "%s")
            .map(|(at, _)| at + 1)
            .collect();
        ends.push(piece.len());
        let mut start = 0;
        ends.into_iter().map(move |end| {
            let run = &piece[start..end];
            start = end;
            run
        })
    };
    pieces(part).flat_map(cut).map(|run| {
        let escaped = run.replace(' ', "%s");
        Command::plain(format!("input text {}", quote(&escaped)))
    })
}

/// `text` in pieces of at most [`MAX_PIECE`] bytes.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.floor_char_boundary(MAX_PIECE);
        let (piece, tail) = rest.split_at(end);
        rest = tail;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str, helper: Option<Helper>) -> Vec<String> {
        let commands = plan(text, helper).unwrap();
        commands.into_iter().map(|command| command.line).collect()
    }

    #[test]
    fn spaces_percent_signs_quotes_and_enter_are_typed() {
        assert_eq!(lines("a b", None), ["input text 'a%sb'"]);
        assert_eq!(
            lines("50%sure", None),
            ["input text '50%'", "input text 'sure'"]
        );
        assert_eq!(lines("it's", None), [r"input text 'it'\''s'"]);
        assert_eq!(
            lines("a\n\tb", None),
            [
                "input text 'a'",
                "input keyevent 66",
                "input keyevent 61",
                "input text 'b'"
            ]
        );
        assert!(lines("", None).is_empty());
        let long = lines(&"x".repeat(2 * MAX_PIECE + 1), None);
        assert_eq!(long.len(), 3);
    }

    #[test]
    fn what_cannot_be_typed_is_named() {
        let error = plan("caf\u{e9}", None).unwrap_err();
        assert!(error.to_string().contains("U+00E9"), "{error}");
        assert!(plan("\u{7}", Some(Helper::Keyboard)).is_err());
        let keyboard = lines("\u{e9} x", Some(Helper::Keyboard));
        assert_eq!(
            keyboard,
            [
                "settings get secure default_input_method",
                "am broadcast -a ADB_INPUT_B64 --es msg w6kgeA=="
            ]
        );
        let clipboard = lines("\u{e9}'", Some(Helper::Clipboard));
        assert_eq!(clipboard[1], "input keyevent 279");
    }

    /// What Android makes of the argument of `input text`.
    fn android(argument: &str) -> String {
        argument.replace("%s", " ")
    }

    proptest! {
        #[test]
        fn ascii_arrives_as_it_was(text in "[ -~]{0,40}|[%s ]{0,12}") {
            let typed: String = lines(&text, None).iter().map(|line| {
                let word = line.strip_prefix("input text '").unwrap().strip_suffix('\'').unwrap();
                android(&word.replace(r"'\''", "'"))
            }).collect();
            prop_assert_eq!(typed, text);
        }
    }
}
