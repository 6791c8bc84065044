//! What a task demands, judged on the state of the screen, and how an expert gets there.

use dart_core::{Action, Direction, Key, Modifiers, MouseButton, NamedKey, ScreenPx};

use crate::{
    geom::{cell_target, encloses},
    ui::{Command, Id, Kind, TextEdit, Ui, close_box, icon_label, tab_rect, tick},
};

/// Notches of every scroll of the expert: those that UI-TARS' `scroll`, which has no argument for
/// them, stands for.
const NOTCHES: u8 = 5;

/// A condition on the screen.
#[derive(Clone, Debug)]
pub(crate) enum Need {
    /// A checkbox, radio or switch is on (or off).
    On(Id, bool),
    /// A field holds this text, to be typed.
    Text(Id, String),
    /// Field `to` holds this text, which field `from` held at first.
    Copied { from: Id, to: Id, text: String },
    /// A slider stands at this value.
    Value(Id, i32),
}

/// What solves a task: all needs hold when the user gives this command, the first of all.
///
/// Any other command first (another button, another window closed) ends the episode unsolved.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    pub(crate) needs: Vec<Need>,
    pub(crate) finish: Command,
}

impl Goal {
    /// Whether the task has ended: the user gave a command.
    pub(crate) fn ended(ui: &Ui) -> bool {
        !ui.commands.is_empty()
    }

    /// Whether the task is solved.
    pub(crate) fn met(&self, ui: &Ui) -> bool {
        ui.commands.first() == Some(&self.finish) && self.needs.iter().all(|need| need.holds(ui))
    }

    /// What an expert does next, in logical pixels.
    pub(crate) fn next(&self, ui: &Ui) -> Option<Action> {
        if Self::ended(ui) {
            return None;
        }
        if ui.popup.is_some() && !self.wants_popup(ui) {
            return Some(dismissal(ui));
        }
        match self.needs.iter().find(|need| !need.holds(ui)) {
            Some(need) => need.fulfil(ui),
            None => finish(ui, &self.finish),
        }
    }

    fn wants_popup(&self, ui: &Ui) -> bool {
        let done = self.needs.iter().all(|need| need.holds(ui));
        let owner = ui.popup.as_ref().map(|popup| popup.owner);
        done && matches!(self.finish, Command::Chose { owner: wanted, .. } if Some(wanted) == owner)
    }
}

impl Need {
    fn holds(&self, ui: &Ui) -> bool {
        match self {
            Self::On(id, wanted) => match ui.kind(*id) {
                Kind::Checkbox { on, .. } | Kind::Radio { on, .. } | Kind::Switch { on, .. } => {
                    on == wanted
                }
                _ => false,
            },
            Self::Text(id, text) | Self::Copied { to: id, text, .. } => {
                edit(ui, *id).is_some_and(|edit| edit.text() == *text)
            }
            Self::Value(id, wanted) => {
                matches!(ui.kind(*id), Kind::Slider { value, .. } if value == wanted)
            }
        }
    }

    fn fulfil(&self, ui: &Ui) -> Option<Action> {
        match self {
            Self::On(id, _) => point(ui, *id, 1),
            Self::Text(id, text) => enter(ui, *id, Action::Type { text: text.clone() }),
            Self::Copied { from, to, text } => copy(ui, *from, *to, text),
            Self::Value(id, value) => {
                let at = tick(ui.rect(*id), *value);
                reveal(ui, *id).or(Some(Action::click(at)))
            }
        }
    }
}

fn edit(ui: &Ui, id: Id) -> Option<&TextEdit> {
    match ui.kind(id) {
        Kind::Field(edit) => Some(edit),
        _ => None,
    }
}

/// Focuses a field, selects what is in it, then puts the text in with `action`.
fn enter(ui: &Ui, id: Id, action: Action) -> Option<Action> {
    let edit = edit(ui, id)?;
    if ui.focus != Some(id) {
        return point(ui, id, 1);
    }
    if edit.chars().is_empty() || edit.all_selected() {
        return Some(action);
    }
    if ui.touch {
        return point(ui, id, 2);
    }
    Some(shortcut('a'))
}

fn copy(ui: &Ui, from: Id, to: Id, text: &str) -> Option<Action> {
    if ui.clipboard == text {
        return enter(ui, to, shortcut('v'));
    }
    let source = edit(ui, from)?;
    if source.text() != text {
        // The source was overwritten: only typing is left.
        let text = text.to_owned();
        return enter(ui, to, Action::Type { text });
    }
    if ui.focus == Some(from) && source.all_selected() {
        return Some(shortcut('c'));
    }
    point(ui, from, 2)
}

fn shortcut(letter: char) -> Action {
    let keys = vec![Key::Named(NamedKey::Ctrl), Key::Char(letter)];
    Action::Hotkey { keys }
}

fn finish(ui: &Ui, command: &Command) -> Option<Action> {
    match *command {
        Command::Pressed(id)
        | Command::Closed(id)
        | Command::Picked(id)
        | Command::Opened(id)
        | Command::Switched(id) => point(ui, id, 1),
        Command::Chose { owner, entry } => match &ui.popup {
            Some(popup) => Some(press(ui, cell_target(popup.entry_rect(entry)), 1)),
            None if ui.touch => reveal(ui, owner).or(Some(Action::LongPress {
                at: target(ui, owner),
            })),
            None => point(ui, owner, 1),
        },
    }
}

/// Gets rid of an open menu: by key on a desktop, by the back key on a phone.
fn dismissal(ui: &Ui) -> Action {
    if ui.touch {
        Action::NavigateBack
    } else {
        Action::Press {
            key: Key::Named(NamedKey::Escape),
        }
    }
}

/// Clicks or taps on a widget, after bringing it into view.
fn point(ui: &Ui, id: Id, count: u8) -> Option<Action> {
    if ui.widgets[id].gone {
        return None;
    }
    reveal(ui, id).or_else(|| Some(press(ui, target(ui, id), count)))
}

fn press(ui: &Ui, at: ScreenPx, count: u8) -> Action {
    match (ui.touch, count) {
        (true, 1) => Action::Tap { at },
        (true, _) => Action::DoubleTap { at },
        (false, count) => Action::Click {
            at,
            button: MouseButton::Left,
            count,
            modifiers: Modifiers::NONE,
        },
    }
}

/// The first step towards seeing a widget; `None` if it can be seen.
fn reveal(ui: &Ui, id: Id) -> Option<Action> {
    let (parent, page) = ui.widgets[id].parent?;
    if let Some(action) = reveal(ui, parent) {
        return Some(action);
    }
    match ui.kind(parent) {
        Kind::Tabs { current, .. } if *current != page => {
            let tab = tab_rect(ui.rect(parent), page);
            Some(press(ui, cell_target(tab), 1))
        }
        Kind::Scroll { .. } if !encloses(ui.rect(parent), ui.rect(id)) => {
            let view = ui.rect(parent);
            let below = ui.rect(id).y > view.y;
            Some(Action::Scroll {
                at: Some(cell_target(view)),
                direction: if below {
                    Direction::Down
                } else {
                    Direction::Up
                },
                notches: NOTCHES,
            })
        }
        _ => None,
    }
}

/// Where to point at a widget.
fn target(ui: &Ui, id: Id) -> ScreenPx {
    let rect = ui.rect(id);
    cell_target(match ui.kind(id) {
        Kind::Window { .. } => close_box(rect),
        Kind::Icon { .. } => icon_label(rect),
        _ => rect,
    })
}
