//! What is held down on the server, where the pointer is, and how to release and take over.

use std::time::Duration;

use dart_core::{Action, Result, ScreenPx, Size};

use super::{dialect::Dialect, keysym, plan::Plan};

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The pointer is at `at` with `buttons` down.
    Pointer { at: ScreenPx, buttons: u8 },
    /// A key goes down or up.
    Key { keysym: u32, down: bool },
    /// Let time pass.
    Pause(Duration),
    /// Wait until the server has taken everything so far.
    Sync,
}

/// What is held down, and where the pointer is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InputState {
    pointer: Option<ScreenPx>,
    /// The server's pointer is where ours is.
    placed: bool,
    buttons: u8,
    keys: Vec<u32>,
}

impl InputState {
    fn at(&self, screen: Size) -> ScreenPx {
        let middle = ScreenPx::new((screen.width / 2) as i32, (screen.height / 2) as i32);
        // The screen may have shrunk since the pointer was moved.
        self.pointer
            .filter(|at| screen.contains(*at))
            .unwrap_or(middle)
    }

    /// Remembers what `step` does and writes its message.
    pub(crate) fn apply(&mut self, step: Step, dialect: Dialect, out: &mut Vec<u8>) {
        match step {
            Step::Pointer { at, buttons } => {
                let from = self.pointer.filter(|_| self.placed);
                dialect.pointer(from, at, buttons, out);
                self.pointer = Some(at);
                self.placed = true;
                self.buttons = buttons;
            }
            Step::Key { keysym, down } => {
                self.keys.retain(|held| *held != keysym);
                if down {
                    self.keys.push(keysym);
                }
                dialect.key(keysym, down, out);
            }
            Step::Pause(_) | Step::Sync => {}
        }
    }

    /// Remembers only what `step` presses: its message may or may not reach the server.
    pub(crate) fn expect(&mut self, step: Step) {
        match step {
            Step::Pointer { at, buttons } => {
                self.pointer = Some(at);
                self.placed = false;
                self.buttons |= buttons;
            }
            Step::Key { keysym, down: true } if !self.keys.contains(&keysym) => {
                self.keys.push(keysym);
            }
            _ => {}
        }
    }

    /// Another server, or another life of it: where its pointer is is not known.
    pub(crate) const fn reconnected(&mut self) {
        self.placed = false;
    }

    /// Whether anything is held.
    pub(crate) const fn is_idle(&self) -> bool {
        self.buttons == 0 && self.keys.is_empty()
    }

