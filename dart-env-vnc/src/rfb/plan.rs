//! From an action to pointer and key events: a pure plan.

use std::time::Duration;

use dart_core::{
    Action, Direction, Error, ErrorKind, Key, Modifier, Modifiers, MouseButton, Result, ScreenPx,
};

use super::{input::Step, keysym};

/// Time between the moves of a drag: a frame of a 60 Hz screen, so that widgets see each.
const DRAG_PAUSE: Duration = Duration::from_millis(16);

/// Moves of a drag; widgets that need a threshold or a path get both.
const DRAG_MOVES: i32 = 8;

/// Keys typed between two synchronisations: X servers drop events when thousands queue up.
const KEYS_PER_SYNC: usize = 64;

/// A plan in the making: the steps, and the state after them.
#[derive(Debug)]
pub(super) struct Plan {
    at: ScreenPx,
    buttons: u8,
    held: Vec<u32>,
    steps: Vec<Step>,
}

impl Plan {
    /// Begins where the pointer is `at`, with `buttons` and the keys `held` down.
    pub(super) fn new(at: ScreenPx, buttons: u8, held: &[u32]) -> Self {
        Self {
            at,
            buttons,
            held: held.to_vec(),
            steps: Vec::new(),
        }
    }

    /// The steps of `action`.
    pub(super) fn action(mut self, action: &Action) -> Result<Vec<Step>> {
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
        Ok(self.steps)
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
    use super::{
        super::input::tests::{keys, pointers},
        *,
    };

    fn try_plan(action: &Action) -> Result<Vec<Step>> {
        Plan::new(ScreenPx::new(80, 60), 0, &[]).action(action)
    }

    fn plan(action: &Action) -> Vec<Step> {
        try_plan(action).unwrap()
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
        let error = try_plan(&bell).unwrap_err();
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
}
