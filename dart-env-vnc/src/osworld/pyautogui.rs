//! Steps that only move the mouse and type: `python -c "import pyautogui; ..."`.
//!
//! Most tasks save the agent's work this way. On a local desktop such a step needs no Python and no
//! program of this machine: the desktop gets the same input through VNC. Only plain calls with
//! literal arguments are understood; anything else is left to an interpreter.

use std::time::Duration;

use dart_core::{Action, Direction, Key, MouseButton, ScreenPx};

use super::step::{CommandText, GuestCommand};

/// One piece of input.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    /// To the device.
    Act(Action),
    /// Nothing for a while.
    Pause(Duration),
}

/// Longest pause that is taken from a script.
const LONGEST: f64 = 60.0;

/// The input that `command` makes; `None` if it does anything else.
pub(super) fn read(command: &GuestCommand) -> Option<Vec<Input>> {
    let CommandText::Words(words) = &command.command else {
        return None;
    };
    let [program, flag, script] = &**words else {
        return None;
    };
    if !matches!(program.as_str(), "python" | "python3") || flag != "-c" || command.shell {
        return None;
    }
    let mut input = Vec::new();
    for statement in statements(script)? {
        input.extend(understand(statement.trim())?);
    }
    script.contains("pyautogui").then_some(input)
}

/// Splits at `;` and line ends outside quotations.
fn statements(script: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let (mut start, mut quote, mut escaped) = (0, None, false);
    for (at, c) in script.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ';' | '\n') => {
                parts.push(&script[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&script[start..]);
    quote.is_none().then_some(parts)
}

fn understand(statement: &str) -> Option<Vec<Input>> {
    if statement.is_empty() || statement.starts_with("import ") || is_setting(statement) {
        return Some(Vec::new());
    }
    let (name, rest) = statement.split_once('(')?;
    let Arguments { plain, named } = arguments(rest.strip_suffix(')')?)?;
    let act = |action| Some(vec![Input::Act(action)]);
    match (name.trim(), &*plain, &*named) {
        ("time.sleep" | "pyautogui.sleep", [seconds], []) => {
            pause(seconds).map(|pause| vec![pause])
        }
        ("pyautogui.hotkey", [Literal::List(keys)], []) => hotkey(keys),
        ("pyautogui.hotkey", keys, []) => hotkey(keys),
        ("pyautogui.press", [Literal::List(keys)], []) => keys.iter().map(press).collect(),
        ("pyautogui.press", [one], named) => presses(one, named),
        ("pyautogui.keyDown", [one], []) => act(Action::KeyDown { key: key(one)? }),
        ("pyautogui.keyUp", [one], []) => act(Action::KeyUp { key: key(one)? }),
        ("pyautogui.write" | "pyautogui.typewrite", [Literal::Text(text)], []) => {
            act(Action::Type { text: text.clone() })
        }
        ("pyautogui.click", [x, y], []) => act(Action::click(point(x, y)?)),
        ("pyautogui.moveTo", [x, y], []) => act(Action::MoveTo { at: point(x, y)? }),
        ("pyautogui.doubleClick", [x, y], []) => act(Action::Click {
            at: point(x, y)?,
            button: MouseButton::Left,
            count: 2,
            modifiers: dart_core::Modifiers::default(),
        }),
        ("pyautogui.scroll", [Literal::Number(clicks)], []) => act(scroll(*clicks)?),
        _ => None,
    }
}

fn hotkey(keys: &[Literal]) -> Option<Vec<Input>> {
    let keys = keys.iter().map(key).collect::<Option<_>>()?;
    Some(vec![Input::Act(Action::Hotkey { keys })])
}

fn press(one: &Literal) -> Option<Input> {
    Some(Input::Act(Action::Press { key: key(one)? }))
}

/// `press(key, presses=n, interval=seconds)`.
fn presses(one: &Literal, named: &[(&str, Literal)]) -> Option<Vec<Input>> {
    let (mut times, mut between) = (1, None);
    for (name, value) in named {
        match (*name, value) {
            ("presses", Literal::Number(n)) if (1.0..=100.0).contains(n) && n.fract() == 0.0 => {
                times = *n as usize;
            }
            ("interval", value) => between = Some(pause(value)?),
            _ => return None,
        }
    }
    let one: Vec<Input> = std::iter::once(press(one)?).chain(between).collect();
    Some(vec![one; times].concat())
}

fn pause(seconds: &Literal) -> Option<Input> {
    match seconds {
        Literal::Number(seconds) if (0.0..=LONGEST).contains(seconds) => {
            Some(Input::Pause(Duration::from_secs_f64(*seconds)))
        }
        _ => None,
    }
}

/// Up if positive; one click is one notch of the wheel under X11.
fn scroll(clicks: f64) -> Option<Action> {
    let known = clicks.fract() == 0.0 && (1.0..=50.0).contains(&clicks.abs());
    known.then(|| Action::Scroll {
        at: None,
        direction: if clicks > 0.0 {
            Direction::Up
        } else {
            Direction::Down
        },
        notches: clicks.abs() as u8,
    })
}

/// `pyautogui.FAILSAFE = False` and the like: settings of a library that is not used.
fn is_setting(statement: &str) -> bool {
    let name = statement.split_once('=').map(|(name, _)| name.trim());
    name.is_some_and(|name| {
        name.strip_prefix("pyautogui.")
            .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_uppercase()))
    })
}

#[derive(Debug, PartialEq)]
enum Literal {
    Text(String),
    Number(f64),
    /// Of texts and numbers.
    List(Vec<Self>),
}

