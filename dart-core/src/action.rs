//! Actions: one GUI operation, in screen pixels.
//!
//! Desktops: OSWorld's `computer_13` (its `RIGHT_CLICK` and `DOUBLE_CLICK` are [`Action::Click`]
//! with another button or count) plus wait, done, fail and clicks with modifiers held, which
//! UI-TARS cannot express (a failure its authors report). Phones: AndroidWorld's JSON actions.

use serde::{Deserialize, Serialize};

use crate::{Key, Modifiers, ScreenPx, Size};

/// A button of the mouse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each name says which button")]
pub enum MouseButton {
    #[default]
    Left,
    Middle,
    Right,
}

/// Where a scroll goes: the direction in which the view moves over the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each name says where")]
pub enum Direction {
    Down,
    Left,
    Right,
    Up,
}

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident $({ $($(#[$fdoc:meta])* $field:ident : $ty:ty),+ $(,)? })?),+ $(,)?) => {
        /// One GUI operation.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
        pub enum Action {
            $($(#[$doc])* $variant $({ $($(#[$fdoc])* $field: $ty),+ })?),+
        }

        /// The kind of an action, without its arguments. Environments declare which they take.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ActionKind { $($(#[$doc])* $variant),+ }

        impl ActionKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
        }

        impl Action {
            /// The kind of this action.
            pub const fn kind(&self) -> ActionKind {
                match self { $(Self::$variant { .. } => ActionKind::$variant),+ }
            }
        }
    };
}

actions! {
    /// Phone and desktop: give an answer in words; the task judges it. The episode goes on.
    Answer {
        /// The answer.
        text: String,
    },
    /// Desktop: press and release a mouse button, `count` times, with `modifiers` held.
    Click {
        /// Where.
        at: ScreenPx,
        /// Which button.
        #[serde(default)]
        button: MouseButton,
        /// 1 single, 2 double, 3 triple.
        #[serde(default = "one")]
        count: u8,
        /// Keys held meanwhile.
        #[serde(default)]
        modifiers: Modifiers,
    },
    /// The agent says that the task is done. Ends the episode.
    Done,
    /// Phone: tap twice.
    DoubleTap {
        /// Where.
        at: ScreenPx,
    },
    /// Desktop: drag with the left button from `from` (from the pointer if none) to `to`.
    DragTo {
        /// Start.
        from: Option<ScreenPx>,
        /// End.
        to: ScreenPx,
    },
    /// The agent says that the task cannot be done. Ends the episode.
    Fail,
    /// Desktop: press keys in order, release them in reverse order.
    Hotkey {
        /// The keys, modifiers first.
        keys: Vec<Key>,
    },
    /// Desktop: press a key and keep it down.
    KeyDown {
        /// Which key.
        key: Key,
    },
    /// Desktop: release a key.
    KeyUp {
        /// Which key.
        key: Key,
    },
    /// Phone: the enter key of the on-screen keyboard.
    KeyboardEnter,
    /// Phone: touch and hold.
    LongPress {
        /// Where.
        at: ScreenPx,
    },
    /// Desktop: press a mouse button at the pointer and keep it down.
    MouseDown {
        /// Which button.
        #[serde(default)]
        button: MouseButton,
    },
    /// Desktop: release a mouse button at the pointer.
    MouseUp {
        /// Which button.
        #[serde(default)]
        button: MouseButton,
    },
    /// Desktop: move the pointer.
    MoveTo {
        /// Where.
        at: ScreenPx,
    },
    /// Phone: go back.
    NavigateBack,
    /// Phone: go to the home screen.
    NavigateHome,
    /// Phone: start an app by name.
    OpenApp {
        /// Its name as shown in the launcher.
        name: String,
    },
    /// Desktop: press and release one key.
    Press {
        /// Which key.
        key: Key,
    },
    /// Desktop and phone: scroll the view under `at` (under the pointer or the middle if none).
    Scroll {
        /// Where.
        at: Option<ScreenPx>,
        /// Which way the view moves.
        direction: Direction,
        /// Wheel notches, 1 to 50; a phone scrolls about a third of the screen for each.
        notches: u8,
    },
    /// Phone: swipe with one finger. The content follows the finger.
    Swipe {
        /// Start.
        from: ScreenPx,
        /// End.
        to: ScreenPx,
    },
    /// Phone: touch and release.
    Tap {
        /// Where.
        at: ScreenPx,
    },
    /// Desktop and phone: type text into whatever has the focus. `\n` is the enter key.
    Type {
        /// The text.
        text: String,
    },
    /// Do nothing for a while.
    Wait {
        /// Milliseconds, at most 60,000.
        millis: u32,
    },
}

const fn one() -> u8 {
    1
}

impl Action {
    /// Longest text of one action, in bytes.
    pub const MAX_TEXT_BYTES: usize = 16 * 1024;

    /// A plain left click.
    pub const fn click(at: ScreenPx) -> Self {
        Self::Click {
            at,
            button: MouseButton::Left,
            count: 1,
            modifiers: Modifiers::NONE,
        }
    }

    /// Whether the agent ends the episode with this action.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Done | Self::Fail)
    }

    /// Every point that the action touches.
    pub fn points(&self) -> impl Iterator<Item = ScreenPx> {
        let (a, b) = match *self {
            Self::Click { at, .. }
            | Self::DoubleTap { at }
            | Self::LongPress { at }
            | Self::MoveTo { at }
            | Self::Tap { at } => (Some(at), None),
            Self::DragTo { from, to } => (from, Some(to)),
            Self::Scroll { at, .. } => (at, None),
            Self::Swipe { from, to } => (Some(from), Some(to)),
            _ => (None, None),
        };
        a.into_iter().chain(b)
    }

    /// Why the action cannot be performed on a screen of this size, if so.
    ///
    /// Checks what is wrong everywhere: points outside the screen and arguments outside the
    /// documented bounds. Implementations call it before they act.
    pub fn fault(&self, screen: Size) -> Option<String> {
        if let Some(point) = self.points().find(|point| !screen.contains(*point)) {
            return Some(format!(
                "point ({}, {}) is outside the {screen} screen",
                point.x, point.y
            ));
        }
        let bad = match self {
            Self::Click { count, .. } if !(1..=3).contains(count) => "click count is not 1 to 3",
            Self::Hotkey { keys } if !(1..=6).contains(&keys.len()) => "a hotkey has 1 to 6 keys",
            Self::Scroll { notches, .. } if !(1..=50).contains(notches) => {
                "scroll notches are not 1 to 50"
            }
            Self::Wait { millis } if *millis > 60_000 => "a wait is at most 60,000 ms",
            Self::Type { text } | Self::Answer { text } if text.len() > Self::MAX_TEXT_BYTES => {
                "text is longer than 16 KiB"
            }
            Self::OpenApp { name } if name.is_empty() || name.len() > 256 => {
                "an app name is 1 to 256 bytes"
            }
            _ => return None,
        };
        Some(bad.to_owned())
    }
}

/// A set of action kinds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<ActionKind>", into = "Vec<ActionKind>")]
pub struct ActionSet(u32);

impl ActionSet {
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// What a desktop takes: computer_13, modifier-clicks, wait, done, fail and answer.
    pub const DESKTOP: Self = Self::of(&[
        ActionKind::Answer,
        ActionKind::Click,
        ActionKind::Done,
        ActionKind::DragTo,
        ActionKind::Fail,
        ActionKind::Hotkey,
        ActionKind::KeyDown,
        ActionKind::KeyUp,
        ActionKind::MouseDown,
        ActionKind::MouseUp,
        ActionKind::MoveTo,
        ActionKind::Press,
        ActionKind::Scroll,
        ActionKind::Type,
        ActionKind::Wait,
    ]);

    /// What a phone takes: AndroidWorld's actions.
    pub const PHONE: Self = Self::of(&[
        ActionKind::Answer,
        ActionKind::Done,
        ActionKind::DoubleTap,
        ActionKind::Fail,
        ActionKind::KeyboardEnter,
        ActionKind::LongPress,
        ActionKind::NavigateBack,
        ActionKind::NavigateHome,
        ActionKind::OpenApp,
        ActionKind::Scroll,
        ActionKind::Swipe,
        ActionKind::Tap,
        ActionKind::Type,
        ActionKind::Wait,
    ]);

    /// The set of `kinds`.
    pub const fn of(kinds: &[ActionKind]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < kinds.len() {
            bits |= 1 << kinds[index] as u32;
            index += 1;
        }
        Self(bits)
    }

    /// Whether `kind` is in the set.
    pub const fn contains(self, kind: ActionKind) -> bool {
        self.0 & (1 << kind as u32) != 0
    }

    /// The kinds in the set.
    pub fn iter(self) -> impl Iterator<Item = ActionKind> {
        ActionKind::ALL
            .iter()
            .copied()
            .filter(move |kind| self.contains(*kind))
    }
}

impl std::fmt::Debug for ActionSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl From<Vec<ActionKind>> for ActionSet {
    fn from(kinds: Vec<ActionKind>) -> Self {
        Self::of(&kinds)
    }
}

impl From<ActionSet> for Vec<ActionKind> {
    fn from(set: ActionSet) -> Self {
        set.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: Size = Size::new(160, 120);

    #[test]
    fn faults_are_named() {
        let outside = Action::click(ScreenPx::new(160, 0));
        assert_eq!(
            outside.fault(SCREEN).unwrap(),
            "point (160, 0) is outside the 160x120 screen"
        );
        assert_eq!(Action::click(ScreenPx::new(159, 119)).fault(SCREEN), None);
        let scroll = Action::Scroll {
            at: None,
            direction: Direction::Down,
            notches: 0,
        };
        assert!(scroll.fault(SCREEN).is_some());
        assert!(Action::Hotkey { keys: vec![] }.fault(SCREEN).is_some());
    }

    #[test]
    fn json_is_stable() {
        let json = r#"{"action":"click","at":{"x":3,"y":4},"button":"left","count":1,"modifiers":["ctrl"]}"#;
        let action: Action = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&action).unwrap(), json);
        let short: Action =
            serde_json::from_str(r#"{"action":"click","at":{"x":3,"y":4}}"#).unwrap();
        assert_eq!(short, Action::click(ScreenPx::new(3, 4)));
        let extra = r#"{"action":"move_to","at":{"x":3,"y":4},"extra":1}"#;
        assert!(serde_json::from_str::<Action>(extra).is_err());
    }

    #[test]
    fn sets_hold_what_they_were_given() {
        assert!(ActionSet::DESKTOP.contains(ActionKind::Hotkey));
        assert!(!ActionSet::PHONE.contains(ActionKind::Hotkey));
        assert_eq!(ActionSet::PHONE.iter().count(), 14);
    }
}
