//! What an expert does: the moves of a task, as actions on what the screen shows.

use dart_core::{Action, Rect, Result, ScreenPx};

use super::{format::Move, values::Values};
use crate::device::{AdbDevice, UiNode};

/// The action of a move; `None` if what it is about is not on the screen.
pub(super) async fn action(
    next: &Move,
    values: &Values,
    device: &AdbDevice,
) -> Result<Option<Action>> {
    let fill = |text: &String| values.fill(text).map_err(|error| error.at("expert"));
    Ok(match next {
        Move::Answer(text) => Some(Action::Answer { text: fill(text)? }),
        Move::Enter => Some(Action::KeyboardEnter),
        Move::GoBack => Some(Action::NavigateBack),
        Move::GoHome => Some(Action::NavigateHome),
        Move::OpenApp(name) => Some(Action::OpenApp { name: fill(name)? }),
        Move::Type(text) => Some(Action::Type { text: fill(text)? }),
        Move::LongPress(text) => {
            let at = place(&device.ui_tree().await?, &fill(text)?);
            at.map(|at| Action::LongPress { at })
        }
        Move::Tap(text) => {
            let at = place(&device.ui_tree().await?, &fill(text)?);
            at.map(|at| Action::Tap { at })
        }
        Move::TapField(number) => {
            let at = field(&device.ui_tree().await?, *number);
            at.map(|at| Action::Tap { at })
        }
    })
}

/// The middle of the topmost element with this text or description.
fn place(nodes: &[UiNode], text: &str) -> Option<ScreenPx> {
    let named = |node: &&UiNode| node.text == text || node.description == text;
    let mut found = nodes.iter().rev().filter(named);
    found.find_map(|node| node.bounds.map(Rect::center))
}

fn field(nodes: &[UiNode], number: usize) -> Option<ScreenPx> {
    let is_field = |node: &&UiNode| node.class.ends_with("EditText");
    let node = nodes.iter().filter(is_field).nth(number)?;
    node.bounds.map(Rect::center)
}
