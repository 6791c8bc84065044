//! Examples of actions: a right one of each kind, and wrong ones.

use dart_core::{
    Action, ActionKind, ActionSet, Direction, Key, Modifiers, MouseButton, NamedKey, ScreenPx, Size,
};

/// An action of this kind that every screen of this size takes.
pub fn example(kind: ActionKind, screen: Size) -> Action {
    let at = ScreenPx::new((screen.width / 2) as i32, (screen.height / 2) as i32);
    let corner = ScreenPx::new(0, 0);
    let button = MouseButton::Left;
    let key = Key::Named(NamedKey::Shift);
    match kind {
        ActionKind::Answer => Action::Answer { text: "42".into() },
        ActionKind::Click => Action::click(at),
        ActionKind::Done => Action::Done,
        ActionKind::DoubleTap => Action::DoubleTap { at },
        ActionKind::DragTo => Action::DragTo {
            from: Some(at),
            to: corner,
        },
        ActionKind::Fail => Action::Fail,
        ActionKind::Hotkey => Action::Hotkey {
            keys: vec![Key::Named(NamedKey::Ctrl), Key::Char('a')],
        },
        ActionKind::KeyDown => Action::KeyDown { key },
        ActionKind::KeyUp => Action::KeyUp { key },
        ActionKind::KeyboardEnter => Action::KeyboardEnter,
        ActionKind::LongPress => Action::LongPress { at },
        ActionKind::MouseDown => Action::MouseDown { button },
        ActionKind::MouseUp => Action::MouseUp { button },
        ActionKind::MoveTo => Action::MoveTo { at },
        ActionKind::NavigateBack => Action::NavigateBack,
        ActionKind::NavigateHome => Action::NavigateHome,
        ActionKind::OpenApp => Action::OpenApp {
            name: "Settings".into(),
        },
        ActionKind::Press => Action::Press {
            key: Key::Named(NamedKey::Down),
        },
        ActionKind::Scroll => Action::Scroll {
            at: Some(at),
            direction: Direction::Down,
            notches: 1,
        },
        ActionKind::Swipe => Action::Swipe {
            from: at,
            to: corner,
        },
        ActionKind::Tap => Action::Tap { at },
        ActionKind::Type => Action::Type { text: "ab".into() },
        ActionKind::Wait => Action::Wait { millis: 1 },
    }
}

/// Actions of these kinds that are wrong on a screen of this size: points just outside each edge,
/// arguments just outside their bounds.
pub fn faulty(kinds: ActionSet, screen: Size) -> Vec<Action> {
    let outside = [
        ScreenPx::new(screen.width as i32, 0),
        ScreenPx::new(0, screen.height as i32),
        ScreenPx::new(-1, 0),
        ScreenPx::new(0, -1),
    ];
    let inside = ScreenPx::new(0, 0);
    let mut all: Vec<Action> = outside.into_iter().flat_map(pointing_at).collect();
    all.extend([
        Action::Click {
            at: inside,
            button: MouseButton::Left,
            count: 4,
            modifiers: Modifiers::NONE,
        },
        Action::Hotkey { keys: Vec::new() },
        Action::Scroll {
            at: None,
            direction: Direction::Up,
            notches: 0,
        },
        Action::Wait { millis: 60_001 },
        Action::Type {
            text: "a".repeat(Action::MAX_TEXT_BYTES + 1),
        },
        Action::OpenApp {
            name: String::new(),
        },
    ]);
    all.retain(|action| kinds.contains(action.kind()));
    all
}

/// One action of each kind that has a point.
fn pointing_at(at: ScreenPx) -> Vec<Action> {
    let inside = ScreenPx::new(0, 0);
    vec![
        Action::click(at),
        Action::DoubleTap { at },
        Action::DragTo { from: None, to: at },
        Action::LongPress { at },
        Action::MoveTo { at },
        Action::Scroll {
            at: Some(at),
            direction: Direction::Down,
            notches: 1,
        },
        Action::Swipe {
            from: inside,
            to: at,
        },
        Action::Tap { at },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_right_and_the_others_wrong() {
        let screen = Size::new(40, 30);
        for &kind in ActionKind::ALL {
            let action = example(kind, screen);
            assert_eq!(action.kind(), kind);
            assert_eq!(action.fault(screen), None, "{action:?}");
        }
        let wrong = faulty(ActionKind::ALL.to_vec().into(), screen);
        assert_eq!(wrong.len(), 38);
        for action in wrong {
            assert!(action.fault(screen).is_some(), "{action:?}");
        }
    }
}
