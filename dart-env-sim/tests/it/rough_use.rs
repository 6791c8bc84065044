//! Whatever is done to the devices, in whatever order: they answer, and stay what they are.

use dart_core::{
    Action, ActionKind, Device, Direction, Environment, Key, Modifier, Modifiers, MouseButton,
    NamedKey, ScreenPx, Size, Split, StepStatus,
};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use crate::support::{configs, environment};

fn any_key(rng: &mut ChaCha8Rng) -> Key {
    match rng.random_range(0..3) {
        0 => Key::Char(*['a', 'c', 'v', 'x', ' ', 'Z', '你'].choose(rng).unwrap()),
        _ => Key::Named(*NamedKey::ALL.choose(rng).unwrap()),
    }
}

fn any_text(rng: &mut ChaCha8Rng) -> String {
    match rng.random_range(0..4) {
        0 => "x y".repeat(rng.random_range(0..2000)),
        1 => "tab\tenter\n\u{7}\u{0}".into(),
        2 => "你好 é \u{202e}".into(),
        _ => "word".into(),
    }
}

/// Any valid action of the kind.
fn any_action(rng: &mut ChaCha8Rng, kind: ActionKind, screen: Size) -> Action {
    let x = rng.random_range(0..screen.width as i32);
    let at = ScreenPx::new(x, rng.random_range(0..screen.height as i32));
    let x = rng.random_range(0..screen.width as i32);
    let to = ScreenPx::new(x, rng.random_range(0..screen.height as i32));
    let maybe = rng.random_bool(0.5).then_some(at);
    let buttons = [MouseButton::Left, MouseButton::Middle, MouseButton::Right];
    let button = *buttons.choose(rng).unwrap();
    let directions = [
        Direction::Down,
        Direction::Left,
        Direction::Right,
        Direction::Up,
    ];
    match kind {
        ActionKind::Click => Action::Click {
            at,
            button,
            count: rng.random_range(1..=3),
            modifiers: Modifiers::NONE.with(*Modifier::ALL.choose(rng).unwrap()),
        },
        ActionKind::DoubleTap => Action::DoubleTap { at },
        ActionKind::DragTo => Action::DragTo { from: maybe, to },
        ActionKind::Hotkey => Action::Hotkey {
            keys: (0..rng.random_range(1..=6)).map(|_| any_key(rng)).collect(),
        },
        ActionKind::KeyDown => Action::KeyDown { key: any_key(rng) },
        ActionKind::KeyUp => Action::KeyUp { key: any_key(rng) },
        ActionKind::KeyboardEnter => Action::KeyboardEnter,
        ActionKind::LongPress => Action::LongPress { at },
        ActionKind::MouseDown => Action::MouseDown { button },
        ActionKind::MouseUp => Action::MouseUp { button },
        ActionKind::MoveTo => Action::MoveTo { at },
        ActionKind::NavigateBack => Action::NavigateBack,
        ActionKind::NavigateHome => Action::NavigateHome,
        ActionKind::OpenApp => Action::OpenApp { name: "x".into() },
        ActionKind::Press => Action::Press { key: any_key(rng) },
        ActionKind::Scroll => Action::Scroll {
            at: maybe,
            direction: *directions.choose(rng).unwrap(),
            notches: rng.random_range(1..=50),
        },
        ActionKind::Swipe => Action::Swipe { from: at, to },
        ActionKind::Tap => Action::Tap { at },
        ActionKind::Type => Action::Type {
            text: any_text(rng),
        },
        ActionKind::Answer | ActionKind::Done | ActionKind::Fail | ActionKind::Wait => {
            Action::Wait { millis: 60_000 }
        }
    }
}

#[tokio::test]
async fn any_sequence_of_actions_is_survived() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut steps = 0;
    for base in configs() {
        for factor in [1, 3] {
            let mut config = base.clone();
            config.screen = Size::new(base.screen.width * factor, base.screen.height * factor);
            let mut env = environment(&config);
            let kinds: Vec<_> = env.spec().actions.iter().collect();
            for mut task in config.tasks(Split::Train).unwrap() {
                task.horizon = 25;
                for seed in 0..30 {
                    env.reset(&task, seed).await.unwrap();
                    for _ in 0..task.horizon {
                        let kind = *kinds.choose(&mut rng).unwrap();
                        let action = any_action(&mut rng, kind, config.screen);
                        let outcome = env.step(&action).await.unwrap();
                        steps += 1;
                        assert_eq!(outcome.observation.frame.size(), config.screen);
                        assert_on_screen(&outcome.observation, config.screen);
                        if outcome.status != StepStatus::Running {
                            break;
                        }
                    }
                    env.device_mut().recover().await.unwrap();
                    assert_eq!(env.device_mut().held(), 0);
                }
            }
        }
    }
    assert!(steps > 4000, "{steps}");
}

fn assert_on_screen(seen: &dart_core::Observation, screen: Size) {
    for element in seen.ui.as_deref().unwrap_or_default() {
        let bounds = element.bounds;
        let last = ScreenPx::new(
            bounds.x + bounds.width as i32 - 1,
            bounds.y + bounds.height as i32 - 1,
        );
        let inside = screen.contains(ScreenPx::new(bounds.x, bounds.y)) && screen.contains(last);
        assert!(inside, "{element:?} on {screen}");
    }
}