    /// Releases what is held.
    pub(crate) fn release(&self, screen: Size) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.buttons != 0 {
            steps.push(Step::Pointer {
                at: self.at(screen),
                buttons: 0,
            });
        }
        let keys = self.keys.iter().rev();
        steps.extend(keys.map(|keysym| Step::Key {
            keysym: *keysym,
            down: false,
        }));
        steps
    }

    /// The state once everything is released.
    pub(crate) fn released(&self) -> Self {
        Self {
            pointer: self.pointer,
            placed: self.placed,
            ..Self::default()
        }
    }

    /// Makes the state of a server that was just connected to known, whoever used it before:
    /// releases what is held, every modifier and every button, and places the pointer.
    pub(crate) fn take_over(&self, screen: Size) -> Vec<Step> {
        let mut steps = self.release(screen);
        steps.extend(keysym::MODIFIERS.map(|keysym| Step::Key {
            keysym,
            down: false,
        }));
        steps.extend(self.released().place_pointer(screen));
        steps
    }

    /// Puts the pointer where we think it is. While the server thinks otherwise (at first, and
    /// when a resize has moved it), TigerVNC paints it into the pixels, also for clients that draw
    /// it themselves; hence the step aside.
    pub(crate) fn place_pointer(&self, screen: Size) -> Vec<Step> {
        let buttons = self.buttons;
        let at = self.at(screen);
        let aside = [ScreenPx::new(at.x - 1, at.y), ScreenPx::new(at.x, at.y - 1)];
        let mut steps = Vec::new();
        if let Some(at) = aside.into_iter().find(|aside| screen.contains(*aside)) {
            // The server compares positions only when it has nothing else to read.
            steps.extend([Step::Pointer { at, buttons }, Step::Sync]);
        }
        steps.push(Step::Pointer { at, buttons });
        steps
    }

    /// What performs `action`. The action fits the screen ([`Action::fault`]).
    pub(crate) fn plan(&self, action: &Action, screen: Size) -> Result<Vec<Step>> {
        Plan::new(self.at(screen), self.buttons, &self.keys).action(action)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use dart_core::{Direction, Key, Modifier, Modifiers, MouseButton, NamedKey};
    use proptest::prelude::*;

    const SCREEN: Size = Size::new(160, 120);

    pub(crate) fn keys(steps: &[Step]) -> Vec<(u32, bool)> {
        let keys = steps.iter().filter_map(|step| match step {
            Step::Key { keysym, down } => Some((*keysym, *down)),
            _ => None,
        });
        keys.collect()
    }

    pub(crate) fn pointers(steps: &[Step]) -> Vec<(i32, i32, u8)> {
        let moves = steps.iter().filter_map(|step| match step {
            Step::Pointer { at, buttons } => Some((at.x, at.y, *buttons)),
            _ => None,
        });
        moves.collect()
    }

    #[test]
    fn held_keys_and_buttons_are_released_in_reverse_order() {
        let mut state = InputState::default();
        for action in [
            Action::KeyDown {
                key: Key::Named(NamedKey::Ctrl),
            },
            Action::KeyDown {
                key: Key::Char('x'),
            },
            Action::MouseDown {
                button: MouseButton::Left,
            },
        ] {
            for step in state.plan(&action, SCREEN).unwrap() {
                state.apply(step, Dialect::default(), &mut Vec::new());
            }
        }
        assert!(!state.is_idle());
        let release = state.release(SCREEN);
        assert_eq!(keys(&release), [(0x78, false), (0xffe3, false)]);
        assert_eq!(pointers(&release), [(80, 60, 0)]);
        for step in release {
            state.apply(step, Dialect::default(), &mut Vec::new());
        }
        assert!(state.is_idle());
        assert_eq!(keys(&state.take_over(SCREEN)).len(), 8);
    }

    fn any_action() -> impl Strategy<Value = Action> {
        let point = (0i32..160, 0i32..120).prop_map(|(x, y)| ScreenPx::new(x, y));
        let key = prop_oneof![
            any::<char>().prop_map(Key::Char),
            proptest::sample::select(NamedKey::ALL).prop_map(Key::Named),
        ];
        prop_oneof![
            (point.clone(), 1u8..=3).prop_map(|(at, count)| Action::Click {
                at,
                button: MouseButton::Left,
                count,
                modifiers: Modifiers::NONE.with(Modifier::Alt),
            }),
            point
                .clone()
                .prop_map(|to| Action::DragTo { from: None, to }),
            ".*".prop_map(|text| Action::Type { text }),
            key.clone().prop_map(|key| Action::Press { key }),
            proptest::collection::vec(key, 1..6).prop_map(|keys| Action::Hotkey { keys }),
            point.prop_map(|at| Action::Scroll {
                at: Some(at),
                direction: Direction::Down,
                notches: 3,
            }),
        ]
    }

    proptest! {
        /// Whatever is not an explicit hold leaves nothing held.
        #[test]
        fn a_complete_action_holds_nothing(action in any_action()) {
            let mut state = InputState::default();
            if let Ok(steps) = state.plan(&action, SCREEN) {
                for step in steps {
                    state.apply(step, Dialect::default(), &mut Vec::new());
                }
                prop_assert!(state.is_idle(), "{:?}", state);
            }
        }
    }
}
