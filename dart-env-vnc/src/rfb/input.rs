//! From an action to pointer and key events: a pure plan, and what is held down.

use std::time::Duration;

use dart_core::{
    Action, Direction, Error, ErrorKind, Key, Modifier, Modifiers, MouseButton, Result, ScreenPx,
    Size,
};

use super::{keysym, message};

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

/// Time between the moves of a drag: a frame of a 60 Hz screen, so that widgets see each.
const DRAG_PAUSE: Duration = Duration::from_millis(16);

/// Moves of a drag; widgets that need a threshold or a path get both.
const DRAG_MOVES: i32 = 8;

/// Keys typed between two synchronisations: X servers drop events when thousands queue up.
const KEYS_PER_SYNC: usize = 64;

/// What is held down, and where the pointer is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InputState {
    pointer: Option<ScreenPx>,
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
    pub(crate) fn apply(&mut self, step: Step, out: &mut Vec<u8>) {
        match step {
            Step::Pointer { at, buttons } => {
                self.pointer = Some(at);
                self.buttons = buttons;
                message::pointer(at.x as u16, at.y as u16, buttons, out);
            }
            Step::Key { keysym, down } => {
                self.keys.retain(|held| *held != keysym);
                if down {
                    self.keys.push(keysym);
                }
                message::key(keysym, down, out);
            }
            Step::Pause(_) | Step::Sync => {}
        }
    }

    /// Remembers only what `step` presses: its message may or may not reach the server.
    pub(crate) fn expect(&mut self, step: Step) {
        match step {
            Step::Pointer { at, buttons } => {
                self.pointer = Some(at);
                self.buttons |= buttons;
            }
            Step::Key { keysym, down: true } if !self.keys.contains(&keysym) => {
                self.keys.push(keysym);
            }
            _ => {}
        }
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
        let mut plan = Plan {
            at: self.at(screen),
            buttons: self.buttons,
            held: self.keys.clone(),
            steps: Vec::new(),
        };
        plan.action(action)?;
        Ok(plan.steps)
    }
}

/// A plan in the making: the steps, and the state after them.
struct Plan {
    at: ScreenPx,
    buttons: u8,
    held: Vec<u32>,
    steps: Vec<Step>,
}

impl Plan {
    fn action(&mut self, action: &Action) -> Result<()> {
        match action {
            Action::Click {
                at,
                button,
                count,
                modifiers,
            } => self.click(*at, mask(*button), *count, *modifiers),
            Action::DragTo { from, to } => self.drag(*from, *to),
            Action::Hotkey { keys } => self.hotkey(keys)?,
            Action::KeyDown { key } => self.key(of_key(*key)?, true),
            Action::KeyUp { key } => self.key(of_key(*key)?, false),
            Action::MouseDown { button } => self.press(mask(*button)),
            Action::MouseUp { button } => self.lift(mask(*button)),
            Action::MoveTo { at } => self.move_to(*at),
            Action::Press { key } => self.stroke(*key)?,
            Action::Scroll {
                at,
                direction,
                notches,
            } => self.scroll(*at, *direction, *notches),
            Action::Type { text } => self.text(text)?,
            Action::Wait { millis } => {
                self.steps
                    .push(Step::Pause(Duration::from_millis((*millis).into())));
            }
            // The caller has checked the kind against the device's actions.
            _ => {}
        }
        Ok(())
    }

    fn pointer(&mut self) {
        self.steps.push(Step::Pointer {
            at: self.at,
            buttons: self.buttons,
        });
    }

    fn move_to(&mut self, at: ScreenPx) {
        self.at = at;
        self.pointer();
    }

    fn press(&mut self, mask: u8) {
        self.buttons |= mask;
        self.pointer();
    }

    fn lift(&mut self, mask: u8) {
        self.buttons &= !mask;
        self.pointer();
    }

    fn key(&mut self, keysym: u32, down: bool) {
        self.held.retain(|held| *held != keysym);
        if down {
            self.held.push(keysym);
        }
        self.steps.push(Step::Key { keysym, down });
    }

    /// The keys of `modifiers` that are not held already, in pressing order.
    fn missing(&self, modifiers: Modifiers) -> Vec<u32> {
        let keys = modifiers.iter().filter_map(|m| keysym::of_key(m.key()));
        keys.filter(|keysym| !self.held.contains(keysym)).collect()
    }