struct Arguments<'a> {
    plain: Vec<Literal>,
    named: Vec<(&'a str, Literal)>,
}

/// What stands between the brackets of a call.
fn arguments(text: &str) -> Option<Arguments<'_>> {
    let (mut plain, mut named) = (Vec::new(), Vec::new());
    let mut rest = text.trim();
    while !rest.is_empty() {
        let name = rest.split_once('=').map(|(name, _)| name.trim_end());
        let name = name.filter(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        let value = match name {
            Some(_) => rest.split_once('=')?.1.trim_start(),
            None => rest,
        };
        let (value, after) = match value.strip_prefix('[') {
            Some(list) => {
                let (inside, after) = list.split_once(']')?;
                let Arguments { plain, named } = arguments(inside)?;
                let flat = !plain.iter().any(|value| matches!(value, Literal::List(_)));
                (flat && named.is_empty()).then_some((Literal::List(plain), after))?
            }
            None => literal(value)?,
        };
        match name {
            Some(name) => named.push((name, value)),
            None if named.is_empty() => plain.push(value),
            None => return None,
        }
        rest = match after.trim_start().strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if after.trim().is_empty() => "",
            None => return None,
        };
    }
    Some(Arguments { plain, named })
}

fn literal(text: &str) -> Option<(Literal, &str)> {
    let quote = text.chars().next()?;
    if quote != '"' && quote != '\'' {
        let end = text.find(',').unwrap_or(text.len());
        let number = text[..end].trim().parse::<f64>().ok()?;
        return Some((Literal::Number(number), &text[end..]));
    }
    let mut content = String::new();
    let mut chars = text[1..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Some((Literal::Text(content), &text[at + 2..])),
            '\\' => content.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                c @ ('\\' | '\'' | '"') => c,
                _ => return None,
            }),
            c => content.push(c),
        }
    }
    None
}

fn key(literal: &Literal) -> Option<Key> {
    match literal {
        Literal::Text(name) => name.parse().ok(),
        _ => None,
    }
}

fn point(x: &Literal, y: &Literal) -> Option<ScreenPx> {
    let (Literal::Number(x), Literal::Number(y)) = (x, y) else {
        return None;
    };
    let known = |n: &f64| (0.0..=16_384.0).contains(n);
    (known(x) && known(y)).then(|| ScreenPx::new(*x as i32, *y as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Option<Vec<Input>> {
        let words = ["python", "-c", text].map(str::to_owned).to_vec();
        read(&GuestCommand {
            command: CommandText::Words(words),
            shell: false,
        })
    }

    fn hotkey(keys: &[&str]) -> Input {
        let keys = keys.iter().map(|key| key.parse().unwrap()).collect();
        Input::Act(Action::Hotkey { keys })
    }

    #[test]
    fn plain_calls_are_understood() {
        let text = "import pyautogui; import time; pyautogui.hotkey(\"ctrl\", 's'); \
            time.sleep(0.5);\npyautogui.press('enter'); pyautogui.click(960, 540.0); \
            pyautogui.write('a; \\'b'); pyautogui.FAILSAFE = False;";
        assert_eq!(
            script(text).unwrap(),
            [
                hotkey(&["ctrl", "s"]),
                Input::Pause(Duration::from_millis(500)),
                Input::Act(Action::Press {
                    key: "enter".parse().unwrap()
                }),
                Input::Act(Action::click(ScreenPx::new(960, 540))),
                Input::Act(Action::Type {
                    text: "a; 'b".into()
                }),
            ]
        );
    }

    #[test]
    fn lists_repetitions_and_the_wheel() {
        let enter = || {
            Input::Act(Action::Press {
                key: "enter".parse().unwrap(),
            })
        };
        let pause = || Input::Pause(Duration::from_millis(10));
        let read = |call: &str| script(&format!("import pyautogui; pyautogui.{call}"));
        assert_eq!(
            read("hotkey(['ctrl', \"q\"])"),
            Some(vec![hotkey(&["ctrl", "q"])])
        );
        assert_eq!(
            read("press(['enter', 'enter'])"),
            Some(vec![enter(), enter()])
        );
        let twice = vec![enter(), pause(), enter(), pause()];
        assert_eq!(
            read("press('enter', presses=2, interval=0.01)"),
            Some(twice)
        );
        let wheel = Action::Scroll {
            at: None,
            direction: Direction::Down,
            notches: 20,
        };
        assert_eq!(read("scroll(-20)"), Some(vec![Input::Act(wheel)]));
        for bad in [
            "press('enter', presses=1e9)",
            "press('enter', times=2)",
            "press(key='enter')",
            "press([['enter']])",
            "press(['enter')",
            "hotkey(['a'], 'b')",
            "scroll(0)",
            "scroll(1000)",
            "scroll(0.5)",
            "write('a=b', 'c')",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        let typed = read("write('a=b, [c]')");
        let text = "a=b, [c]".to_owned();
        assert_eq!(typed, Some(vec![Input::Act(Action::Type { text })]));
    }

    #[test]
    fn anything_else_is_left_alone() {
        for text in [
            "import os; os.system('x')",
            "import pyautogui; import os; os.remove('x')",
            "import pyautogui; pyautogui.press(name)",
            "import pyautogui; pyautogui.press('enter",
            "import pyautogui; pyautogui.press('nokey')",
            "import pyautogui; pyautogui.click(-1, 2)",
            "import pyautogui; pyautogui.hotkey('ctrl' + 's')",
            "import pyautogui; time.sleep(1e9)",
            "print(1)",
        ] {
            assert_eq!(script(text), None, "{text}");
        }
    }
}
