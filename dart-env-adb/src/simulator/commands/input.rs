//! `input`: taps, swipes, text, keys.

use std::time::Duration;

use dart_core::{Action, Device, Direction, Key, NamedKey, Result, ScreenPx};

use super::Output;
use crate::simulator::{
    phone::{Phone, taps},
    system::LAUNCHER,
};

const USAGE: &str = "Error: Invalid arguments for command: input";

/// A press at one place for so long is a long press.
const LONG_PRESS: Duration = Duration::from_millis(500);

pub(super) async fn input<D: Device>(phone: &Phone<D>, words: &[&str]) -> Output {
    let words = match words {
        ["touchscreen" | "keyboard", rest @ ..] => rest,
        all => all,
    };
    let done = match words {
        ["tap", x, y] => match point(x, y) {
            Some(at) => phone.perform(&taps(at, 1)).await,
            None => return Output::fail(255, USAGE),
        },
        // Made out of two taps by the shell.
        ["double-tap", x, y] => match point(x, y) {
            Some(at) => phone.perform(&taps(at, 2)).await,
            None => return Output::fail(255, USAGE),
        },
        ["swipe", x1, y1, x2, y2, rest @ ..] => {
            let millis = rest.first().map_or(Some(300), |millis| millis.parse().ok());
            let (Some(from), Some(to), Some(millis)) = (point(x1, y1), point(x2, y2), millis)
            else {
                return Output::fail(255, USAGE);
            };
            swipe(phone, (from, to), Duration::from_millis(millis)).await
        }
        ["text", text] => return self::text(phone, text).await,
        ["keyevent", keys @ ..] if !keys.is_empty() => self::keys(phone, keys).await,
        _ => return Output::fail(255, USAGE),
    };
    said(done)
}

fn point(x: &str, y: &str) -> Option<ScreenPx> {
    let number = |text: &str| text.parse::<f32>().ok().map(|value| value as i32);
    Some(ScreenPx::new(number(x)?, number(y)?))
}

pub(super) fn said(done: Result<()>) -> Output {
    match done {
        Ok(()) => Output::default(),
        Err(error) => Output::fail(1, error.to_string()),
    }
}

async fn swipe<D: Device>(
    phone: &Phone<D>,
    (from, to): (ScreenPx, ScreenPx),
    time: Duration,
) -> Result<()> {
    if from != to {
        let from_somewhere = Some(from);
        let drag = Action::DragTo {
            from: from_somewhere,
            to,
        };
        return phone.perform(&[Action::Swipe { from, to }, drag]).await;
    }
    if time >= LONG_PRESS {
        phone.perform(&[Action::LongPress { at: from }]).await
    } else {
        phone.perform(&taps(from, 1)).await
    }
}

/// What `input text` does: `%s` is a space, and other than ASCII it breaks.
async fn text<D: Device>(phone: &Phone<D>, text: &str) -> Output {
    if !text.chars().all(|c| matches!(c, ' '..='~')) {
        let words = "Exception occurred while executing 'text':\njava.lang.NullPointerException: Attempt to get length of null array\n\tat com.android.server.input.InputShellCommand.sendText(InputShellCommand.java:274)";
        return Output::fail(255, words);
    }
    let text = text.replace("%s", " ");
    said(phone.perform(&[Action::Type { text }]).await)
}

async fn keys<D: Device>(phone: &Phone<D>, keys: &[&str]) -> Result<()> {
    for key in keys {
        if matches!(key.trim_start_matches("KEYCODE_"), "3" | "HOME") {
            phone.state().show(LAUNCHER, ".Main");
        }
        phone.perform(&key_actions(phone, key)).await?;
    }
    Ok(())
}

/// What a key does, in order of preference.
fn key_actions<D>(phone: &Phone<D>, key: &str) -> Vec<Action> {
    let press = |key| Action::Press {
        key: Key::Named(key),
    };
    let text = |text: &str| Action::Type {
        text: text.to_owned(),
    };
    let scroll = |direction| Action::Scroll {
        at: None,
        direction,
        notches: 1,
    };
    match key.trim_start_matches("KEYCODE_") {
        "3" | "HOME" => vec![Action::NavigateHome],
        "4" | "BACK" => vec![Action::NavigateBack, press(NamedKey::Escape)],
        "61" | "TAB" => vec![text("\t")],
        "66" | "ENTER" => vec![Action::KeyboardEnter, press(NamedKey::Enter), text("\n")],
        "67" | "DEL" => vec![press(NamedKey::Backspace)],
        "92" | "PAGE_UP" => vec![press(NamedKey::PageUp), scroll(Direction::Up)],
        "93" | "PAGE_DOWN" => vec![press(NamedKey::PageDown), scroll(Direction::Down)],
        "279" | "PASTE" => vec![text(&phone.state().kept.clipboard)],
        _ => Vec::new(),
    }
}
