//! The action text of the UI-TARS family (arXiv 2501.12326 and the `action_parser` of UI-TARS 1.5):
//! `click(start_box='(x,y)')` and its like, with coordinates in pixels of the image that the model
//! saw. Reading is lenient about what models really write; writing is canonical.
//!
//! Deviations: `finished(content='…')` ends the episode and its content is dropped; `drag` on a
//! phone is a swipe; `scroll` has no amount, so it stands for a configured number of notches.

use std::fmt::Write as _;

use dart_core::{Action, Direction, Key, ModelPx, MouseButton, ScreenPx, Viewport};
use serde::{Deserialize, Serialize};

use crate::{
    error::{PolicyError, Result},
    grammar::{DeviceKind, GrammarConfig},
};

macro_rules! verbs {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// What an action text begins with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Verb { $($(#[$doc])* $variant),+ }

        impl Verb {
            /// Every verb.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name in action text.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

verbs! {
    /// The task cannot be done without a person.
    CallUser = "call_user",
    /// Click or tap.
    Click = "click",
    /// Drag; on a phone, swipe.
    Drag = "drag",
    /// The task is done.
    Finished = "finished",
    /// Press keys together.
    Hotkey = "hotkey",
    /// Double click.
    LeftDouble = "left_double",
    /// Touch and hold.
    LongPress = "long_press",
    /// Start an app.
    OpenApp = "open_app",
    /// Phone: back.
    PressBack = "press_back",
    /// Phone: home.
    PressHome = "press_home",
    /// Right click.
    RightSingle = "right_single",
    /// Scroll.
    Scroll = "scroll",
    /// Type text.
    Type = "type",
    /// Wait.
    Wait = "wait",
}

/// An action as UI-TARS says it: a verb and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) points: Vec<ModelPx>,
    pub(crate) text: String,
    pub(crate) keys: Vec<Key>,
    pub(crate) direction: Option<Direction>,
}

impl Call {
    /// A call without arguments.
    pub(crate) const fn new(verb: Verb) -> Self {
        Self {
            verb,
            points: Vec::new(),
            text: String::new(),
            keys: Vec::new(),
            direction: None,
        }
    }

    fn at(verb: Verb, points: Vec<ModelPx>) -> Self {
        Self {
            points,
            ..Self::new(verb)
        }
    }

    fn with_text(verb: Verb, text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::new(verb)
        }
    }

    /// How UI-TARS would say an action.
    pub(crate) fn of(action: &Action, viewport: Viewport) -> Result<Self> {
        let model = |point| viewport.to_model(point);
        let middle = ModelPx {
            x: viewport.model().width as f32 / 2.0,
            y: viewport.model().height as f32 / 2.0,
        };
        Ok(match action {
            Action::Click {
                at,
                button,
                count,
                modifiers,
            } if modifiers.is_empty() => {
                let verb = match (button, count) {
                    (MouseButton::Left, 1) => Verb::Click,
                    (MouseButton::Left, 2) => Verb::LeftDouble,
                    (MouseButton::Right, 1) => Verb::RightSingle,
                    _ => return Err(PolicyError::Unsayable(format!("{action:?}"))),
                };
                Self::at(verb, vec![model(*at)])
            }
            Action::Tap { at } => Self::at(Verb::Click, vec![model(*at)]),
            Action::LongPress { at } => Self::at(Verb::LongPress, vec![model(*at)]),
            Action::DragTo {
                from: Some(from),
                to,
            }
            | Action::Swipe { from, to } => Self::at(Verb::Drag, vec![model(*from), model(*to)]),
            Action::Scroll { at, direction, .. } => Self {
                direction: Some(*direction),
                ..Self::at(Verb::Scroll, vec![at.map_or(middle, model)])
            },
            Action::Hotkey { keys } => Self {
                keys: keys.clone(),
                ..Self::new(Verb::Hotkey)
            },
            Action::Press { key } => Self {
                keys: vec![*key],
                ..Self::new(Verb::Hotkey)
            },
            Action::Type { text } => Self::with_text(Verb::Type, text),
            Action::KeyboardEnter => Self::with_text(Verb::Type, "\n"),
            Action::OpenApp { name } => Self::with_text(Verb::OpenApp, name),
            Action::NavigateHome => Self::new(Verb::PressHome),
            Action::NavigateBack => Self::new(Verb::PressBack),
            Action::Wait { .. } => Self::new(Verb::Wait),
            Action::Done => Self::new(Verb::Finished),
            Action::Fail => Self::new(Verb::CallUser),
            other => return Err(PolicyError::Unsayable(format!("{other:?}"))),
        })
    }

    fn press(&self) -> Result<Action, String> {
        match self.keys.as_slice() {
            [] => Err("hotkey lacks keys".to_owned()),
            [key] => Ok(Action::Press { key: *key }),
            keys => Ok(Action::Hotkey {
                keys: keys.to_vec(),
            }),
        }
    }

    fn point(&self, index: usize, viewport: Viewport) -> Result<ScreenPx, String> {
        let point = self.points.get(index);
        point
            .map(|point| viewport.to_screen(*point))
            .ok_or_else(|| format!("{} lacks a point", self.verb.name()))
    }

    /// The action; `Err` says what is missing or wrong.
    pub(crate) fn to_action(
        &self,
        config: &GrammarConfig,
        viewport: Viewport,
    ) -> Result<Action, String> {
        if !config.verbs().contains(&self.verb) {
            return Err(format!(
                "{} is not among the allowed actions",
                self.verb.name()
            ));
        }
        let point = |index| self.point(index, viewport);
        let phone = config.device == DeviceKind::Phone;
        let click = |button, count| {
            point(0).map(|at| Action::Click {
                at,
                button,
                count,
                modifiers: dart_core::Modifiers::NONE,
            })
        };
        let action = match self.verb {
            Verb::Click if phone => Action::Tap { at: point(0)? },
            Verb::Click => click(MouseButton::Left, 1)?,
            Verb::LeftDouble => click(MouseButton::Left, 2)?,
            Verb::RightSingle => click(MouseButton::Right, 1)?,
            Verb::LongPress => Action::LongPress { at: point(0)? },
            Verb::Drag if phone => Action::Swipe {
                from: point(0)?,
                to: point(1)?,
            },
            Verb::Drag => Action::DragTo {
                from: Some(point(0)?),
                to: point(1)?,
            },
            Verb::Scroll => Action::Scroll {
                at: Some(point(0)?),
                direction: self.direction.ok_or("scroll lacks a direction")?,
                notches: config.scroll_notches,
            },
            Verb::Hotkey => self.press()?,
            Verb::Type => Action::Type {
                text: self.text.clone(),
            },
            Verb::OpenApp => Action::OpenApp {
                name: self.text.clone(),
            },
            Verb::PressHome => Action::NavigateHome,
            Verb::PressBack => Action::NavigateBack,
            Verb::Wait => Action::Wait {
                millis: config.wait_millis,
            },
            Verb::Finished => Action::Done,
            Verb::CallUser => Action::Fail,
        };
        match action.fault(viewport.screen()) {
            Some(fault) => Err(fault),
            None => Ok(action),
        }
    }
}

/// The canonical text.
impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}(", self.verb.name())?;
        let mut separator = "";
        for (name, point) in ["start_box", "end_box"].iter().zip(&self.points) {
            write!(f, "{separator}{name}='({},{})'", point.x, point.y)?;
            separator = ", ";
        }
        if let Some(direction) = self.direction {
            write!(f, "{separator}direction='{}'", direction_name(direction))?;
        }
        if !self.keys.is_empty() {
            let keys: Vec<String> = self.keys.iter().map(Key::to_string).collect();
            write!(f, "key='{}'", escape(&keys.join(" ")))?;
        }
        match self.verb {
            Verb::Type => write!(f, "content='{}'", escape(&self.text))?,
            Verb::OpenApp => write!(f, "app_name='{}'", escape(&self.text))?,
            _ => {}
        }
        f.write_char(')')
    }
}

pub(crate) const fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Down => "down",
        Direction::Left => "left",
        Direction::Right => "right",
        Direction::Up => "up",
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}