    fn click(&mut self, at: ScreenPx, mask: u8, count: u8, modifiers: Modifiers) {
        let keys = self.missing(modifiers);
        for keysym in &keys {
            self.key(*keysym, true);
        }
        self.move_to(at);
        for _ in 0..count {
            self.press(mask);
            self.lift(mask);
        }
        for keysym in keys.iter().rev() {
            self.key(*keysym, false);
        }
    }

    fn drag(&mut self, from: Option<ScreenPx>, to: ScreenPx) {
        let from = from.unwrap_or(self.at);
        self.move_to(from);
        self.press(mask(MouseButton::Left));
        for step in 1..=DRAG_MOVES {
            self.steps.push(Step::Pause(DRAG_PAUSE));
            let between = |a: i32, b: i32| a + (b - a) * step / DRAG_MOVES;
            self.move_to(ScreenPx::new(between(from.x, to.x), between(from.y, to.y)));
        }
        self.steps.push(Step::Pause(DRAG_PAUSE));
        self.lift(mask(MouseButton::Left));
    }

    fn scroll(&mut self, at: Option<ScreenPx>, direction: Direction, notches: u8) {
        self.move_to(at.unwrap_or(self.at));
        // The wheel is buttons 4 to 7.
        let wheel = match direction {
            Direction::Up => 1 << 3,
            Direction::Down => 1 << 4,
            Direction::Left => 1 << 5,
            Direction::Right => 1 << 6,
        };
        for _ in 0..notches {
            self.press(wheel);
            self.lift(wheel);
        }
    }

    fn shift_is_held(&self) -> bool {
        self.held.contains(&keysym::SHIFT)
    }

