//! Reads action text that models write: bounded, lenient, never panics.
//!
//! Accepts an optional `Thought: … Action:` before the call, single or double quotes, points as
//! `(x,y)`, `<point>x y</point>`, `[x1, y1, x2, y2]` (a box stands for its middle) or with
//! `<|box_start|>` markers, and escaped quotes. Of several calls the first counts.

use dart_core::{Direction, Key, ModelPx};

use crate::action_text::{Call, Verb};

/// Longest text that is looked at.
const MAX_BYTES: usize = 64 * 1024;
/// Most arguments of a call.
const MAX_ARGUMENTS: usize = 16;

/// Reads the first call after the last `Action:`; `Err` says what is wrong, for the log.
pub(crate) fn parse(text: &str) -> Result<Call, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("text of {} bytes is too long", text.len()));
    }
    let text = text.rsplit_once("Action:").map_or(text, |(_, rest)| rest);
    let open = text.find('(').ok_or("no call found")?;
    let name = text[..open]
        .trim_end()
        .rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .next()
        .unwrap_or_default();
    let verb = verb(name).ok_or_else(|| format!("unknown action {:?}", cut(name)))?;
    let mut call = Call::new(verb);
    for (name, value) in arguments(&text[open + 1..])? {
        assign(&mut call, &name, &value)?;
    }
    Ok(call)
}

fn verb(name: &str) -> Option<Verb> {
    let name = match name {
        "left_single" | "tap" => "click",
        "swipe" => "drag",
        other => other,
    };
    Verb::ALL.iter().copied().find(|verb| verb.name() == name)
}

fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

/// `name='value', …` up to the closing parenthesis.
fn arguments(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        if rest.starts_with(')') {
            return Ok(found);
        }
        if found.len() == MAX_ARGUMENTS {
            return Err("too many arguments".to_owned());
        }
        let (name, after) = rest
            .split_once('=')
            .ok_or_else(|| format!("no argument at {:?}", cut(rest)))?;
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let quote = quote.ok_or_else(|| format!("{:?} is not quoted", cut(name)))?;
        let (value, after) = quoted(&after[1..], quote)?;
        found.push((name.trim().to_owned(), value));
        rest = after;
    }
}

/// The text up to an unescaped `quote`, and what follows it.
fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some(c @ ('\\' | '\'' | '"')) => value.push(c),
                Some(c) => value.extend(['\\', c]),
                None => break,
            },
            c if c == quote => return Ok((value, &text[at + 1..])),
            c => value.push(c),
        }
    }
    Err("a quotation mark is not closed".to_owned())
}

fn assign(call: &mut Call, name: &str, value: &str) -> Result<(), String> {
    match name {
        "start_box" | "point" | "start_point" | "end_box" | "end_point" => {
            call.points.push(point(value)?);
        }
        "direction" => call.direction = Some(direction(value)?),
        "key" => {
            for key in value.split([' ', '+']).filter(|key| !key.is_empty()) {
                let key: Key = key
                    .parse()
                    .map_err(|_| format!("unknown key {:?}", cut(key)))?;
                call.keys.push(key);
            }
        }
        "content" | "app_name" => value.clone_into(&mut call.text),
        // `time` of a long press and whatever else a model invents changes nothing.
        _ => {}
    }
    Ok(())
}

fn direction(value: &str) -> Result<Direction, String> {
    Ok(match value.trim() {
        "down" => Direction::Down,
        "left" => Direction::Left,
        "right" => Direction::Right,
        "up" => Direction::Up,
        other => return Err(format!("unknown direction {:?}", cut(other))),
    })
}

fn point(value: &str) -> Result<ModelPx, String> {
    let fault = || format!("{:?} is not a point", cut(value));
    let plain = value
        .replace("<|box_start|>", "")
        .replace("<|box_end|>", "")
        .replace("<point>", "")
        .replace("</point>", "");
    let numbers: Vec<f32> = plain
        .split(|c: char| c.is_whitespace() || "()[],".contains(c))
        .filter(|part| !part.is_empty())
        .take(5)
        .map(|part| part.parse::<f32>().ok().filter(|n| n.is_finite()))
        .collect::<Option<_>>()
        .ok_or_else(fault)?;
    match numbers[..] {
        [x, y] => Ok(ModelPx { x, y }),
        [x1, y1, x2, y2] => Ok(ModelPx {
            x: x1.midpoint(x2),
            y: y1.midpoint(y2),
        }),
        _ => Err(fault()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_forms_that_models_write_are_read() {
        let cases = [
            "click(start_box='(12,34)')",
            "Thought: I see it.\nAction: click(start_box='<|box_start|>(12,34)<|box_end|>')",
            "Action: click(start_box=\"[8, 30, 16, 38]\")",
            "Action: click(point='<point>12 34</point>')",
            "left_single( start_box = '(12.0, 34.0)' ) ",
        ];
        for text in cases {
            assert_eq!(
                parse(text).unwrap().to_string(),
                "click(start_box='(12,34)')",
                "{text}"
            );
        }
        let typed = parse(r"type(content='it\'s (a) \\ \n')").unwrap();
        assert_eq!(typed.text, "it's (a) \\ \n");
        assert_eq!(
            parse("hotkey(key='ctrl+c')").unwrap().to_string(),
            "hotkey(key='ctrl c')"
        );
    }

    #[test]
    fn faults_are_named() {
        for (text, part) in [
            ("", "no call"),
            ("fly(to='x')", "unknown action"),
            ("click(start_box='(1)')", "not a point"),
            ("click(start_box='(1,nan)')", "not a point"),
            ("click(start_box='(1,2)", "not closed"),
            ("click(start_box=(1,2))", "not quoted"),
            (
                "scroll(start_box='(1,2)', direction='in')",
                "unknown direction",
            ),
            ("hotkey(key='warp')", "unknown key"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(part), "{text}: {fault}");
        }
        assert!(parse(&"x".repeat(MAX_BYTES + 1)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_mangled_call_panics(
            cut_at in 0usize..60, insert in "[\\\\'\"(),=<|>é]{0,4}",
        ) {
            let mut text = "Action: drag(start_box='(1,2)', end_box='(3,4)')".to_owned();
            text.insert_str(cut_at.min(text.len()), &insert);
            let _ = parse(&text);
        }

        #[test]
        fn written_text_is_read_back(content in "\\PC{0,30}") {
            let call = Call { text: content, ..Call::new(Verb::Type) };
            prop_assert_eq!(parse(&call.to_string()).unwrap(), call);
        }
    }
}