    /// Presses and releases one key, with Shift where a US keyboard needs it.
    fn stroke(&mut self, key: Key) -> Result<()> {
        let keysym = of_key(key)?;
        let shift = matches!(key, Key::Char(c) if keysym::needs_shift(c)) && !self.shift_is_held();
        if shift {
            self.key(keysym::SHIFT, true);
        }
        self.key(keysym, true);
        self.key(keysym, false);
        if shift {
            self.key(keysym::SHIFT, false);
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<()> {
        let text = text.replace("\r\n", "\n");
        for (index, c) in text.chars().enumerate() {
            if index > 0 && index % KEYS_PER_SYNC == 0 {
                self.steps.push(Step::Sync);
            }
            self.stroke(Key::Char(c))?;
        }
        Ok(())
    }

    fn hotkey(&mut self, keys: &[Key]) -> Result<()> {
        let shift = self.shift_is_held() || keys.contains(&Modifier::Shift.key());
        let mut pressed = Vec::new();
        for key in keys {
            for keysym in hotkey_keysyms(*key, shift)? {
                if !self.held.contains(&keysym) {
                    self.key(keysym, true);
                    pressed.push(keysym);
                }
            }
        }
        for keysym in pressed.into_iter().rev() {
            self.key(keysym, false);
        }
        Ok(())
    }
}

/// The keysyms of one key of a hotkey. Letters mean the key, not its capital: Ctrl+C is not
/// Ctrl+Shift+C. With Shift held, a server expects the shifted character.
fn hotkey_keysyms(key: Key, shift: bool) -> Result<Vec<u32>> {
    let Key::Char(c) = key else {
        return of_key(key).map(|keysym| vec![keysym]);
    };
    if shift {
        return of_key(Key::Char(keysym::shifted(c))).map(|keysym| vec![keysym]);
    }
    let c = c.to_ascii_lowercase();
    let keysym = of_key(Key::Char(c))?;
    Ok(if keysym::needs_shift(c) {
        vec![keysym::SHIFT, keysym]
    } else {
        vec![keysym]
    })
}

fn of_key(key: Key) -> Result<u32> {
    keysym::of_key(key).ok_or_else(|| {
        let message = "a control character cannot be typed";
        let error = Error::new(ErrorKind::InvalidAction, "dart-env-vnc", "perform", message);
        error.with("character", key.to_string().escape_debug())
    })
}

const fn mask(button: MouseButton) -> u8 {
    match button {
        MouseButton::Left => 1,
        MouseButton::Middle => 2,
        MouseButton::Right => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dart_core::NamedKey;
    use proptest::prelude::*;

    const SCREEN: Size = Size::new(160, 120);

    fn plan(action: &Action) -> Vec<Step> {
        InputState::default().plan(action, SCREEN).unwrap()
    }

    fn keys(steps: &[Step]) -> Vec<(u32, bool)> {
        let keys = steps.iter().filter_map(|step| match step {
            Step::Key { keysym, down } => Some((*keysym, *down)),
            _ => None,
        });
        keys.collect()
    }

    fn pointers(steps: &[Step]) -> Vec<(i32, i32, u8)> {
        let moves = steps.iter().filter_map(|step| match step {
            Step::Pointer { at, buttons } => Some((at.x, at.y, *buttons)),
            _ => None,
        });
        moves.collect()
    }

    fn named(name: &str) -> Key {
        name.parse().unwrap()
    }

    #[test]
    fn a_modifier_click_holds_the_modifier_around_it() {
        let steps = plan(&Action::Click {
            at: ScreenPx::new(3, 4),
            button: MouseButton::Right,
            count: 2,
            modifiers: Modifiers::NONE.with(Modifier::Shift).with(Modifier::Ctrl),
        });
        let [ctrl, shift] = [0xffe3, 0xffe1];
        assert_eq!(
            keys(&steps),
            [(ctrl, true), (shift, true), (shift, false), (ctrl, false)]
        );
        let (up, down) = ((3, 4, 0), (3, 4, 4));
        assert_eq!(pointers(&steps), [up, down, up, down, up]);
        assert!(matches!(steps[0], Step::Key { .. }) && matches!(steps[8], Step::Key { .. }));
    }

    #[test]
    fn text_is_typed_like_on_a_us_keyboard() {
        let shift = 0xffe1;
        assert_eq!(
            keys(&plan(&Action::Type {
                text: "a<é\r\n".to_owned()
            })),
            [
                (0x61, true),
                (0x61, false),
                (shift, true),
                (0x3c, true),
                (0x3c, false),
                (shift, false),
                (0xe9, true),
                (0xe9, false),
                (0xff0d, true),
                (0xff0d, false),
            ]
        );
        let bell = Action::Type {
            text: "\u{7}".to_owned(),
        };
        let error = InputState::default().plan(&bell, SCREEN).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAction);
    }

    #[test]
    fn long_text_is_synchronised() {
        let steps = plan(&Action::Type {
            text: "x".repeat(200),
        });
        assert_eq!(steps.iter().filter(|step| **step == Step::Sync).count(), 3);
    }

    #[test]
    fn a_hotkey_means_the_key_and_not_the_capital() {
        let hotkey = |names: &[&str]| {
            let keys_of = names.iter().map(|name| named(name)).collect();
            keys(&plan(&Action::Hotkey { keys: keys_of }))
        };
        let [ctrl, shift] = [0xffe3, 0xffe1];
        assert_eq!(
            hotkey(&["ctrl", "C"]),
            [(ctrl, true), (0x63, true), (0x63, false), (ctrl, false)]
        );
        assert_eq!(hotkey(&["ctrl", "shift", "t"])[2], (0x54, true));
        assert_eq!(
            hotkey(&["ctrl", "+"])[..3],
            [(ctrl, true), (shift, true), (0x2b, true)]
        );
    }

    #[test]
    fn a_drag_moves_in_between() {
        let steps = plan(&Action::DragTo {
            from: Some(ScreenPx::new(0, 0)),
            to: ScreenPx::new(80, 40),
        });
        let path = pointers(&steps);
        assert_eq!(path[..3], [(0, 0, 0), (0, 0, 1), (10, 5, 1)]);
        assert_eq!(path[path.len() - 2..], [(80, 40, 1), (80, 40, 0)]);
    }

    #[test]
    fn the_wheel_is_buttons_four_to_seven() {
        for (direction, mask) in [
            (Direction::Up, 8),
            (Direction::Down, 16),
            (Direction::Left, 32),
            (Direction::Right, 64),
        ] {
            let steps = plan(&Action::Scroll {
                at: None,
                direction,
                notches: 2,
            });
            let (up, down) = ((80, 60, 0), (80, 60, mask));
            assert_eq!(pointers(&steps), [up, down, up, down, up]);
        }
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
                state.apply(step, &mut Vec::new());
            }
        }
        assert!(!state.is_idle());
        let release = state.release(SCREEN);
        assert_eq!(keys(&release), [(0x78, false), (0xffe3, false)]);
        assert_eq!(pointers(&release), [(80, 60, 0)]);
        for step in release {
            state.apply(step, &mut Vec::new());
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
                    state.apply(step, &mut Vec::new());
                }
                prop_assert!(state.is_idle(), "{:?}", state);
            }
        }
    }
}
